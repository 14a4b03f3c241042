"""Names of writers that readers would ignore are refused by the client kit."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.client import Consumer, Publisher
from understudy.ledger.writer import LedgerWriter


@pytest.mark.parametrize("name", ["_shop", ".shop", ""])
def test_a_name_whose_ledger_nobody_would_read_is_refused(tmp_path: Path, name: str) -> None:
    for kind in (
        lambda: Publisher("127.0.0.1:1", name, tmp_path),
        lambda: Consumer("127.0.0.1:1", "orders", name, tmp_path),
    ):
        with pytest.raises(
            ValueError, match=f"^'{name}' cannot name the writer of a ledger: it is empty, or"
        ):
            kind()
    assert not list(tmp_path.iterdir())
    Publisher("127.0.0.1:1", name).close()


def test_names_that_are_refused_are_those_that_are_hidden(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from spark.reconcile.input.read import find_ledgers

    for name in ("_shop", ".shop", "", "shop_", "a.b"):
        LedgerWriter(str(tmp_path), name, "producer", incarnation=1).close()
    found = find_ledgers([tmp_path])
    assert (len(found.hidden), len(found.ledgers)) == (3, 2)
