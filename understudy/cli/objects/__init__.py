"""Commands on queues, exchanges, bindings, messages and connections of a running pair."""
