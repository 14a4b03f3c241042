"""Latencies of messages: journeys, histograms of durations, confirm latency."""
