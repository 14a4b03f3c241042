"""Records: what has happened, in order, as octets, and as equal fingerprints of equal state."""
