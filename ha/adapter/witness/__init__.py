"""This node as the witness of other pairs: it keeps their in-sync sets, and leases of their primaries."""
