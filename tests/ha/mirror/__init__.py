"""Queue mirrors: a broker of no cluster follows a queue."""
