"""Makes a failing plan smaller while it fails for the same reason, so that its story can be read.

Delta debugging over the dataclasses that a plan is made of, whatever they are: parts are left out of tuples
(all, halves, ... one by one) together with whatever names them; then numbers and flags become plainer. A
candidate counts if its run fails in the same way. Deterministic; bounded by runs, and for patience by time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import reduce
from typing import Any

from tests.simulation.harness.plan import Plan
from tests.simulation.harness.runner import Outcome, run_plan

MOST_RUNS, MOST_SECONDS = 600, 60.0
WORDS = {"on_backup_loss": "continue", "authority": "manual", "last_man": "none", "confirm": "all-disks"}
"""What is plainer than anything else there."""
TINY = 0.002
"""Seconds, and chances, that are not halved any more."""
LIVENESS = 27
Path = tuple[str | int, ...]
"""Of a value in a plan: field names and places in tuples."""

CLIENTS = (
    "trespassers", "movers", "shifters", "repeaters", "numberers", "churners", "temporaries", "rules",
    "pollers", "consumers", "publishers",
)  # fmt: skip
FIRST = ("faults", "machines", "controllers", *CLIENTS)
"""Tuples of a plan in which most is to be gained; the others follow."""
FIXED = frozenset({"seed", "nodes", "kind", "when", "name"})
"""Fields that are never changed for themselves. `nodes` follows the machines."""


def signature(outcome: Outcome) -> tuple[object, ...]:
    """What must stay the same: the invariant and the function that judged; for liveness what was waited for,
    for crashes where.
    """
    text = outcome.failure or ""
    if outcome.invariant == LIVENESS:
        return LIVENESS, text.split(": ")[1]
    if outcome.invariant == 0:
        return 0, text.split(":")[0], text.rpartition(" (")[2]
    return outcome.invariant, outcome.judge


@dataclass(slots=True)
class Shrinker:
    """`told` is given one line each time the plan got smaller."""

    plan: Plan
    outcome: Outcome
    told: Callable[[str], None] = lambda line: None
    run: Callable[[Plan], Outcome] = run_plan
    most_runs: int = MOST_RUNS
    most_seconds: float = MOST_SECONDS
    runs: int = 0
    _tried: set[Plan] = field(default_factory=set)
    _ends: float = 0.0

    def shrink(self) -> None:
        """Until nothing makes it smaller, or a bound is reached; `plan` and `outcome` are the smallest."""
        self._ends = time.monotonic() + self.most_seconds
        while self._pass() and not self._over():
            pass

    def _pass(self) -> bool:
        """Every kind of reduction once; whether any of them helped."""
        before = self.plan
        for path in sorted(tuples(self.plan), key=_order):
            self._thin(path)
        for path in leaves(self.plan):
            self._plainer(path)
        return self.plan != before

    def _thin(self, path: Path) -> None:
        """Leave parts out of one tuple: all at first, then ever smaller runs of them."""
        if self._gone(path):
            return
        count = len(value_at(self.plan, path))
        size = count
        while size >= 1 and not self._over():
            at = 0
            while at < len(value_at(self.plan, path)):
                items = value_at(self.plan, path)
                if not self._try(without(self.plan, path, items[at : at + size]), f"{len(items)} {path[-1]}"):
                    at += size
                elif self._gone(path):
                    return
            size //= 2

    def _gone(self, path: Path) -> bool:
        try:
            value_at(self.plan, path)
        except IndexError:
            return True
        return False

    def _plainer(self, path: Path) -> None:
        """One number, flag or word: its default, nothing, half of it."""
        if self._gone(path):
            return
        for candidate in plainer(self.plan, path):
            if self._over():
                return
            changed = put(self.plan, path, candidate)
            if self._try(changed, ".".join(map(str, path)), no_longer=True):
                return

    def _try(self, plan: Plan, what: str, *, no_longer: bool = False) -> bool:
        """Keep `plan` if it fails as it should; `no_longer`: and if its run is no longer than the best."""
        if plan == self.plan or plan in self._tried or self._over():
            return False
        self._tried.add(plan)
        self.runs += 1
        try:
            outcome = self.run(plan)
        except Exception:  # no world can be built of it: a client without a node, say
            return False
        if outcome.failure is None or signature(outcome) != signature(self.outcome):
            return False
        if no_longer and outcome.events > self.outcome.events:
            return False
        self.plan, self.outcome = plan, outcome
        self.told(f"{self.runs} runs: {size_of(plan)}, {outcome.events:,} events ({what})")
        return True

    def _over(self) -> bool:
        return self.runs >= self.most_runs or (self._ends > 0 and time.monotonic() > self._ends)


def size_of(plan: Plan) -> str:
    """For people."""
    clients = sum(len(getattr(plan, of, ())) for of in CLIENTS)
    parts = {
        "node": len(plan.machines),
        "client": clients,
        "queue": len(plan.topology.queues),
        "fault": len(plan.faults),
    }
    return ", ".join(f"{many} {what}{'' if many == 1 else 's'}" for what, many in parts.items())


# -- walking a plan


def _walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, value
    if is_dataclass(value):
        for each in fields(value):
            yield from _walk(getattr(value, each.name), (*path, each.name))
    elif isinstance(value, tuple):
        for n, item in enumerate(value):
            yield from _walk(item, (*path, n))


def tuples(plan: Plan) -> list[Path]:
    """Where parts can be left out."""
    return [path for path, value in _walk(plan) if isinstance(value, tuple)]


def leaves(plan: Plan) -> list[Path]:
    """Where something can be made plainer."""
    return [
        path for path, value in _walk(plan)
        if isinstance(value, bool | int | float | str) and path and not FIXED & {path[-1]}
    ]  # fmt: skip


def _order(path: Path) -> tuple[int, int, str]:
    rank = FIRST.index(path[0]) if path[0] in FIRST else len(FIRST)
    return rank, len(path), str(path)


def value_at(plan: Any, path: Path) -> Any:
    return reduce(
        lambda value, step: value[step] if isinstance(step, int) else getattr(value, step), path, plan
    )


def put(value: Any, path: Path, new: Any) -> Any:
    """A copy of the tree with `new` at `path`."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return (*value[:step], put(value[step], rest, new), *value[step + 1 :])
    return replace(value, **{step: put(getattr(value, step), rest, new)})


def plainer(plan: Plan, path: Path) -> Iterator[Any]:
    """Simpler values for what is at `path`, the simplest first."""
    value, name = value_at(plan, path), path[-1]
    owner = value_at(plan, path[:-1])
    default = (
        next((f.default for f in fields(owner) if f.name == name), MISSING)
        if is_dataclass(owner)
        else MISSING
    )
    if default is not MISSING:
        candidates = [default]
    elif name in WORDS:
        candidates = [WORDS[name]]
    elif isinstance(value, bool):
        candidates = [False]
    elif isinstance(value, int):
        candidates = [0, 1, value // 2]
    elif isinstance(value, float):
        candidates = [0.0] if value < TINY else [0.0, round(value, 1), round(value / 2, 3), round(value, 3)]
    else:
        candidates = []
    for candidate in dict.fromkeys(candidates):
        words = isinstance(candidate, str) or default is not MISSING
        if candidate != value and (words or abs(candidate) < abs(value)):
            yield candidate


# -- leaving out


def without(plan: Plan, path: Path, parts: tuple[Any, ...]) -> Plan:
    """The plan without some parts of one tuple, and without whatever names them."""
    gone = {part.name for part in parts if is_dataclass(part) and hasattr(part, "name")}
    left: Plan = _pruned(put(plan, path, tuple(i for i in value_at(plan, path) if i not in parts)), gone)
    if path == ("machines",) and left.machines:
        left = replace(left, nodes=len(left.machines))
        for where, value in list(_walk(left)):
            if isinstance(value, str) and value in gone:
                left = put(left, where, left.machines[0].name)
    return left


def _pruned(value: Any, gone: set[str]) -> Any:
    """Without the members of tuples that name something that is gone."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _pruned(getattr(value, f.name), gone) for f in fields(value)})
    if isinstance(value, tuple):
        return tuple(_pruned(item, gone) for item in value if not _names(item, gone))
    return value


def _names(item: Any, gone: set[str]) -> bool:
    if isinstance(item, str):
        return item in gone
    return is_dataclass(item) and any(
        getattr(item, f.name) in gone for f in fields(item) if _word(item, f.name)
    )


def _word(item: Any, name: str) -> bool:
    return isinstance(getattr(item, name), str) and name not in ("key", "type")
