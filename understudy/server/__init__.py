"""What runs a node: `daemon` builds it from its settings; HTTP API, log and signals are beside it."""
