"""The link, joins, snapshots, and what a node that returns keeps."""
