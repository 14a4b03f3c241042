"""What a channel keeps: half-received content, unacknowledged deliveries, pending confirms, its output."""
