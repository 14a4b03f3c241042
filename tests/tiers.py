"""Parameters for tests of many cases: `make test` runs a sample of them, `make test-system` the rest."""

from __future__ import annotations

import pytest


def sweep(step: str, *, sample: int, whole: int = 1) -> pytest.MarkDecorator:
    """Parametrizes a test that tries many places with `step`, the distance between two of them."""
    return pytest.mark.parametrize(
        step,
        [
            pytest.param(sample, id=f"every-{sample}"),
            pytest.param(whole, id="whole", marks=pytest.mark.system),
        ],
    )


def sampled(count: int, *, sample: int) -> list[object]:
    """The numbers below `count`, as parameters: the first `sample` of them are for `make test`."""
    rest = (pytest.param(number, marks=pytest.mark.system) for number in range(sample, count))
    return [*range(sample), *rest]
