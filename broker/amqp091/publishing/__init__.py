"""Publishing on AMQP 0-9-1 channels: runs of messages, and transactions."""
