"""What nodes say to each other: frames of the link, hellos, snapshots of queues."""
