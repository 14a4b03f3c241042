"""Commands of documents, read by the command line's own parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from tests.deploy import paper
from understudy.cli.main import cli

COMMANDS = cli.list_commands(click.Context(cli))


def calls(box: paper.Box) -> Iterator[list[str]]:
    """The words behind each `understudy` of a box, without the brackets around what may be left out."""
    text = re.sub(r"\$\([^)]*\)", "SHELL", re.sub(r"\\\n\s*", "", box.text))
    for line in text.splitlines():
        for piece in re.split(r" && | \|\| | \| |; ", line.partition("  #")[0]):
            if called := re.search(r"(?:^|[\s=/])understudy (.+)", piece):
                words = shlex.split(re.sub(r"[\[\]]|\.\.\.", "", called[1]))
                if words[0] in COMMANDS:
                    yield words


def parsed(words: list[str]) -> None:
    """Fails for an unknown command or option, and without an argument that must be given."""
    command: click.Command = cli
    context = click.Context(cli, info_name="understudy")
    while isinstance(command, click.Group):
        name, *words = words
        inner = command.get_command(context, name)
        assert inner is not None, f"{context.command_path} has no command {name}"
        command, context = inner, click.Context(inner, parent=context, info_name=name)
    given, left, _ = command.make_parser(context).parse_args(words)
    missing = [
        each.name
        for each in command.params
        if each.required
        and not (isinstance(value := given.get(each.name or ""), str | list | tuple) and value)
    ]
    assert not left and not missing, f"{context.command_path}: left {left}, missing {missing}"
