"""The table of checks: every input of an entry exists, and every fact is used."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from spark.reconcile.checks.table import CHECKS, FACTS, GIVEN

RESULT = {"tag_counts", "logical_counts", "totals", "clocks", "begin", "continued"}
"""Facts that only the result uses."""


def test_each_entry_needs_only_entries_above_it() -> None:
    known = set(GIVEN)
    for fact in FACTS:
        assert set(fact.needs) <= known, fact.name
        assert fact.name not in known
        known.add(fact.name)
    for check in CHECKS:
        assert set(check.needs) <= known, check.name


def test_each_fact_is_used_and_check_names_are_unique() -> None:
    needed = {name for entry in (*FACTS, *CHECKS) for name in entry.needs}
    assert {fact.name for fact in FACTS} <= needed | RESULT
    assert len({check.name for check in CHECKS}) == len(CHECKS)
