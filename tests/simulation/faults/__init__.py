"""What goes wrong in a run: the faults, and when each is done."""
