"""Nodes promote themselves under an authority that keeps a lease of the owner: when, who, and when not."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from ha.core import codes
from ha.core.membership import Status
from tests.ha.pair import Host, Pair


def serving(pair: Pair) -> str:
    """Names of the nodes of the pair that say that they serve."""
    nodes = [h for h in pair.hosts if h.node is not None and h.node.core.status is not Status.STANDALONE]
    return "".join(h.name for h in nodes if h.node is not None and h.node.core.status.serves)


def confirming(pair: Pair) -> str:
    """Of those, the ones whose leadership lease holds."""
    return "".join(
        h.name for h in pair.hosts
        if h.node is not None and h.node.core.status.serves and not h.node.core.output_fenced
    )  # fmt: skip


def ready(pair: Pair, host: Host) -> bool:
    return host.running.core.status.value == "ready"


def up(count: int = 2, **settings: object) -> Pair:
    """The first of the list has promoted itself, and the others are in sync."""
    pair = Pair(count, authority="etcd", **settings)
    pair.start()
    pair.until(lambda: serving(pair) == "a")
    pair.until(lambda: all(ready(pair, host) for host in pair.hosts[1:]))
    pair.run(0.2)
    return pair


def record_of_another_pair(pair: Pair) -> dict[str, Any]:
    """This pair's, with another cluster and other nodes in it."""
    text = json.dumps(pair.register.held)
    for mine in [pair[0].running.core.cluster_id, *(host.running.me.node_id for host in pair.hosts)]:
        assert mine is not None
        text = text.replace(mine, mine[:-4] + "0f0f")
    return cast("dict[str, Any]", json.loads(text))


def waits_for(host: Host) -> str:
    automatic = host.running.core.automatic
    assert automatic is not None
    return automatic.waits_for


def test_a_fresh_pair_serves_by_itself_and_the_first_of_the_list_begins() -> None:
    pair = up()
    assert pair.register.swaps[0] == "a"
    assert pair[0].told(codes.SERVES_FIRST) and not pair[1].told(codes.SERVES_FIRST)


def test_a_fresh_pair_waits_for_all_of_the_list() -> None:
    pair = Pair(authority="etcd")
    pair.start(pair[0])
    pair.run(3.0)
    assert serving(pair) == "" and "does not answer" in waits_for(pair[0])
    pair.start(pair[1])
    pair.until(lambda: serving(pair) == "a")


def test_a_killed_primary_is_followed_at_once_if_its_kernel_says_so() -> None:
    pair = up()
    begun = pair.now
    pair.kill(pair[0])
    pair.until(lambda: serving(pair) == "b")
    assert pair.now - begun < 0.3
    assert pair[1].told(codes.TAKES_OVER) == ["takes over from a: it does not serve any more"]


def test_silence_is_waited_out() -> None:
    pair = up()
    begun = pair.now
    pair.kill(pair[0], clean=False)
    pair.separate(*pair.hosts)
    pair.until(lambda: serving(pair) == "b")
    lease = pair.register.lease
    assert lease * 2 / 3 < pair.now - begun < lease + 0.3
    assert pair[1].told(codes.TAKES_OVER) == ["takes over from a: its lease has run out"]


def test_there_is_no_failback() -> None:
    pair = up()
    pair.kill(pair[0])
    pair.until(lambda: serving(pair) == "b")
    pair.start(pair[0])
    pair.until(lambda: ready(pair, pair[0]))
    pair.run(5.0)
    assert serving(pair) == "b"


def test_a_primary_cut_off_from_its_backup_alone_goes_on() -> None:
    pair = up()
    pair.separate(*pair.hosts)
    pair.run(20.0)
    assert confirming(pair) == "a" == serving(pair)
    assert waits_for(pair[1]) == (
        "for the authority a is still there: it serves, or hangs; "
        "next: if a hangs, end it, or promote this node"
    )
    pair.heal()
    pair.until(lambda: ready(pair, pair[1]))


def test_a_primary_cut_off_from_all_is_followed_and_learns_it() -> None:
    """Never two that confirm, and the old one joins when it is back."""
    pair = up()
    pair.register.cut.add("a")
    pair.separate(*pair.hosts)
    end = pair.now + 20.0
    while pair.now < end:
        pair.run(0.05)
        assert confirming(pair) in ("", "a", "b")
    assert confirming(pair) == "b"
    pair.register.cut.clear()
    pair.heal()
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))


@pytest.mark.parametrize("cut", ["a", "b", "ab"])
def test_a_whole_pair_goes_on_without_the_authority(cut: str) -> None:
    pair = up()
    pair.register.cut |= set(cut)
    pair.run(20.0)
    assert confirming(pair) == "a"
    pair.register.cut.clear()
    pair.run(5.0)
    assert serving(pair) == "a" and ready(pair, pair[1])


def test_nobody_is_promoted_without_the_authority() -> None:
    pair = up()
    pair.register.cut |= {"a", "b"}
    pair.kill(pair[0])
    pair.run(20.0)
    assert serving(pair) == ""
    assert waits_for(pair[1]).startswith("the authority does not answer; next: see that it runs")
    assert pair[1].running.core.promotable() == (False, waits_for(pair[1]))
    pair.register.says = "the login was refused"
    pair.run(3.0)
    assert "does not say who may serve: the login was refused; next: " in waits_for(pair[1])
    pair.register.cut.clear()
    pair.until(lambda: serving(pair) == "b")


def test_a_restarted_empty_primary_never_goes_over_a_full_backup() -> None:
    """Its memory is gone, and the backup has what was not for the disk, too."""
    pair = up()
    pair.kill(pair[0])
    pair.start(pair[0])
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))
    assert not pair[0].told(codes.TAKES_OVER)


def test_all_that_lost_power_serve_again_once_all_are_back() -> None:
    pair = up()
    for host in pair.hosts:
        pair.kill(host)
    pair.start(pair[1])
    pair.run(10.0)
    assert serving(pair) == "" and "does not answer" in waits_for(pair[1])
    pair.start(pair[0])
    pair.until(lambda: len(serving(pair)) == 1)


def test_of_several_in_sync_one_takes_over() -> None:
    pair = up(4)
    pair.kill(pair[0])
    pair.until(lambda: serving(pair) == "b" and all(ready(pair, h) for h in pair.hosts[2:]))
    assert not pair[2].told(codes.TAKES_OVER)


def test_an_operators_switchover_and_demotion_stay() -> None:
    pair = up()
    answer = pair.ask(pair[0], "switchover")
    assert answer["ok"], answer["reason"]
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))
    pair.run(0.2)
    assert pair.ask(pair[1], "demote")["ok"]
    pair.until(lambda: serving(pair) == "a" and ready(pair, pair[1]))
    pair.kill(pair[1])
    pair.run(5.0)
    assert pair.ask(pair[0], "demote")["ok"]
    pair.run(20.0)
    assert serving(pair) == "" and "an operator has demoted this node" in waits_for(pair[0])
    assert pair.ask(pair[0], "promote")["ok"]


def test_a_frozen_primary_wakes_and_follows() -> None:
    pair = up()
    pair[0].frozen = True
    pair.until(lambda: serving(pair).endswith("b"))
    pair[0].frozen = False
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))


def test_no_switchover_while_the_authority_is_away() -> None:
    """The target could not be promoted, and nobody would serve."""
    pair = up()
    pair.register.cut |= {"a", "b"}
    answer = pair.ask(pair[0], "switchover")
    assert (answer["code"], answer["ok"]) == ("switchover-authority-away", False)
    assert answer["reason"] == (
        "not switched over to b: the authority does not answer; "
        "next: a serves on; ask again when the authority answers"
    )
    assert confirming(pair) == "a" and not pair[0].running.broker.input_paused
    pair.register.cut.clear()
    assert pair.ask(pair[0], "switchover")["ok"]


def test_a_switchover_ends_whose_target_dies_while_the_authority_is_asked() -> None:
    pair = up()
    pair.register.delay = 0.3
    pair.kill(pair[1])
    answer = pair.ask(pair[0], "switchover")
    assert answer["reason"].startswith("not switched over to b: it is not in sync any more; next: a serves")
    assert serving(pair) == "a"


def test_a_fresh_pair_leaves_the_record_of_another_pair_alone() -> None:
    """It takes nothing of it to its disk, and begins once the prefix is its own."""
    pair = Pair(authority="etcd")
    foreign = pair.register.held = record_of_another_pair(up())
    pair.start()
    pair.run(8.0)
    assert serving(pair) == "" and pair.register.held is foreign
    for host in pair.hosts:
        assert "has an in-sync set of a, and this node has never joined it; next: start a" in waits_for(host)
        assert host.running.core.record is None and host.running.core.cluster_id is None
    answer = pair.ask(pair[0], "promote")
    assert answer["code"] == "promote-not-in-record", answer
    assert pair[0].running.core.cluster_id is None
    pair.register.held = None
    pair.until(lambda: len(serving(pair)) == 1)


def test_a_pair_says_once_that_the_record_is_of_another_pair() -> None:
    pair = up()
    pair.register.held = record_of_another_pair(pair)
    pair.kill(pair[0])
    pair.run(8.0)
    assert serving(pair) == "" and "belongs to another cluster" in waits_for(pair[1])
    assert not pair[1].told(codes.TAKES_OVER)


def test_a_record_that_cannot_be_read_is_said_once() -> None:
    pair = up()
    pair.register.held = {**pair.register.held, "epoch": "x"} if pair.register.held else None
    pair.kill(pair[0])
    pair.run(8.0)
    assert serving(pair) == ""
    assert "answer cannot be read" in waits_for(pair[1])
    assert len(pair[1].told(codes.AUTHORITY_UNREADABLE)) == 1


def test_a_swap_that_nobody_answers_is_asked_for_again() -> None:
    pair = up()
    pair.register.silent.add("b")
    pair.kill(pair[0])
    pair.until(lambda: serving(pair) == "b")
    assert not pair.register.silent


def test_an_old_primary_that_answers_is_heard_before_a_cold_start_is_judged() -> None:
    """It does not promote itself. The other one may, but only by what that one says."""
    pair = up()
    for host in pair.hosts:
        pair.kill(host)
    pair.start(pair[0])
    pair.ask(pair[0], "controller", do="stop")
    pair.start(pair[1])
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))


def test_a_register_that_lost_the_record_promotes_nobody() -> None:
    pair = up()
    pair.kill(pair[0])
    pair.register.held = None
    pair.run(10.0)
    assert serving(pair) == ""
    assert "lacks an in-sync set that this node knows" in waits_for(pair[1])
