"""`python -m understudy`: the same as the `understudy` command."""

from __future__ import annotations

from understudy.cli import main

if __name__ == "__main__":
    main()
