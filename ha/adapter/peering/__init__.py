"""Peerings: the connections that this node opens to other brokers, and keeps open."""
