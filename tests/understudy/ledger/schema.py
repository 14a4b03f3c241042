"""Checks ledger records against the JSON schema of ledger lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "spark" / "ledger.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = Draft202012Validator(SCHEMA)
KINDS: list[str] = SCHEMA["properties"]["kind"]["enum"]
COMMON: list[str] = SCHEMA["required"]


def faults(record: object) -> list[str]:
    """Sentences about what is wrong; none if the record follows the schema."""
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in VALIDATOR.iter_errors(record)]


def check_all(records: Iterable[dict[str, Any]]) -> set[str]:
    """Assert that all records follow the schema. Returns the kinds that occurred."""
    seen: set[str] = set()
    shapes: set[tuple[object, ...]] = set()
    for record in records:
        seen.add(record["kind"])
        of_link = str(record.get("prod")).startswith("link:")
        kind = (record["kind"], record["v"], record.get("reason"), of_link)
        shape = (*record, *kind, *map(type, record.values()))
        if shape not in shapes:  # one record of each shape suffices
            shapes.add(shape)
            assert not faults(record), (record, faults(record))
        numbers = [value for value in record.values() if isinstance(value, int)]
        assert all(-1 <= number < 2**53 for number in numbers), record
    return seen
