"""Publishes messages of a quarantine again: batch by batch, with confirms, each batch noted once confirmed.

Owner: `understudy quarantine republish`. An ordinary publisher of the client kit, so that a failover on the
way costs nothing but time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import amqp

from broker.model.values import ROOT
from understudy.client import ClientTls, ConnectFailed, NotConfirmed, Publisher
from understudy.quarantine import Message, QuarantineFolder, Unreadable

BATCH = 500
"""Messages between two notes of what was republished: so many may be published twice after a crash."""
ORIGIN_HEADER = "x-quarantined"
"""Header of a republished message: the UUID and replication id under which it was set aside."""


@dataclass(slots=True)
class Outcome:
    """What became of `wanted` messages."""

    wanted: int
    confirmed: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Why the broker did not take some, and how many."""
    why: str = ""
    """What ended it early; empty if nothing did."""


class Republishing:
    """One run. `to`: a queue for all of them; `route`: by their own exchange and key; else by queue name."""

    def __init__(
        self,
        folder: QuarantineFolder,
        outcome: Outcome,
        *,
        user: str,
        to: str | None = None,
        route: bool = False,
    ) -> None:
        self._folder = folder
        self._outcome = outcome
        self._user = user
        self._to = to
        self._route = route
        self._sent: dict[int, Message] = {}
        """By the publisher's number: those of this batch that were not refused."""
        self._heard_at = time.monotonic()

    def run(
        self, messages: list[Message], brokers: str, password: str, timeout: float, ledger: Path | None,
        progress: Callable[[int], None], *, tls: ClientTls | None = None,
    ) -> None:  # fmt: skip
        """Publish them in order, each to its virtual host, for which there is a connection. Waits at most
        `timeout` seconds for a broker, and for the confirms of a batch; whatever ends it early is in
        `outcome.why`.
        """
        try:
            for vhost, group in groupby(messages, key=lambda message: message.vhost):
                publisher = Publisher(
                    brokers, "understudy-quarantine", ledger, user=self._user, password=password, tls=tls,
                    on_return=lambda number, _code, text: self._refused(number, text.lower()),
                    on_nack=lambda number: self._refused(number, "refused by the broker"),
                    given_up=lambda: time.monotonic() - self._heard_at > timeout, virtual_host=vhost,
                )  # fmt: skip
                there = list(group)
                try:
                    for at in range(0, len(there), BATCH):
                        self._batch(publisher, there[at : at + BATCH], brokers, timeout)
                        progress(min(BATCH, len(there) - at))
                finally:
                    publisher.close()
        except (
            ConnectFailed,
            NotConfirmed,
            Unreadable,
            amqp.exceptions.AMQPError,
            OSError,
            ValueError,
        ) as error:
            self._outcome.why = " ".join(str(error).split())

    def _batch(self, publisher: Publisher, batch: list[Message], brokers: str, timeout: float) -> None:
        self._sent = {}
        self._heard_at = time.monotonic()
        for message in batch:
            exchange, key = self._target(message)
            properties = self._properties(message)
            self._sent[publisher.counts.published + 1] = message
            publisher.publish(message.body, key, exchange, mandatory=True, **properties)
        publisher.flush(timeout)
        self._folder.note_republished(list(self._sent.values()), brokers)
        self._outcome.confirmed += len(self._sent)

    def _target(self, message: Message) -> tuple[str, str]:
        """Exchange and routing key."""
        if self._route:
            return message.exchange, message.routing_key
        return "", self._to or message.name

    def _properties(self, message: Message) -> dict[str, Any]:
        """As they were, but for a user id that is not ours: a broker lets no user speak as another."""
        properties = message.properties()
        headers = dict(properties.pop("application_headers", None) or {})
        headers[ORIGIN_HEADER] = f"{message.queue} {message.id}"
        properties.pop("delivery_mode", None)
        if properties.get("user_id", self._user) != self._user:
            headers[f"{ORIGIN_HEADER}-user-id"] = properties.pop("user_id")
        return {**properties, "headers": headers, "persistent": message.persistent}

    def _refused(self, number: int, why: str) -> None:
        message = self._sent.pop(number, None)
        if message is None:
            return
        exchange, key = self._target(message)
        place = f"exchange {exchange!r}, key {key!r}" if exchange else f"queue {key!r}"
        place += "" if message.vhost == ROOT else f" in vhost {message.vhost!r}"
        reason = f"{place}: {why}"
        self._outcome.refused[reason] = self._outcome.refused.get(reason, 0) + 1
