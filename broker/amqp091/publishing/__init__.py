"""What clients publish on a channel: runs of messages, transactions, and what waits to be confirmed."""
