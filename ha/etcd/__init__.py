"""The `etcd` authority: the in-sync record as one key of etcd, and the primary's lease as another.

It runs in the daemon. The core knows it as a register, and sees none of this package.
"""
