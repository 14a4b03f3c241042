"""RabbitMQ and Understudy under the same loads, in turns: `make bench-compare`."""
