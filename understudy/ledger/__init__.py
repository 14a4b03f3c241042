"""The ledger: append-only files in which nodes and clients record ranges of message ids."""
