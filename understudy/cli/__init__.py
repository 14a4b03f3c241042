"""The command line. `main` is the entry point; `options`, `process` and `exit_codes` are shared; every other
module has one group of commands."""
