"""The ledger: append-only files in which nodes and clients record ranges of message ids."""

import understudy.shared  # noqa: F401  # first of all: it finds the compiled modules
