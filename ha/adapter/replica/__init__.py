"""The model as a backup sees it: what a link brings goes into it, and to the store."""
