"""A virtual Pacemaker cluster: corosync's rings, each node's copy of the CIB, fencing, resource managers.

What `ha.pacemaker` asks by its commands it gets from here. Owner: World.
"""
