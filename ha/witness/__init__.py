"""The witness: a third broker that keeps the in-sync set of a pair, and a lease of its primary.

It makes `ha.authority = "pair"` safe in a network that is cut in two, without etcd or a cluster.
"""
