"""Prometheus' text format, a line at a time. Pure functions.

`prometheus_client` renders a registry in one go, some 5 us a sample: with 10,000 queues clients would wait
for seconds. What has a sample for each object is therefore written here, in pieces. `prometheus_client`
renders the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from understudy.shared.text import shown

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


class Family(NamedTuple):
    """`name`: without a prefix. `kind`: `counter`, `gauge` or `untyped`. `help`: one line."""

    name: str
    kind: str
    help: str


def head(prefix: str, family: Family) -> str:
    """The two lines before the samples of a family."""
    name = prefix + family.name
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"


def sample(name: str, labels: str, value: float) -> str:
    """One line. `labels`: from `labels_of`."""
    return f"{name}{labels} {value}\n"


def labels_of(labels: Mapping[str, str]) -> str:
    """With braces; empty without labels. Names of objects come from clients: characters that a terminal might
    obey are escaped."""
    if not labels:
        return ""
    inside = ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()])
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    return shown(value).translate(_ESCAPES)
