"""History records: their order, their binary form, and the positions that confirms wait for."""
