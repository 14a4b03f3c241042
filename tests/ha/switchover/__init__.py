"""A node that stops serving on purpose."""
