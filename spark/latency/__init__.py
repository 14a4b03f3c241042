"""What a message took: journeys, histograms of their lengths, confirm latency."""
