"""A run for a reader: its story, its picture, the smallest failing plan, figures of many seeds."""
