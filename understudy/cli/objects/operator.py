"""The primary as commands see it that work on its objects. They find it, whichever node they are given, and
return when a change is on disk and on the backup."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from understudy.cli.node import question
from understudy.cli.options import Failed, Wrong
from understudy.cli.primary import PrimaryBroker
from understudy.definitions.strict_json import DefinitionsError, read_json
from understudy.management import refusal_of
from understudy.shared.text import shown

_BAD = "command-bad-arguments"


class Operator(PrimaryBroker):
    """The primary, for one command."""

    def operate(self, command: str, **args: Any) -> dict[str, Any]:
        """Its answer. Raises Wrong if an argument is wrong, Failed for any other refusal."""
        answer = question(self.address, command, *self._login, args, "understudy list")
        if not answer.get("ok"):
            said = refusal_of(answer).about(f"{self.address}")
            raise Wrong(said) if said.code == _BAD else Failed(said)
        return answer

    @property
    def is_json(self) -> bool:
        return self._form == "json"

    def tell(self, answer: dict[str, Any], sentence: str) -> None:
        """Print the outcome: the answer as JSON, or the sentence."""
        if self.is_json:
            click.echo(json.dumps(answer))
        else:
            click.echo(f"{self.address}: {shown(sentence)}")


def sure(question: str, yes: bool) -> None:
    """Go on if the operator says so, on a terminal or by `--yes`. Raises Wrong, and Abort."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Wrong(f"{shown(question)}: nothing is done without --yes")
    click.confirm(f"{shown(question)}. Go on?", abort=True, err=True)


def yes_option(function: Any) -> Any:
    return click.option("--yes", is_flag=True, help="Do it without asking.")(function)


Read = Callable[[str, str], Any]


def as_json(_key: str, text: str) -> Any:
    """The value of JSON; any other text is itself."""
    try:
        return read_json(text.encode(errors="surrogateescape"))
    except DefinitionsError:
        return text


def pairs(
    option: str, value_of: Read = as_json
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, Any]]:
    """Option callback: KEY=VALUE each, as a table."""

    def read(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for value in values:
            key, equals, text = value.partition("=")
            if not key or not equals:
                raise click.BadParameter(f"{shown(value)!r} is not KEY=VALUE", param_hint=f"'{option}'")
            found[key] = value_of(key, text)
        return found

    return read


def arguments_option(function: Any) -> Any:
    return click.option(
        "--argument", "arguments", multiple=True, metavar="KEY=VALUE", callback=pairs("--argument"),
        help="An argument, such as x-max-length=1000; may be repeated.",
    )(function)  # fmt: skip
