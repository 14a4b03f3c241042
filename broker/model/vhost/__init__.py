"""Virtual hosts, what is defined in them and for them, and the way in for messages."""
