"""Queues that follow a queue of another broker (`understudy replicate`)."""
