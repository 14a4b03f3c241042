"""Options and outcomes that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TimeRemainingColumn

from understudy.config_types import HostPort, parse_address, parse_positive_duration

Function = TypeVar("Function", bound=Callable[..., Any])


class Failed(click.ClickException):
    """It could not be done: one line, exit code 1."""

    exit_code = 1


class Wrong(click.ClickException):
    """The user asked for something that makes no sense: one line, exit code 2."""

    exit_code = 2


def address_value(_ctx: click.Context, _param: click.Parameter, value: str) -> HostPort:
    """Option callback: HOST:PORT."""
    try:
        return parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration_value(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Option callback: `2s`, `500ms`; in seconds."""
    try:
        return None if value is None else parse_positive_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def broker_options(function: Function) -> Function:
    """`node_options` and `--format`: for commands that ask one node something."""
    return node_options(format_option(function))


def node_options(function: Function) -> Function:
    """`-b`, `--user`, `--password`, `--timeout`: for commands that speak to one node."""
    options = (
        click.option(
            "-b", "--broker", "address", metavar="HOST:PORT", callback=address_value,
            default="127.0.0.1:5672", show_default=True, help="The node to speak to.",
        ),
        click.option(
            "--user", envvar="UNDERSTUDY_USER", default="guest", show_default=True,
            help="An administrator. [env: UNDERSTUDY_USER]",
        ),
        click.option(
            "--password", envvar="UNDERSTUDY_PASSWORD", default="guest",
            help="Its password; better given by the environment. [env: UNDERSTUDY_PASSWORD]",
        ),
        click.option(
            "--timeout", metavar="DURATION", callback=duration_value, default="30s", show_default=True,
            help="How long to wait for the answer.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def format_option(function: Function) -> Function:
    return click.option(
        "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
        help="For people or for programs.",
    )(function)  # fmt: skip


@contextmanager
def progress_bar(what: str, total: int, column: ProgressColumn) -> Iterator[Callable[[int], None]]:
    """On a terminal only; what it gives takes by how much one is further."""
    console = Console(stderr=True)
    columns = (what, BarColumn(), column, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda amount: bar.advance(task, amount)


def leave(code: int) -> NoReturn:
    """End the command with an exit code, having said all there is to say."""
    raise click.exceptions.Exit(code)
