"""Stable codes of refusals, errors and log events. Operators search the docs for a code; tests assert it.

Role: the type of an entry. Each layer lists its own entries in a module `codes` (understudy.ledger, broker,
ha.core, understudy), and `scripts/reference.py` writes docs/reference/error-codes.md from all of them.

A code is two to five words with hyphens, and the first names the area: `ledger-unwritable`. PostgreSQL's
condition names (`undefined_table`) and AMQP 1.0's error conditions are words, too. Unlike E0308, a word
is understood before it is looked up, and two branches do not both take the next free number. As in
PostgreSQL, a code stands for a condition that has one remedy: sentences that differ in detail share it.

A code never changes and is never used for anything else. Sentences may be reworded at any time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Code:
    """One entry of a catalogue. `sentence` has a `{field}` for each value of `say`."""

    name: str
    sentence: str
    meaning: str
    """What has happened, for the docs: whole sentences."""
    action: str
    """What the operator does next, for the docs: whole sentences."""
    example: str = ""
    """For the docs, if `sentence` consists of fields only: a possible sentence."""

    def say(self, **values: object) -> Coded:
        """Fill in the sentence. `tests/packaging/test_codes.py` checks that each call gives exactly its
        fields."""
        return Coded(self.name, self.sentence.format_map(values))


@dataclass(slots=True, frozen=True)
class Coded:
    """A sentence with its code. The only place that puts the two into one line.

    Also a message for `logging`: `LOG.warning(SOME_CODE.say(...))`.
    """

    code: str
    sentence: str

    def __str__(self) -> str:
        return f"{' '.join(self.sentence.split())} ({self.code})"

    def __add__(self, more: str) -> Coded:
        return Coded(self.code, self.sentence + more)

    def about(self, subject: str) -> Coded:
        """The same, with the subject and a colon before the sentence."""
        return Coded(self.code, f"{subject}: {self.sentence}")

    def answer(self) -> dict[str, object]:
        """The refusal as JSON."""
        return {"ok": False, "code": self.code, "reason": self.sentence}


class CodedError(Exception):
    """`str()` is the sentence with its code, in one line."""

    def __init__(self, said: Coded) -> None:
        super().__init__(said)
        self.said = said
