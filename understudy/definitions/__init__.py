"""RabbitMQ's definitions files: read, compared with a node, applied to it, exported from it."""
