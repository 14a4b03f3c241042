"""Frames, methods, properties and messages of AMQP 0-9-1 as bytes. No state."""
