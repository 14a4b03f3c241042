"""The process of a node: `daemon` builds the node from its settings. HTTP, log and signals are beside it."""
