"""docs/OPERATIONS.md as tests read it: boxes of commands, each marked with where it is run.

A box is a fenced block; the comment `<!-- checked: WHERE -->`, one of `WHERE`, stands right before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.deploy.tools import ROOT

PAPER = ROOT / "docs" / "OPERATIONS.md"
WHERE = {
    "cluster": "on a CIB in a file (test_operations)",
    "pair": "on a pair of real brokers (test_operations)",
    "configuration": "read as a broker reads it (test_operations)",
    "machine": "on a Debian of its own (test_ansible)",
    "site": "on real machines with Pacemaker (test_operations_site)",
}
_FENCE = "```"


@dataclass(slots=True, frozen=True)
class Box:
    section: str
    where: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """One for each line."""
        return [line.partition("  #")[0].strip() for line in self.text.splitlines() if line.strip()]


def boxes() -> list[Box]:
    """All of them, in order. A box without a mark, or with an unknown one, is a mistake in the paper."""
    found: list[Box] = []
    section, mark = "", ""
    lines = iter(PAPER.read_text().splitlines())
    for line in lines:
        if heading := re.match(r"#+ (.*)", line):
            section = heading[1]
        if marked := re.fullmatch(r"<!-- checked: (\w+) -->", line):
            mark = marked[1]
        if line.startswith(_FENCE):
            assert mark in WHERE, f"a box in {section!r} does not say where it is run"
            text = []
            while not (inside := next(lines)).startswith(_FENCE):
                text.append(inside)
            found.append(Box(section, mark, line.removeprefix(_FENCE), "\n".join(text) + "\n"))
            mark = ""
    return found


def in_section(section: str, where: str) -> list[Box]:
    """At least one."""
    found = [box for box in boxes() if box.section == section and box.where == where]
    assert found, f"OPERATIONS.md has no box under {section!r} that is run {WHERE[where]}"
    return found


def commands(section: str, where: str) -> list[str]:
    """The commands of all boxes of that section that are run there, in order."""
    return [command for box in in_section(section, where) for command in box.commands]
