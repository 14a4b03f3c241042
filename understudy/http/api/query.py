"""The query of a request for a list: pages, names, order, columns, samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.model.patterns import PatternFault, check_pattern
from ha.adapter.management.views.view import Ages
from understudy.http.answers import bad

LARGEST_PAGE = 500
_PAGE = 100
_LONGEST = 1000
"""Characters of a parameter."""
_SAMPLES = ("lengths", "msg_rates", "data_rates")
_OLDEST = 3600
_TRUE = ("true", "1", "yes")


@dataclass(slots=True, frozen=True)
class ListQuery:
    """`page`: None for the whole list. `sort`: the path of the column to sort by. `columns`: paths; None for
    all. `pattern`: of names, ready to match; "" for any name."""

    page: int | None
    page_size: int
    name: str
    pattern: str
    sort: tuple[str, ...]
    reverse: bool
    columns: tuple[tuple[str, ...], ...] | None
    plain: bool
    totals: bool

    @property
    def top_columns(self) -> list[str] | None:
        if self.columns is None:
            return None
        return list(dict.fromkeys(path[0] for path in self.columns))


def list_query(query: Mapping[str, str]) -> ListQuery:
    """Raises Refused for a wrong value."""
    for key, value in query.items():
        if len(value) > _LONGEST:
            raise bad(f"{key[:60]!a} is longer than {_LONGEST} characters")
    page, size = _page(query)
    name, pattern = query.get("name", ""), ""
    if _is_true(query, "use_regex") and name:
        pattern = f"(?i){name}"
        try:
            check_pattern(pattern)
        except PatternFault as fault:
            raise bad(f"name: no regular expression: {fault}") from None
    return ListQuery(
        page, size, name, pattern, _path(query.get("sort", "")), _is_true(query, "sort_reverse"),
        _columns(query), _is_true(query, "disable_stats"), _is_true(query, "enable_queue_totals"),
    )  # fmt: skip


def _page(query: Mapping[str, str]) -> tuple[int | None, int]:
    """As in RabbitMQ, `page` alone asks for pages."""
    if "page" not in query and not _is_true(query, "pagination"):
        return None, 0
    page, size = (_number(query, key, given) for key, given in (("page", 1), ("page_size", _PAGE)))
    if page < 1 or not 1 <= size <= LARGEST_PAGE:
        raise bad("Pagination parameters are invalid")
    return page, size


def _number(query: Mapping[str, str], key: str, given: int) -> int:
    text = query.get(key, "") or str(given)
    if not text.isdecimal() or len(text) > 9:
        raise bad("Pagination parameters are invalid")
    return int(text)


def _columns(query: Mapping[str, str]) -> tuple[tuple[str, ...], ...] | None:
    given = query.get("columns", "")
    return tuple(_path(one) for one in given.split(",") if one) if given else None


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.strip().split(".")) if text.strip() else ()


def _is_true(query: Mapping[str, str], key: str) -> bool:
    return query.get(key, "").lower() in _TRUE


def ages_of(query: Mapping[str, str]) -> dict[str, Ages | None]:
    """Which samples the request asks for: of `lengths`, `msg_rates` and `data_rates`."""
    found: dict[str, Ages | None] = {}
    for name in _SAMPLES:
        age, step = query.get(f"{name}_age", ""), query.get(f"{name}_incr", "")
        found[name] = None
        if age.isdecimal() and len(age) < 9:
            step_s = int(step) if step.isdecimal() and len(step) < 9 else 0
            found[name] = Ages(min(int(age), _OLDEST), max(step_s, 1))
    return found


def pruned(row: dict[str, Any], columns: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The parts of a row with these paths."""
    found: dict[str, Any] = {}
    for path in columns:
        _copy(row, found, path)
    return found


def _copy(row: dict[str, Any], found: dict[str, Any], path: tuple[str, ...]) -> None:
    head, *rest = path
    if head not in row:
        return
    value = row[head]
    if not rest:
        found[head] = value
    elif isinstance(value, dict):
        inner = found.setdefault(head, {})
        if isinstance(inner, dict):
            _copy(value, inner, tuple(rest))


def at_path(row: dict[str, Any], path: Sequence[str]) -> Any:
    """The value at a path; None if there is none."""
    value: Any = row
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value
