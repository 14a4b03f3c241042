"""What operators ask a node, and what they have it do."""
