"""What a node answers over HTTP. `server` is the listener; each folder is a room of it, with its routes.

`node` has health, status and commands of the pair, `metrics` what Prometheus reads, `api` RabbitMQ's
management API, `console` the pages of the console.
"""
