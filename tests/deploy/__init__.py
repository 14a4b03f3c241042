"""What is below deploy/, held against the tools that it is for."""
