"""Which messages of a quarantine a run publishes. Used by the command and by the console."""

from __future__ import annotations

from understudy.quarantine.journal import Notes
from understudy.quarantine.message import Message


def unpublished(
    chosen: list[Message], notes: Notes, *, again: bool, in_doubt: bool
) -> tuple[list[Message], int]:  # fmt: skip
    """The messages to publish, and how many are left out because they are in doubt."""
    fresh = [m for m in chosen if again or not notes.is_republished(m)]
    todo = [m for m in fresh if in_doubt or not notes.is_in_doubt(m)]
    return todo, len(fresh) - len(todo)


def published(chosen: list[Message], notes: Notes, *, again: bool) -> tuple[int, str]:
    """How many messages are left out because they were republished, and when the last one was noted."""
    done = [] if again else [message for message in chosen if notes.is_republished(message)]
    return len(done), notes.last_confirmed(done)
