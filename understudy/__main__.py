"""`understudy` and `python -m understudy`: starts the command line, whose modules take a moment to import."""

from __future__ import annotations

from understudy.cli.process import quiet


def main() -> None:
    """Run one command and exit with its code. An interrupt during the imports ends the process silently."""
    quiet()
    from understudy.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
