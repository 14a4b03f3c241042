"""Two nodes that decide by themselves which one serves, with clients, crashes and silence."""

from __future__ import annotations

from typing import Any

import pytest

from broker.peer import Peer
from broker.security.identity import WITNESS, User
from ha.adapter.witness.place import WitnessPlace
from ha.core import codes
from tests.ha.client import Client
from tests.ha.election.test_automatic import confirming, ready, serving
from tests.ha.pair import Host, Pair
from tests.ha.witness.witnessed import Witnessed


def two(**settings: Any) -> Pair:
    pair = Pair(authority="pair", **settings)
    for host, role in zip(pair.hosts, ("primary", "backup"), strict=True):
        host.settings["role"] = role
    return pair


def up(**settings: Any) -> Pair:
    """a serves, b is in sync."""
    pair = two(**settings)
    pair.start()
    pair.until(lambda: serving(pair) == "a" and ready(pair, pair[1]))
    pair.run(0.5)
    return pair


def client(pair: Pair, host: Host) -> Client:
    return Client("c", host, pair.now)


def clients_come(pair: Pair, host: Host, seconds: float) -> None:
    """One client after the other tries to get in there, until that node serves or the time is over."""
    end = pair.now + seconds
    while pair.now < end and host.status not in ("recovering", "active"):
        client(pair, host)
        pair.run(0.5)


def controller(host: Host) -> dict[str, Any]:
    found: dict[str, Any] = host.running.status()["controller"]
    return found


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("delay", [0.0, 0.3, 30.0])
def test_a_fresh_pair_serves_by_itself_whichever_starts_first(first: int, delay: float) -> None:
    pair = two()
    pair.start(pair[first])
    pair.run(delay)
    assert serving(pair) == ""
    pair.start(pair[1 - first])
    pair.until(lambda: serving(pair) == "a" and ready(pair, pair[1]), limit=3.0)
    assert pair[0].told(codes.SERVES_FIRST)


def test_status_tells_how_both_stand() -> None:
    pair = up()
    waiting = client(pair, pair[0])
    pair.run(1.5)
    found = controller(pair[0])
    assert found | {"since": None} == {
        "role": "primary", "state": "active", "wanted": "active", "clients": 1, "votes": 0,
        "peer": {"name": "b", "role": "backup", "state": "passive", "clients": 0},
        "since": None, "running": True, "reason": "",
    }  # fmt: skip
    assert pair.wall // 1000 - 5 < found["since"] < pair.wall // 1000
    found = controller(pair[1])
    assert (found["state"], found["wanted"], found["peer"]["state"]) == ("passive", "passive", "active")
    assert found["peer"]["clients"] == 1 and not waiting.gone


def probe(pair: Pair, host: Host) -> None:
    """A port that is opened and closed, as HAProxy does."""
    host.running.accept(Peer("127.0.0.1", 40001, loopback=True), pair.now).lost(pair.now)


def stranger(pair: Pair, host: Host) -> None:
    Client("x", host, pair.now, "guest:wrong")


def operator(pair: Pair, host: Host) -> None:
    assert pair.ask(host, "status")["ok"]


def test_a_killed_primary_is_followed_once_a_client_comes() -> None:
    pair = up()
    pair.kill(pair[0])
    pair.run(1.0)
    for each in (probe, stranger, operator):
        each(pair, pair[1])
        pair.run(20.0)
        assert serving(pair) == "", each.__name__
    assert controller(pair[1])["reason"].startswith(
        "a is gone: this node takes over as soon as a client comes to it; next: "
    )
    begun = pair.now
    waiting = client(pair, pair[1])
    pair.until(lambda: serving(pair) == "b")
    assert pair.now - begun < 0.3
    pair.run(1.0)
    assert waiting.conn in pair[1].running.broker.connections
    assert pair[1].told(codes.PAIR_TAKES_OVER) == [
        "takes over: the other node is gone, and clients come here"
    ]


def test_the_kernels_word_counts_at_once() -> None:
    pair = up()
    begun = pair.now
    pair.kill(pair[0])
    client(pair, pair[1])
    pair.until(lambda: serving(pair) == "b")
    assert pair.now - begun < 0.5


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("timeout", [1.0, 5.0, 20.0])
def test_silence_is_waited_out(timeout: float, frozen: bool) -> None:
    """Of a machine without power, and of a process that stands still while its kernel keeps connections."""
    pair = up(failover_timeout=timeout)
    begun = pair.now
    pair[0].frozen = frozen
    if not frozen:
        pair.kill(pair[0], clean=False)
        pair.separate(*pair.hosts)
    client(pair, pair[1])
    pair.until(lambda: serving(pair).endswith("b"), limit=timeout + 2)
    assert timeout - 1.0 < pair.now - begun < timeout + 0.3


def test_silence_without_a_client_is_nothing() -> None:
    pair = up()
    pair.kill(pair[0], clean=False)
    pair.separate(*pair.hosts)
    pair.run(60.0)
    assert serving(pair) == ""


def test_there_is_no_failback() -> None:
    pair = up()
    pair.kill(pair[0])
    clients_come(pair, pair[1], 5.0)
    pair.start(pair[0])
    pair.until(lambda: ready(pair, pair[0]))
    pair.run(120.0)
    assert serving(pair) == "b"


def test_a_restarted_empty_primary_never_goes_over_a_full_backup() -> None:
    """It was so quick that no client noticed: the backup serves, without a vote."""
    pair = up()
    pair.kill(pair[0])
    pair.start(pair[0])
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))
    assert not pair[0].told(codes.PAIR_TAKES_OVER)
    assert pair[1].told(codes.PAIR_TAKES_OVER) == ["takes over: the other node has started again"]


@pytest.mark.parametrize("first", [0, 1])
def test_both_lose_power_and_serve_again_once_both_are_back(first: int) -> None:
    pair = up()
    for host in pair.hosts:
        pair.kill(host)
    pair.start(pair[first])
    clients_come(pair, pair[first], 10.0)
    assert serving(pair) == ""  # the other one may have more
    pair.start(pair[1 - first])
    pair.until(lambda: len(serving(pair)) == 1)
    assert serving(pair) == "a"


def test_a_node_that_was_alone_serves_alone_again() -> None:
    """The record says that the other one lacks something; it is broken hardware, say."""
    pair = up()
    pair.kill(pair[1])
    pair.run(5.0)
    pair.kill(pair[0])
    pair.start(pair[0])
    pair.run(20.0)
    assert serving(pair) == ""
    clients_come(pair, pair[0], 10.0)
    assert serving(pair) == "a"


def test_whichever_has_more_serves_after_a_power_loss() -> None:
    pair = up()
    pair.kill(pair[0])
    clients_come(pair, pair[1], 5.0)
    pair.kill(pair[1])
    pair.start()
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))


def test_equal_roles_are_refused() -> None:
    pair = two()
    pair[1].settings["role"] = "primary"
    pair.start()
    pair.run(10.0)
    assert serving(pair) == ""
    assert controller(pair[0])["reason"].startswith("b has ha.role = primary, too; next: give one of the two")
    assert pair[0].told(codes.ROLES_EQUAL) == ["b has ha.role = primary, too"]


@pytest.mark.parametrize("serves", [0, 1])
def test_equal_roles_are_the_reason_in_every_state(serves: int) -> None:
    """Both nodes go on, and the operator sees that nobody would take over."""
    pair = two()
    pair[1].settings["role"] = "primary"
    pair.start()
    pair.run(1.0)
    assert pair.ask(pair[serves], "promote")["ok"]
    pair.until(lambda: ready(pair, pair[1 - serves]))
    for host, other in (pair.hosts, pair.hosts[::-1]):
        said = f"{other.name} has ha.role = primary, too; next: give one of the two the other ha.role"
        status = host.running.status()
        assert said in controller(host)["reason"] and said in status["reason"]
        assert status["promotable"] is (host is pair[serves])
    pair.kill(pair[serves])
    clients_come(pair, pair[1 - serves], 10.0)
    assert serving(pair) == "" and pair[1 - serves].running.status()["promotable"] is False


def test_a_stopped_controller_of_a_node_that_serves() -> None:
    pair = up()
    assert pair.ask(pair[0], "controller", do="stop")["ok"]
    assert controller(pair[0])["reason"] == (
        "the controller is stopped: this node serves on, and does not promote itself once it has stopped "
        "serving; next: understudy controller start"
    )
    assert serving(pair) == "a"


def test_while_the_witness_is_away_nobody_is_promotable_and_status_says_why() -> None:
    pair = Witnessed()
    pair.whole()
    pair.run(0.5)
    assert pair.b.running.status()["promotable"] and controller(pair.b)["reason"] == ""
    pair.kill(pair.w)
    pair.run(10.0)
    away = f"the witness at 127.0.0.1:{pair.w.port} is not reached: connection refused"
    status = pair.b.running.status()
    assert status["promotable"] is False and away in status["reason"]
    assert controller(pair.b)["reason"] == f"the authority commits nothing: {away}"
    pair.kill(pair.a)
    pair.run(3.0)
    status = pair.b.running.status()
    assert status["promotable"] is False
    assert status["reason"].count(away) == 1


def test_a_fenced_primary_says_so() -> None:
    pair = Witnessed()
    pair.whole()
    pair.separate(pair.a, pair.w)
    pair.separate(pair.a, pair.b)
    pair.until(lambda: pair.a.running.core.output_fenced)
    assert controller(pair.a)["reason"].startswith("its leadership lease has expired, so confirms and ")


def elsewhere(name: str) -> WitnessPlace:
    """A witness that is not there."""
    return WitnessPlace.at("127.0.0.1", 5002, name, "secret", lease=5.0)


def test_nodes_with_two_witnesses_say_so_and_neither_begins() -> None:
    pair = Witnessed()
    pair.w.users += (User("other", frozenset({WITNESS}), password="secret"),)
    pair.w.settings["witness_for"] = ("shop", "other")
    pair.b.settings["witness"] = elsewhere("other")
    pair.start()
    pair.run(10.0)
    assert serving(pair) == ""
    at = f"127.0.0.1:{pair.w.port}"
    said = (
        f"ha.witness is {at} (shop) here and {at} (other) on b; these must be the same on all nodes; next: "
    )
    assert controller(pair.a)["reason"].startswith(said + "correct one")


def test_a_node_with_another_witness_than_the_one_that_serves_says_so() -> None:
    """Its witness is empty. Nobody is to be forced for that."""
    pair = Witnessed()
    pair.w.users += (User("other", frozenset({WITNESS}), password="secret"),)
    pair.w.settings["witness_for"] = ("shop", "other")
    pair.whole()
    pair.kill(pair.b)
    pair.run(5.0)
    pair.b.settings["witness"] = elsewhere("other")
    pair.start(pair.b)
    pair.run(5.0)
    assert serving(pair) == "a"
    reason, at = controller(pair.b)["reason"], f"127.0.0.1:{pair.w.port}"
    assert f"ha.witness is {at} (other) here and {at} (shop) on a" in reason and "force" not in reason
    answer = pair.ask(pair.b, "promote", force_lossy=True)
    assert (answer["ok"], answer["code"]) == (False, "promote-other-serves")


def test_equal_roles_do_not_hinder_a_pair_with_a_witness() -> None:
    pair = Witnessed()
    pair[1].settings["role"] = "primary"
    pair.start()
    pair.until(lambda: len(serving(pair)) == 1)
    first = next(host for host in pair.hosts[:2] if host.name == serving(pair))
    other = pair[1] if first is pair[0] else pair[0]
    pair.until(lambda: ready(pair, other))
    assert "has ha.role = primary, too" in controller(first)["reason"]
    assert other.running.status()["promotable"]
    pair.kill(first)
    pair.until(lambda: serving(pair) == other.name)


def test_a_node_that_was_stopped_takes_its_own_silence_for_none() -> None:
    pair = up()
    pair[1].frozen = True
    pair.run(20.0)
    pair[1].frozen = False
    client(pair, pair[1])
    pair.run(20.0)
    assert confirming(pair) == "a" == serving(pair)
    pair.until(lambda: ready(pair, pair[1]))


def test_a_frozen_primary_is_followed_and_wakes_as_a_backup() -> None:
    pair = up()
    pair[0].frozen = True
    clients_come(pair, pair[1], 20.0)
    assert serving(pair).endswith("b")
    pair[0].frozen = False
    end = pair.now + 5.0
    while pair.now < end:
        pair.run(0.05)
        assert confirming(pair) == "b"
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))


def test_a_cut_without_clients_at_the_backup_changes_nothing() -> None:
    pair = up()
    pair.separate(*pair.hosts)
    pair.run(60.0)
    assert confirming(pair) == "a" == serving(pair)
    pair.heal()
    pair.until(lambda: ready(pair, pair[1]))


def test_two_primaries_find_each_other_and_the_loser_keeps_its_messages_apart() -> None:
    """The network is cut, and clients come to both sides: what `pair` without a witness cannot tell."""
    pair = up()
    pair.declare(pair[0], "q")
    pair.publish(pair[0], "q", "x")
    pair.run(1.0)
    pair.separate(*pair.hosts)
    clients_come(pair, pair[1], 20.0)
    assert serving(pair) == "ab"
    pair.publish(pair[0], "q", "yz")
    pair.publish(pair[1], "q", "u")
    pair.run(3.0)
    pair.heal()
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))
    assert pair.contents(pair[1], "q") == "xu"
    assert pair[0].running.status()["quarantined"] == 2


def test_a_link_that_flaps_moves_nothing() -> None:
    pair = up()
    for _ in range(50):
        pair.reset(*pair.hosts)
        client(pair, pair[1])
        pair.run(0.7)
    assert serving(pair) == "a"


def test_passive_is_a_switchover_and_the_other_one_serves() -> None:
    pair = up()
    assert pair.ask(pair[0], "controller", do="passive")["ok"]
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))
    pair.run(60.0)
    assert serving(pair) == "b"
    assert pair.ask(pair[1], "controller", do="passive")["ok"]
    pair.until(lambda: serving(pair) == "a")


def test_a_passive_node_that_is_ordered_so_stays_passive() -> None:
    pair = two()
    pair.start(pair[0])
    pair.run(0.3)
    assert pair.ask(pair[0], "controller", do="passive")["reason"].startswith("a stays passive until ")
    pair.start(pair[1])
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))
    assert controller(pair[0])["state"] == "passive"  # it has followed a primary: the order is fulfilled


def test_both_ordered_passive_one_serves_all_the_same() -> None:
    pair = two()
    pair.start()
    for host in pair.hosts:
        host.running.manage("controller", {"do": "passive"}, lambda answer: None, pair.now)
    pair.until(lambda: serving(pair) == "a")


EITHER = pytest.mark.parametrize("witness", [False, True], ids=["alone", "witness"])


def whole(*, witness: bool) -> Pair:
    """a serves, b is in sync."""
    if not witness:
        return up()
    pair = Witnessed()
    pair.whole()
    pair.run(0.5)
    return pair


def cut_off(pair: Pair, host: Host) -> None:
    """From the witness, if there is one."""
    if isinstance(pair, Witnessed):
        pair.separate(host, pair.w)


@EITHER
def test_both_ordered_passive_after_a_power_loss_one_serves(*, witness: bool) -> None:
    pair = whole(witness=witness)
    for host in pair.hosts[:2]:
        pair.kill(host)
    pair.start(*pair.hosts[:2])
    for host in pair.hosts[:2]:
        host.running.manage("controller", {"do": "passive"}, lambda answer: None, pair.now)
    pair.until(lambda: serving(pair) == "a" and ready(pair, pair[1]))


@EITHER
def test_an_order_ends_when_only_this_node_has_everything(*, witness: bool) -> None:
    """The primary that was to serve has started again, and may not."""
    pair = whole(witness=witness)
    pair.separate(pair[0], pair[1], reset=True)
    cut_off(pair, pair[1])
    pair.kill(pair[0])
    pair.run(0.1)
    assert pair.ask(pair[1], "controller", do="passive")["ok"]
    pair.cut.discard(frozenset({"b", "c"}))
    pair.run(20.0)
    assert serving(pair) == "" and controller(pair[1])["state"] == "ordered"
    pair.heal()
    pair.start(pair[0])
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))
    assert pair[1].told(codes.ORDER_ENDS) == [
        "no longer ordered passive: a is there and may not serve, and only this node has every message"
    ]


@EITHER
def test_an_order_stands_while_the_other_node_may_serve(*, witness: bool) -> None:
    pair = whole(witness=witness)
    for host in pair.hosts[:2]:
        pair.kill(host)
    pair.start(pair[0])
    pair.run(0.3)
    assert pair.ask(pair[0], "controller", do="passive")["ok"]
    pair.start(pair[1])
    pair.until(lambda: serving(pair) == "b" and ready(pair, pair[0]))
    assert not pair[0].told(codes.ORDER_ENDS)


@EITHER
def test_a_client_ends_an_order_when_the_other_node_is_gone(*, witness: bool) -> None:
    pair = whole(witness=witness)
    pair.separate(pair[0], pair[1], reset=True)
    cut_off(pair, pair[1])
    pair.kill(pair[0])
    pair.run(0.1)
    assert pair.ask(pair[1], "controller", do="passive")["ok"]
    pair.cut.discard(frozenset({"b", "c"}))
    pair.run(20.0)
    assert serving(pair) == ""
    clients_come(pair, pair[1], 20.0)
    assert serving(pair) == "b"


def test_passive_changes_nothing_at_a_node_that_follows() -> None:
    pair = up()
    answer = pair.ask(pair[1], "controller", do="passive")
    assert answer["ok"]
    assert answer["reason"] == "b follows a and is passive already; nothing was changed"
    assert controller(pair[1])["state"] == "passive"
    pair.kill(pair[0])
    clients_come(pair, pair[1], 5.0)
    assert serving(pair) == "b"


def test_stopped_it_is_like_manual() -> None:
    pair = up()
    assert pair.ask(pair[1], "controller", do="stop")["ok"]
    pair.kill(pair[0])
    clients_come(pair, pair[1], 10.0)
    assert serving(pair) == "" and not controller(pair[1])["running"]
    assert controller(pair[1])["reason"] == (
        "an operator has stopped the controller; next: understudy controller start"
    )
    assert pair.ask(pair[1], "controller", do="start")["ok"]
    clients_come(pair, pair[1], 5.0)
    assert serving(pair) == "b"


def test_active_takes_an_order_back_and_promotes() -> None:
    pair = up()
    pair.kill(pair[0])
    pair.run(1.0)
    assert pair.ask(pair[1], "controller", do="passive")["ok"]
    assert controller(pair[1])["state"] == "ordered"
    assert pair.ask(pair[1], "controller", do="active")["ok"]
    assert serving(pair) == "b"


def test_without_a_controller_it_is_refused() -> None:
    pair = Pair()
    pair.up()
    answer = pair.ask(pair[0], "controller", do="stop")
    assert (answer["ok"], answer["code"]) == (False, "no-controller")
    assert "controller" not in pair[0].running.status()


def test_clients_wait_while_nobody_is_known_to_serve() -> None:
    """Pending, and passive with a primary that is not heard: the client is held, and let in or refused."""
    pair = up()
    pair.kill(pair[0], clean=False)
    pair.separate(*pair.hosts)
    pair.run(3.4)  # its link is lost, and the primary is not yet silent for too long
    waiting = client(pair, pair[1])
    pair.run(0.5)
    assert not waiting.gone and serving(pair) == ""
    pair.until(lambda: serving(pair) == "b")
    pair.run(0.5)
    waiting.begin(pair.now)
    pair.run(0.2)
    assert not waiting.gone
