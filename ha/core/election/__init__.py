"""How a node becomes primary: promotion, switchover, and the hellos between nodes."""
