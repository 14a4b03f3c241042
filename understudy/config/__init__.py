"""The node's settings: `settings` has the keys, `types` their values, `load` reads them."""
