"""What a node says of brokers that it cannot join."""

from __future__ import annotations

from ha.adapter import codes
from tests.ha.pair import Host, Pair


def refusals(host: Host, other: Host) -> list[str]:
    """What `host` logged of a refusal by `other`."""
    return [line for line in host.told(codes.LINK_REFUSED) if f"127.0.0.1:{other.port} " in line]


def test_a_link_that_is_refused_is_logged_once_and_without_the_password() -> None:
    """Two nodes with different `ha.password`: an operator must not be left with `does not answer`."""
    pair = Pair()
    a, b = pair.hosts
    pair.settings["password"] = "one-word"
    pair.start(a)
    pair.settings["password"] = "other-word"
    pair.start(b)
    pair.run(3)
    for host, other in ((a, b), (b, a)):
        refused = refusals(host, other)
        assert len(refused) == 1
        assert "login refused with 403; ha.username and ha.password have to be" in refused[0]
        assert not [line for line in host.log if "-word" in line]
        assert sum("login refused" in line for line in host.log) < 10


def test_a_refusal_is_said_again_after_nobody_was_there() -> None:
    pair = Pair()
    a, b = pair.hosts
    pair.start(a)
    pair.settings["password"] = "other-word"
    pair.start(b)
    pair.run(1)
    pair.kill(a)
    pair.run(3)
    pair.settings["password"] = "ha"
    pair.start(a)
    pair.run(3)
    assert len(refusals(b, a)) == 2


def test_a_node_without_tls_says_that_the_other_one_speaks_it() -> None:
    """Its answer is an alert of TLS; without a word of that, its operator would look for a broken network."""
    pair = Pair()
    a, b = pair.hosts
    pair.start(a)
    a.running.peerings.due(pair.now, at_once=True)
    for dial in a.running.wants_dials():
        a.running.dialed(dial.dial_id, pair.now)
        if dial.port == b.port:
            a.running.dial_received(dial.dial_id, b"\x15\x03\x03\0\x02\x02\x46", pair.now)
            assert a.running.dial_wants_close(dial.dial_id)
    a.running.end_tick(pair.now, pair.wall)
    said = "the server speaks TLS, and was not spoken to in it"
    assert f"127.0.0.1:{b.port} has no link with this node (TLS: {said})" in a.running.status()["reason"]
    assert codes.LINK_REFUSED.say(address=f"127.0.0.1:{b.port}", why=said) in a.said


def test_a_name_that_gives_no_address_is_told_once_and_shown() -> None:
    """A typo in `ha.brokers`, or a name server that is down: the node dials on, and says why in vain."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    at, why = f"127.0.0.1:{b.port}", "cannot resolve 'b' (Name or service not known)"
    lines = [codes.NAME_UNRESOLVED.say(address=at, why=why).sentence]

    def told() -> list[str]:
        return a.told(codes.NAME_UNRESOLVED)

    pair.unresolved[b.port] = why
    pair.kill(b)
    pair.run(3)
    found = a.running.status()
    assert f"{at} is not reached: {why}" in found["reason"] and told() == lines
    (other,) = (line for line in found["members"] if not line["self"])
    assert (other["status"], other["trouble"]) == ("unreachable", f"is not reached: {why}")

    del pair.unresolved[b.port]
    pair.start(b)
    pair.until(lambda: b.status == "ready" and a.running.core.peers.away() == [])
    found = a.running.status()
    assert "resolve" not in found["reason"] and not [x for x in found["members"] if "trouble" in x]
    pair.unresolved[b.port] = why
    pair.kill(b)
    pair.run(3)
    assert told() == 2 * lines


def test_a_first_promotion_says_which_name_gives_no_address() -> None:
    pair = Pair()
    a, b = pair.hosts
    why = pair.unresolved[b.port] = "cannot resolve 'b' (Name or service not known)"
    pair.start(a)
    pair.run(0.3)
    answer = pair.ask(a, "promote")
    told = f"not promoted: 127.0.0.1:{b.port} is not reached: {why} and may hold data; next: "
    assert answer["reason"].startswith(told)
