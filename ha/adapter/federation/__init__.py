"""Federation of exchanges between clusters: the adapter at both ends of each link."""
