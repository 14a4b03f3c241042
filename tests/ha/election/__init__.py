"""Who may serve: promotion, the authority, the record, the lease."""
