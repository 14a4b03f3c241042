"""What federation costs, and how far it gets over long and narrow lines; RabbitMQ's plugins beside it."""
