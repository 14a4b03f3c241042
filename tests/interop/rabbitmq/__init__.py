"""A real RabbitMQ, of Debian's package, and a real broker of ours: federated both ways, and shovelled."""
