"""RabbitMQ's definitions files: read, planned against a node, applied to it, exported from it."""
