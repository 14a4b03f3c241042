"""The checker of handovers: what it must object to, and what it must not."""

from __future__ import annotations

import struct

from ha.core.wire.link import Method, to_json
from tests.simulation.checker_tests.checked import stand_in, violates
from tests.simulation.checkers.primary.handovers import Handovers6
from tests.simulation.harness.clock import Clock

A, B, C = (stand_in(name) for name in "ABC")


def handover(position: list[int] | None) -> bytes:
    """As on the wire."""
    body = struct.pack(">HH", 250, Method.HANDOVER)
    body += to_json({"epoch": 1, "position": position, "off": None})
    return struct.pack(">BHI", 1, 0, len(body)) + body + b"\xce"


def told() -> tuple[Clock, Handovers6]:
    """B has run until it was told that it is about to be handed over to."""
    clock = Clock()
    checker = Handovers6(clock)
    clock.now = 1.0
    checker.ticked(B)
    checker.ticked(C)
    checker.output(A, "link-B#1", handover(None))
    clock.now = 1.5
    return clock, checker


def test_6_the_target_has_not_run_since() -> None:
    _, checker = told()
    checker.ticked(C)
    with violates(6):
        checker.output(A, "link-B#1", b"before" + handover([1, 7]))


def test_6_the_target_has_run_for_an_earlier_one_only() -> None:
    clock, checker = told()
    checker.ticked(B)
    checker.output(A, "link-B#1", handover(None))
    clock.now = 2.0
    with violates(6):
        checker.output(A, "link-B#1", handover([1, 7]))


def test_a_target_that_runs_is_handed_over_to() -> None:
    _, checker = told()
    checker.ticked(B)
    checker.output(A, "link-B#1", handover([1, 7]))
    assert checker.checked == 1


def test_what_else_is_said_there_or_elsewhere_is_none() -> None:
    _, checker = told()
    checker.output(A, "p1#1", handover([1, 7]))
    checker.output(A, "link-B#1", handover(None))
    checker.output(A, "link-B#1", b"\x01\0\0\0\0\0\x06\0\xfa\0\x16{}\xce")
    assert not checker.checked
