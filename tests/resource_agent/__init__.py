"""The OCF resource agent: its table by itself, and the script as a process with real brokers."""
