"""RabbitMQ's management API: what is read is here, what changes something in `changes`."""
