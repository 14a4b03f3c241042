"""RabbitMQ's documented behaviour against ours, a test a row of docs/reference/compatibility.md; by pika."""
