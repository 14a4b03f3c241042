"""To whom a broker that follows queues says `ha.password`: over TLS, on its own machine, or where it is told
to trust the network. Whoever asks for the mirror names the address, and must not get the password by that.

In these hosts' network a name leads to whoever has the port.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ha.adapter import codes
from ha.adapter.mirror.mirrors import IN_CLEAR
from tests.ha.mirror.mirrors import Mirrors, following

NEAR = [
    "127.0.0.1:5000",
    "127.8.9.1:5000",
    "localhost:5000",
    "LocalHost:5000",
    "[::1]:5000",
    "[::ffff:127.0.0.1]:5000",
]
FAR = [
    "10.0.0.1:5000", "far.example:5000", "localhost.far.example:5000", "[2001:db8::1]:5000",
    "[::ffff:10.0.0.1]:5000", "127.1:5000", "0.0.0.0:5000", "2130706433:5000",
]  # fmt: skip


def asked(mirrors: Mirrors, *source: str, **more: Any) -> dict[str, Any]:
    return mirrors.ask(mirrors.b, "replicate", 15.0, source=list(source), queue="q", **more)


def begun(**settings: Any) -> Mirrors:
    mirrors = Mirrors()
    mirrors.b.settings |= settings
    mirrors.begin()
    return mirrors


@pytest.mark.parametrize("address", FAR)
@pytest.mark.parametrize("password", ["ha", "a secret"])
def test_it_goes_nowhere_in_the_clear_and_the_answer_says_what_to_set(address: str, password: str) -> None:
    mirrors = begun(password=password)
    for source in ([address], ["127.0.0.1:5000", address]):
        answer = asked(mirrors, *source)
        assert answer == codes.MIRROR_IN_CLEAR.say(address=address, fault=IN_CLEAR).answer()
    assert "ha.tls" in IN_CLEAR
    assert "auth.allow_plain_without_tls" in IN_CLEAR
    assert mirrors.b.running.peerings.status() == []
    assert not mirrors.b.running.vhost.queues


@pytest.mark.parametrize("address", NEAR)
def test_this_machine_itself_may_be_told(address: str) -> None:
    answer = asked(begun(), address)
    assert answer["ok"], answer


def test_over_tls_and_where_the_network_is_trusted_it_may_go_anywhere() -> None:
    assert asked(begun(tls=True), "far.example:5000")["ok"]
    mirrors = begun()
    broker = mirrors.b.running.broker
    broker.settings = replace(broker.settings, allow_plain_without_tls=True)
    assert asked(mirrors, "far.example:5000")["ok"]


def test_a_mirror_is_not_moved_to_where_it_would_go_in_the_clear() -> None:
    mirrors = following()
    before = mirrors.line
    assert asked(mirrors, "far.example:5000")["code"] == "mirror-in-clear"
    mirrors.publish(mirrors[0], "q", "d")
    mirrors.follows(mirrors[0])
    assert mirrors.line == before | {"messages": 4}


def test_a_mirror_that_lost_its_tls_setting_waits_and_says_why() -> None:
    mirrors = begun(tls=True)
    b = mirrors.b
    mirrors.publish(mirrors[0], "q", "abc")
    assert asked(mirrors, "far.example:5000")["ok"]
    mirrors.follows(mirrors[0])
    mirrors.kill(b)
    b.settings["tls"] = False
    b.log.clear()
    mirrors.start(b)
    mirrors.run(1.0)
    assert b.running.peerings.status() == []
    why = f"far.example:5000: {IN_CLEAR}"
    assert (mirrors.line["state"], mirrors.line["error"]) == ("connecting", why)
    assert b.log.count(f"replication of queue 'q': connecting: {why}") == 1
    mirrors.kill(b)
    b.settings["tls"] = True
    mirrors.publish(mirrors[0], "q", "d")
    mirrors.start(b)
    mirrors.follows(mirrors[0])
