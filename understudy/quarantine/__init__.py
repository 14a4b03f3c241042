"""Messages that a rejoining node set aside: reading and republishing them."""
