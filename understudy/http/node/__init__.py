"""Health, status, promotion: what a node answers over HTTP on itself and its pair."""
