"""Queues that follow a queue of another broker (`understudy replicate`), at both ends."""
