"""The node's log: one line per event on standard error, even if names that clients chose contain line breaks.

Owner: the daemon, which sets it up once.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from understudy.shared.codes import Coded
from understudy.shared.text import shown

_TRACEBACK = "\nTraceback ("


class OneLine(logging.Formatter):
    """Escapes characters of a message that end a line or move a terminal's cursor. Indents the lines of a
    traceback, which only a fault of the program causes."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname).1s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        first, traceback, rest = record.message.partition(_TRACEBACK)
        lines = [shown(line) for line in (traceback + rest).splitlines()]
        record.message = shown(first) + "\n    ".join(lines)
        return super().formatMessage(record)


class JsonLine(logging.Formatter):
    """One JSON object per line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, `code` if the event has
    one, and `traceback` after a fault of the program. Line breaks in names that clients chose are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.msg if isinstance(record.msg, Coded) else None
        text = record.getMessage() if said is None else said.sentence
        first, traceback, rest = text.partition(_TRACEBACK)
        told = (traceback + rest).strip()
        if record.exc_info:
            told = "\n".join(filter(None, (told, self.formatException(record.exc_info))))
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": first,
        }
        code = {} if said is None else {"code": said.code}
        return json.dumps(line | code | ({"traceback": told} if told else {}))


FORMATS: dict[str, type[logging.Formatter]] = {"text": OneLine, "json": JsonLine}


def set_up_log(level: str, form: str) -> None:
    """Apply `log.level` and `log.format`."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[form]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
