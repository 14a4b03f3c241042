"""What durability costs: confirms, stalls of the disk, starts, returns, space. `python -m bench.durable`."""
