"""The ledgers themselves: who wrote them, how each writer ended, what is missing."""
