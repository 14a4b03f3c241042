"""What a story may not leave out: the very act that a checker objects to, and who was to see it."""

from __future__ import annotations

import re

import pytest

from tests.ha.telling import readable
from tests.simulation.checkers.outputs import SERVICE
from tests.simulation.clients import wire
from tests.simulation.harness.plan import draw_plan
from tests.simulation.harness.runner import run_seed
from tests.simulation.mutants import MUTANTS
from tests.simulation.story.overheard import EVENT, ClientTalk, Event, Names
from tests.simulation.story.story import LAST_SAID, Story, tell, transcript

SEEDS = 100
CONNECTION = "c1#2"


def said(text: str, group: str, *, stream: str = CONNECTION, last: bool = False) -> Event:
    client = stream.partition("#")[0]
    return Event(1.0, "say", "A", text, client, group=group, stream=stream, last=last)


def told(events: list[Event], failure: str) -> list[str]:
    """The texts of its rows."""
    return [row.text for row in Story(draw_plan(1), ["A", "B"], events, failure).rows()]


def test_what_a_node_was_about_to_say_is_never_folded() -> None:
    failure = "invariant 8: A still serves in epoch 70538, and B in epoch 136075"
    before = [said("lets it in", "connections", stream=f"c{n}#1") for n in range(2, 9)]
    end = Event(1.0, "end", "", failure)
    shown = told([*before, said("lets it in", "connections", last=True), end], failure)
    assert shown == ["lets it in", failure]


def test_how_the_connection_came_about_is_told_with_it() -> None:
    failure = "invariant 28: A serves 0.440 s after it was cut off from all"
    events = [
        said("lets it in", "connections", stream="c1#1"),
        said("lets it in", "connections"),
        said("basic.consume", "subscriptions"),
        said("deliver from q1", "deliveries"),
        *(said("deliver from q1", "deliveries", last=True) for _ in range(LAST_SAID + 3)),
    ]
    assert told(events, failure) == [
        "lets it in", "basic.consume", "… 1 delivery", *["deliver from q1"] * LAST_SAID, "… 3 deliveries",
    ]  # fmt: skip


def test_the_checkpoint_that_a_failure_names_is_shown() -> None:
    failure = "invariant 13: B finds that queue 'q1' differs from the primary's at 70538.7, and ..."
    group = "consistency checkpoints"
    events = [said(f"consistency checkpoint 70538.{n}", group, stream="link-B#1") for n in (6, 7, 70)]
    one = "… 1 consistency checkpoint"
    assert told(events, failure) == [one, "consistency checkpoint 70538.7", one]


@pytest.mark.system
def test_a_node_that_serves_beside_another_is_shown_as_it_does() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "hold the lease for ever")
    with mutant.applied():
        outcomes = (run_seed(seed) for seed in range(1, SEEDS + 1))
        failed = next(outcome for outcome in outcomes if outcome.invariant in mutant.found_as)
        lines = transcript(tell(draw_plan(failed.seed)))
    node = re.findall(r": (\w) (?:still )?serves", lines[-1])[0]
    assert re.search(rf"  {node} -> [\w-]+: ", lines[-2]), lines[-2:]


def told_of(name: str) -> list[Event]:
    """What is told of a method of a serving node, to a client that has consumed from q1."""
    given = (
        {"consumer": "t"} if name == "basic.deliver" else {"tag": "t"} if name == "basic.consume-ok" else {}
    )
    talk = ClientTalk(CONNECTION, "c1", Names())
    consume = wire.method(1, "basic.consume", queue="q1", tag="t")
    assert [event.text for event in talk.frame("c1", "A", wire.METHOD, consume[7:-1])] == ["basic.consume"]
    events = [*talk.frame("A", "c1", wire.METHOD, wire.method(1, name, **given)[7:-1])]
    return [*events, *talk.frame("A", "c1", wire.BODY, b'{"event": "ready"}')]


@pytest.mark.parametrize("name", sorted(SERVICE))
def test_whatever_only_a_serving_node_says_is_heard(name: str) -> None:
    (event,) = told_of(name)
    assert event.group
    if name == "basic.deliver":
        assert (event.text, [item.text for item in event.items]) == ("deliver from q1", [EVENT])


@pytest.mark.parametrize(("raw", "words"), [
    ("A waits for [], and has ['B']", "A waits for nothing, and has B"),
    ("of ['A', 'B-1'].", "of A, B-1."),
    ("leave [(136075, 2), (70539, 3)]", "leave [(2/5003, 2), (1/5003, 3)]"),
    ("on A [p1:1 (id 2 of epoch 70539)]", "on A [p1:1 (id 2 of epoch 1/5003)]"),
])  # fmt: skip
def test_lists_are_said_in_words(raw: str, words: str) -> None:
    assert readable(raw) == words
