"""The side that follows: the link of a backup, and how history comes in."""
