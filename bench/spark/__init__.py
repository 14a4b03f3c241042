"""What reconciling costs, from ten million to a billion ids: `python -m bench.spark`."""
