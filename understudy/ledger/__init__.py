"""The ledger: append-only files of range-compressed events that every node and client keeps."""
