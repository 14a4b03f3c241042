"""Parameters for tests of many cases: `make test` runs a sample of them, `make test-system` more, and
`make soak-sweeps` all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_HELPERS = "tests.tiers"
"""A file that imports this has tests that `make test-system` runs."""


def marks_none_of(expression: str, file: Path) -> bool:
    """No test in the file can be one that `-m EXPRESSION` selects: none of its marks is named there."""
    words = set(re.findall(r"\w+", expression))
    if not words or "not" in words:
        return False
    text = file.read_text()
    return _HELPERS not in text and not any(f"mark.{word}" in text for word in words - {"and", "or"})


def sweep(step: str, *, sample: int, more: int, whole: int = 1) -> pytest.MarkDecorator:
    """Parametrizes a test that tries many places with `step`, the distance between two of them: for
    `make test`, `make test-system` and `make soak-sweeps`."""
    return pytest.mark.parametrize(
        step,
        [
            pytest.param(sample, id=f"every-{sample}"),
            pytest.param(more, id=f"every-{more}", marks=pytest.mark.system),
            pytest.param(whole, id="whole", marks=pytest.mark.soak),
        ],
    )


def sampled(count: int, *, sample: int) -> list[object]:
    """The numbers below `count`, as parameters: the first `sample` of them are for `make test`."""
    rest = (pytest.param(number, marks=pytest.mark.system) for number in range(sample, count))
    return [*range(sample), *rest]
