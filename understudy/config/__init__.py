"""The node's settings: `settings` has the keys, `types` the types of their values, `load` reads them."""
