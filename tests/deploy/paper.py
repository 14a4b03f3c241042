"""Documents as tests read them: boxes of commands, each marked with where it is run.

A box is a fenced block. The comment `<!-- checked: WHERE -->` stands right before it, or the word WHERE
behind its language. A box that no test can run has the comment `<!-- not run: REASON -->` instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.tools import ROOT

PAPER = ROOT / "docs" / "runbook.md"
WHERE = {
    "cluster": "on a CIB in a file (test_operations)",
    "pair": "on a pair of real brokers (test_operations)",
    "configuration": "read as a broker reads it (test_operations)",
    "machine": "on a Debian of its own (test_ansible)",
    "site": "on real machines with Pacemaker (test_operations_site)",
}
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "first-pair.md"
FROM_RABBITMQ = ROOT / "docs" / "how-to" / "from-rabbitmq.md"
FROM_RABBITMQ_WHERE = {"rabbitmq": "on a broker of its own (test_readme)", "not run": "its mark says why"}
TUTORIAL_WHERE = {
    "install": "as in README.md",
    "pair": "as a user would (test_readme)",
    "output": "of the box before it, compared (test_readme)",
    "proof": "with `ledger check` in place of the Spark job, which tests/spark runs (test_readme)",
}
README_WHERE = {
    "make": "each target is in the Makefile (test_pages)",
    "install": "the wheel is installed away from the tree (tests/packaging/test_wheel.py)",
    "container": "the image is built and run (test_container)",
    "kombu": "on a broker of its own (test_readme)",
    "celery": "on a broker of its own (test_readme)",
    "kit": "on a broker of its own (test_readme)",
    "pair": "as a user would (test_readme)",
}
HOW_TO = ROOT / "docs" / "how-to"
HOW_TO_WHERE = {
    "rabbitmq": FROM_RABBITMQ_WHERE["rabbitmq"],
    "broker": "on a broker of its own (test_how_to)",
    "archive": "on the data directory of a broker (test_how_to)",
    "mirror": "on two brokers (test_how_to)",
    "federation": "on two brokers (test_how_to)",
    "migrate": "on a RabbitMQ and a broker (tests/interop/rabbitmq/test_migrate.py)",
    "usage": "read by the command line's own parser (test_how_to)",
    "python": "compiled, and its imports done (test_how_to)",
    "configuration": "read as a broker reads it (test_how_to)",
    "celery": "the settings of tests/interop/celery_tasks.py",
    "clients": "on a broker of its own (test_how_to)",
    "security": "run and loaded by tests/understudy/config/test_security_paper.py",
    "kubernetes": "in pods that are processes, as far as a command reaches a node (test_kubernetes)",
    "not run": "not at all; the page says why",
}
GENERATED = ("cli.md", "error-codes.md")
"""Of docs/reference: scripts/reference.py writes them."""
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs" / "explanation").glob("*.md")),
    *sorted(each for each in (ROOT / "docs" / "reference").glob("*.md") if each.name not in GENERATED),
]
"""Explanations and references."""
PAGES_WHERE = {
    "make": README_WHERE["make"],
    "usage": HOW_TO_WHERE["usage"],
    "configuration": "read as a broker reads it (test_pages)",
    "site": "in a folder of its own (test_pages)",
    "http": "its method and path are a heading of the page (test_pages; the routes: test_reference)",
    "channel": "on a broker of its own (test_pages)",
    "event": "has the keys of a real event (test_pages)",
    "kit": "on a broker of its own (test_pages)",
    "proton": "on a broker of its own (tests/understudy/client/amqp10/test_paper.py)",
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


def boxes(
    paper: Path = PAPER, where: Mapping[str, str] = WHERE, *, unchecked: Collection[str] = ()
) -> list[Box]:
    """All of them, in order. A box without a mark, or with an unknown one, is a mistake in the paper.
    `unchecked`: languages whose boxes need none, and are left out."""
    found: list[Box] = []
    section, mark = "", ""
    lines = iter(paper.read_text().splitlines())
    for line in lines:
        if heading := re.match(r"#+ (.*)", line):
            section = heading[1]
        if marked := re.fullmatch(r"<!-- checked: (\w+) -->", line):
            mark = marked[1]
        if re.fullmatch(r"<!-- not run: \S.* -->", line):
            mark = "not run"
        if line.startswith(_FENCE):
            language, _, behind = line.removeprefix(_FENCE).partition(" ")
            text = []
            while not (inside := next(lines)).startswith(_FENCE):
                text.append(inside)
            if language in unchecked:
                continue
            mark = behind or mark
            assert mark in where, f"a box in {section!r} does not say where it is run"
            found.append(Box(section, mark, language, "\n".join(text) + "\n"))
            mark = ""
    return found


def in_section(section: str, where: str) -> list[Box]:
    """At least one."""
    found = [box for box in boxes() if box.section == section and box.where == where]
    assert found, f"runbook.md has no box under {section!r} that is run {WHERE[where]}"
    return found


def commands(section: str, where: str) -> list[str]:
    """The commands of all boxes of that section that are run there, in order."""
    return [command for box in in_section(section, where) for command in box.commands]
