"""`understudy`, and `python -m understudy`: the command line, whose modules take a moment to load."""

from __future__ import annotations

from understudy.cli.process import quiet


def main() -> None:
    """Run one command and exit with its code. An interrupt before that ends it without a traceback."""
    quiet()
    from understudy.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
