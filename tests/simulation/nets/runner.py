"""Runs one seed of a net, and says what came of it."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.harness.journal import Violation
from tests.simulation.nets.net_world import BrokenNet, NetWorld


@dataclass(slots=True)
class Outcome:
    """`failure`: one line; "" if there is none. `confirmed`: messages of the publishers of all sites."""

    seed: int
    failure: str
    trace_hash: str
    virtual_seconds: float
    events: int
    sites: int
    confirmed: int
    forwarded: int
    """Messages that came to another site than that of their publisher."""


def run_net(seed: int, outage: float = 0.0, echo: Callable[[str], None] | None = None) -> Outcome:
    """Never raises for what happens inside it."""
    world, failure = NetWorld(seed, outage), ""
    world.clock.echo = echo
    try:
        world.run()
    except (BrokenNet, Violation) as violation:
        failure = str(violation)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
    outcome = Outcome(
        seed, failure, world.clock.trace_hash(), world.clock.now, world.clock.events, len(world.sites),
        sum(len(site.sender.confirmed_ones) for site in world.sites.values()), world.forwarded,
    )  # fmt: skip
    del world
    gc.collect()
    return outcome
