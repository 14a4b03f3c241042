"""Storage engines held against the broker's pattern of writing: which of them should keep its messages."""
