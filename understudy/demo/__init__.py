"""The demo (`understudy demo`): a pair, its clients, and what is shown meanwhile."""
