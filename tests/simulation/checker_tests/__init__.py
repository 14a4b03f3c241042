"""Each checker shown what it must object to, and what it must let pass."""
