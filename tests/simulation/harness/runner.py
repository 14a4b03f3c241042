"""Runs seeds, one by one or on several cores, and says what came of them."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.orphans import end_with_parent
from tests.simulation.harness.coverage import reached, watching
from tests.simulation.harness.coverage.watching import Ledger
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.plan import Plan, draw_plan
from tests.simulation.harness.world import World

CHUNK = 20
AHEAD = 4
"""Chunks handed out for each process, so that none waits for the slowest."""


@dataclass(slots=True)
class Outcome:
    """What one seed came to. `failure` is None, or one line; `invariant` is 0 when no checker named one, else
    `judge` is the function that did.
    """

    seed: int
    failure: str | None = None
    invariant: int = 0
    judge: str = ""
    transcript: list[str] = field(default_factory=list)
    trace_hash: str = ""
    events: int = 0
    virtual_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    coverage: Ledger = field(default_factory=Counter)
    """Filled inside `watching` only, but for what the run itself knows."""


def run_seed(seed: int, echo: Callable[[str], None] | None = None) -> Outcome:
    """One run of the plan that the seed gives."""
    return run_plan(draw_plan(seed), echo)


def run_plan(plan: Plan, echo: Callable[[str], None] | None = None) -> Outcome:
    """One run. Never raises for what happens inside it."""
    outcome = Outcome(plan.seed, coverage=watching.begin())
    world = World(plan)
    world.clock.echo = echo
    try:
        world.run()
    except Violation as violation:
        outcome.failure, outcome.invariant = str(violation), violation.number
        outcome.judge = traceback.extract_tb(violation.__traceback__)[-1].name
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome.failure = (
            f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
        )
        outcome.transcript = traceback.format_exc().splitlines()[-12:]
    if outcome.failure is not None:
        outcome.transcript = [*world.clock.recent, *outcome.transcript]
    outcome.trace_hash = world.clock.trace_hash()
    outcome.events = world.clock.events
    outcome.virtual_seconds = world.clock.now
    outcome.counts = _counts(world)
    reached.complete(outcome.coverage, world)
    return outcome


def _counts(world: World) -> Counter[str]:
    counts = world.checkers.counts + Counter(fault.value for fault in world.faults.injected)
    counts["operations of clients"] = world.journal.operations
    counts["messages confirmed"] = len(world.journal.confirmed)
    counts["deliveries"] = world.journal.delivered
    counts["promotions"] = world.promotions
    counts["promotions refused"] = len(world.refusals)
    counts["losses of memory"] = len(world.copies.memory_lost)
    counts.update(world.faults.counts)
    return counts


def run_chunk(seeds: list[int]) -> list[Outcome]:
    """For a worker process, or in place of one."""
    outcomes = []
    with watching.watching(), _collecting_by_hand():
        for seed in seeds:
            outcomes.append(run_seed(seed))
            gc.collect()
    return outcomes


@contextmanager
def _collecting_by_hand() -> Iterator[None]:
    """Runs make few cycles; collecting between them keeps pauses out of the rate. If the process has
    frozen objects itself, no others are."""
    has_frozen = gc.get_freeze_count() > 0
    gc.collect()
    if not has_frozen:
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if not has_frozen:
            gc.unfreeze()


def run_seeds(
    first: int, count: int, processes: int | None = None, late: Callable[[], bool] = lambda: False
) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds. `processes` defaults to the cores of this machine; once it is
    `late`, no more seeds are begun."""
    seeds = range(first, first + count)
    chunks = deque(list(seeds[at : at + CHUNK]) for at in range(0, count, CHUNK))
    processes = min(processes or os.cpu_count() or 1, len(chunks))
    if processes <= 1:
        while chunks and not late():
            yield from run_chunk(chunks.popleft())
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=begin_worker)
    running: deque[Future[list[Outcome]]] = deque()
    try:
        while chunks or running:
            while chunks and len(running) < AHEAD * processes and not late():
                running.append(pool.submit(run_chunk, chunks.popleft()))
            if not running:
                return
            yield from running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def begin_worker() -> None:
    """Ctrl-C is for the process that collects; whatever else ends that one ends this one."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
