"""The write side of RabbitMQ's management API."""
