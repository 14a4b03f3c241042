"""Writes docs/reference/cli.md from click: `make reference`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from understudy.cli.main import cli

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = 120


def commands() -> str:
    """docs/reference/cli.md."""
    lines = [
        "# Commands",
        "",
        "This page lists every command and option of `understudy`. `make reference` generates it.",
        "Exit codes are on [their own page](exit-codes.md).",
        "",
    ]
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        lines += _command(command, f"understudy {name}", "##")
    return "\n".join(lines).rstrip() + "\n"


def _command(command: click.Command, called: str, level: str) -> Iterator[str]:
    context = click.Context(command, info_name=called)
    context.help_option_names = ["-h", "--help"]
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"{level} {called}", "", "```text", f"{called} {usage}".rstrip(), "```", "")
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        elif paragraph:
            yield from (*_wrapped(paragraph), "")
    rows = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    if rows := [row for row in rows if not row[0].endswith("--help")]:
        yield from ("| option | |", "|---|---|")
        yield from (f"| `{_cell(option)}` | {_cell(text)} |" for option, text in rows)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _command(inner, f"{called} {name}", "###")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _wrapped(paragraph: str) -> list[str]:
    lines = [""]
    for word in paragraph.split():
        if len(lines[-1]) + len(word) >= WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


if __name__ == "__main__":
    (REFERENCE / "cli.md").write_text(commands())
