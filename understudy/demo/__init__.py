"""The demo (`understudy demo`): a pair, its clients, and the pictures of the run."""
