"""What is replicated: queues, exchanges, virtual hosts, users, and their levels of replication."""
