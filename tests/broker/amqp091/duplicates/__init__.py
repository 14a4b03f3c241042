"""Messages that come again."""
