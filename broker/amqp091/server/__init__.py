"""One connection of AMQP 0-9-1 and its channels, without I/O."""
