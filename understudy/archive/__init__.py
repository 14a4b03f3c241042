"""Archives: copies of a node on disk (`understudy backup`, `understudy restore`)."""
