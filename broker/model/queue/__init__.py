"""Queues: their contents, in and out, what leaves them by rule, and the same on a backup."""
