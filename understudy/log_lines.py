"""The node's log: to standard error, one line an event, whatever names clients have chosen.

Owner: the daemon, which sets it up once.
"""

from __future__ import annotations

import logging

from broker.errors import shown

_TRACEBACK = "\nTraceback ("


class OneLine(logging.Formatter):
    """What in a message ends a line, or moves a terminal's cursor, is escaped; the lines of a traceback,
    which only a fault of the program makes, are indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname).1s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        first, traceback, rest = record.message.partition(_TRACEBACK)
        lines = [shown(line) for line in (traceback + rest).splitlines()]
        record.message = shown(first) + "\n    ".join(lines)
        return super().formatMessage(record)


def set_up(level: str) -> None:
    """`level` as in `log.level`."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
