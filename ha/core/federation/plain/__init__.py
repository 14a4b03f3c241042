"""Federation with brokers that know plain AMQP 0-9-1 only: the decisions."""
