"""The world of a run: clock, network, disks, machines, operators, and the runner of seeds."""
