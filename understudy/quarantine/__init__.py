"""Messages that a rejoining node set aside: read, and published again."""
