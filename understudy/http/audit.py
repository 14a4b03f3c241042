"""The audit log: one line for each change that somebody made over HTTP: who, from where, what.

Role: writes to the logger `understudy.audit`, beside the node's other lines. Owner: `HttpServer`. Names come
from clients, so each is quoted in ASCII and cut: no line breaks, no escapes of terminals.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from understudy import codes

_LOG = logging.getLogger("understudy.audit")
_SHOWN = 200


class Audit:
    """Call `changed` once the change is done."""

    def changed(self, user: str, host: str, what: str, of: Mapping[str, object]) -> None:
        """`what`: the change in a few words, `delete queue`; `of`: the names that say of what."""
        names = " ".join(f"{key}={_quoted(value)}" for key, value in of.items())
        _LOG.info(codes.AUDIT.say(user=_quoted(user), host=_quoted(host), what=what, names=names))


def _quoted(value: object) -> str:
    text = str(value)
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
