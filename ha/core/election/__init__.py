"""Who becomes primary: promotion, switchover, and what the nodes ask each other for it."""
