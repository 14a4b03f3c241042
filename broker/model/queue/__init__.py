"""Queues: contents, enqueueing and delivery, removal by rules, and the replica on a backup."""
