"""Queue mirrors (`understudy replicate`): the rules at both ends."""
