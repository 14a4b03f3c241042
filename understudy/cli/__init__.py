"""The command line: `main` is its entry, `options` is shared, each other module has one group of commands."""
