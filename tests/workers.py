"""Shares the tests out between the processes of `pytest -n`, which `make test` uses.

A file's tests stay together, in their order: what a module makes once is made once. So do those that
`TOGETHER` names. What takes longest is begun first, so that no process is left with it at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

WITH_SPARK = "Spark"
TOGETHER = {
    "tests/spark/": WITH_SPARK,
    "tests/failover/test_amqp10.py": WITH_SPARK,
    "tests/failover/test_replicate.py": WITH_SPARK,
    "tests/failover/test_rounds.py": WITH_SPARK,
    "tests/failover/test_rules.py": WITH_SPARK,
    "tests/deploy/": "deploy",
}
"""Tests that share what a process makes once: Spark's session and its JVM; a CIB by each tool."""
APART = (
    "tests/simulation/test_seeds.py::test_two_thousand_seeds",
    "tests/simulation/test_mutants.py::test_the_named_checker_finds_it",
)
"""Minutes of one core each: whatever process has nothing else to do takes the next."""
FIRST = (
    "tests/spark/",
    "tests/failover/",
    *APART,
    "tests/ha/test_cuts.py",
    "tests/resource_agent/",
    "tests/interop/",
    "tests/simulation/",
    "tests/ha/",
)
"""The longest, as they are begun; the rest follow in the order of their collection."""


class ByFile(LoadScopeScheduling):
    """Hands a process its next unit, in the order of the collection, when it has hardly a test left."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # those of most tests first, however quick
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """What must be run by one process, in one go."""
    if nodeid.startswith(APART):
        return nodeid
    file = nodeid.split("::", 1)[0]
    return next((name for start, name in TOGETHER.items() if file.startswith(start)), file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort them so that files stay whole."""
    items.sort(key=lambda item: rank(item.nodeid))


def rank(nodeid: str) -> int:
    return next((place for place, start in enumerate(FIRST) if nodeid.startswith(start)), len(FIRST))
