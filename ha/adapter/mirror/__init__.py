"""Queue mirrors (`understudy replicate`): the adapter at both ends."""
