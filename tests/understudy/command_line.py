"""The command line in this process, for tests of what a command does with a node.

A process of its own takes longer to import the program than to run the command. `cli/test_main.py`,
`test_streams.py` and `test_output_lost.py` start processes.
"""

from __future__ import annotations

from click.testing import CliRunner

from understudy.cli.main import cli, run


def command(*arguments: str, typed: str = "") -> tuple[int, str, str]:
    """Exit code, output, errors. `typed` comes by the standard input. One thread at a time."""
    with CliRunner().isolation(input=typed) as (out, err, _):
        code = run(cli.main, list(arguments))
        assert err is not None
        return code, out.getvalue().decode(), err.getvalue().decode()
