"""Nodes promote themselves under an authority that keeps a lease of the owner: when, who, and when not."""

from __future__ import annotations

import pytest

from ha.core import codes
from tests.ha.pair import Host, Pair


def serving(pair: Pair) -> str:
    """Names of the nodes that say that they serve."""
    return "".join(h.name for h in pair.hosts if h.node is not None and h.node.core.status.serves)


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
    assert waits_for(pair[1]) == "a keeps its lease with the authority: it serves, or hangs"
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
    assert waits_for(pair[1]) == "the authority does not answer"
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


def test_a_register_that_lost_the_record_promotes_nobody() -> None:
    pair = up()
    pair.kill(pair[0])
    pair.register.held = None
    pair.run(10.0)
    assert serving(pair) == ""
    assert "lacks an in-sync set that this node knows" in waits_for(pair[1])
