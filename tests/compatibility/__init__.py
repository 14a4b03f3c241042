"""RabbitMQ's documented behaviour against ours, one test a row of docs/COMPATIBILITY.md, with pika."""
