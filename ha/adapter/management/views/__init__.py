"""What there is, as rows in the form of RabbitMQ's management API: queues, connections, users and so on.

Pure functions over the model: they read, and change nothing. A table has a function for each column, so a
caller computes only what it needs, in pieces that hold nobody up. `tables` has them all.
"""
