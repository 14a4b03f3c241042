"""The primary as commands see it that change what the pair keeps. They find it, whichever node they are
given, and return when a change is on disk and on the backup."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import click

from understudy import codes
from understudy.cli.node import everything, primary_of, question, rows, status_of, wide_console
from understudy.cli.options import Failed, Wrong
from understudy.definitions.apply import DEFINE
from understudy.definitions.parse import VHOST
from understudy.management import SERVING, TooLarge, Unreachable, ask, refusal_of
from understudy.shared.addresses import HostPort
from understudy.shared.codes import Coded

LISTING = "directory"


def vhost_option(function: Any) -> Any:
    return click.option(
        "--vhost", default=VHOST, show_default=True, help="The virtual host."
    )(function)  # fmt: skip


class PrimaryBroker:
    """The primary, for one command."""

    def __init__(self, address: HostPort, user: str, password: str, timeout: float, form: str) -> None:
        found = status_of(question(address, "status", user, password, timeout))
        if found["status"] not in SERVING:
            address = primary_of(found) or address
        self.address = address
        self._login = (user, password, timeout)
        self._form = form

    def told(self, command: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
        """Its answer to a question. Raises Failed if it refuses."""
        answer = self.asked(command, args)
        if not answer.get("ok"):
            raise Failed(refusal_of(answer).about(f"{self.address}"))
        return answer

    def asked(self, command: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
        """Its answer to a question, or its refusal."""
        return question(self.address, command, *self._login, args)

    def listing(self, kind: str, command: str = LISTING) -> list[dict[str, Any]]:
        found = self.told(command).get(kind, [])
        return found if isinstance(found, list) else []

    def queues(self) -> list[dict[str, Any]]:
        """The queues of all virtual hosts."""
        return list(everything(self.address, *self._login)["queue_list"])

    def show(self, kind: str, lines: list[dict[str, Any]]) -> None:
        if self._form == "json":
            click.echo(json.dumps(lines))
        elif lines:
            wide_console().print(rows(kind, lines))
        else:
            click.echo(f"{self.address}: no {kind}")

    def change(self, action: str, kind: str, vhost: str, name: str, value: dict[str, Any], done: str) -> bool:
        """Make one change, and print it. Returns whether anything changed. `done`: the sentence for the new
        state."""
        changed = self.change_all(
            [{"action": action, "kind": kind, "vhost": vhost, "name": name, "value": value}]
        )
        if action == "put" or changed:
            self._tell(changed, done if changed else f"{done} already")
        return changed

    def change_all(self, changes: list[dict[str, Any]]) -> bool:
        """Make these changes, all or none, and print nothing. Returns whether anything changed."""
        answer = self._ask(changes)
        if not answer.get("ok"):
            refused = answer.get("refused", False)
            raise (Wrong if refused else Failed)(refusal_of(answer).about(f"{self.address}"))
        return bool(answer.get("changed"))

    def _ask(self, changes: list[dict[str, Any]]) -> dict[str, Any]:
        """The answer. If the broker goes away before it answers, it may have made the change."""
        user, password, timeout = self._login
        try:
            return ask(
                self.address, DEFINE, {"changes": changes}, user=user, password=password, timeout=timeout
            )
        except TooLarge as error:
            raise Failed(error.said) from None
        except Unreachable as error:
            said, way = error.said, "ask the primary whether it made the change"
            raise Failed(Coded(said.code, f"{said.sentence}: {way}")) from None

    def _tell(self, changed: bool, text: str) -> None:
        if self._form == "json":
            click.echo(json.dumps({"ok": True, "changed": changed}))
        else:
            click.echo(f"{self.address}: {text}")

    def nothing(self, text: str) -> NoReturn:
        raise Failed(codes.NOT_THERE.say(address=self.address, what=text))
