"""Peerings: as whom a broker logs in to follow queues, what that user may see there, and its time limits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.security.password_hashes import rabbit_hash
from ha.adapter import codes
from ha.adapter.inbox import DialFailed, Inbox
from ha.adapter.peering.login import PeeringLimits, PeeringLogin
from ha.adapter.peering.peering import REDIAL, REFUSED_REDIAL, Peering, PeeringKind, PeeringState
from tests.bad_inputs.test_link import Liar
from tests.ha.mirror.mirrors import Mirrors

SECRET = rabbit_hash("rabbit_password_hashing_sha256", "AQIDBCaHgA82PlhoeBIoEfacAlu5UpKKPusxSF0xeoRNO2L7")
SITE = PeeringLogin("site-7", "a secret", "head-office", vhost="shop")


def at_head_office(login: PeeringLogin = SITE, *, read: str = "^orders") -> Mirrors:
    """The source has a virtual host `shop`, and a stored user `site-7` for brokers of other sites."""
    mirrors = Mirrors()
    mirrors.b.settings["peerings"] = {login.name: login}
    mirrors.start()
    mirrors.run(0.3)
    source = mirrors[0].running
    source.vhosts.add("shop")
    secret = {"password_hash": SECRET, "tags": ["mirror"]}
    rights = {"configure": "", "write": "", "read": read}
    source.broker.directory.put("user", "", "site-7", secret)
    source.broker.directory.put("permission", "shop", "site-7", rights)
    for name in ("orders", "salaries"):
        source.vhosts["shop"].declare_queue(name, owner=mirrors, durable=True)
    return mirrors


def test_a_broker_of_another_site_follows_what_its_user_may_read() -> None:
    """It needs neither the password of the pair there, nor any right but one."""
    mirrors = at_head_office()
    assert mirrors.replicate("orders", peering="head-office")["ok"]
    mirrors.publish(mirrors[0], "orders", "abc", where="shop")
    mirrors.until(lambda: mirrors.contents(mirrors.b, "orders") == "abc")
    assert mirrors.line["peering"] == "head-office"
    [found] = mirrors.b.running.status()["peerings"]
    assert found | {"failures": 0} == {
        "address": "127.0.0.1:5000", "of": "mirror", "peering": "head-office", "vhost": "shop", "tls": False,
        "state": "open", "failures": 0, "error": "",
    }  # fmt: skip

    mirrors.kill(mirrors.b)
    mirrors.start(mirrors.b)
    mirrors.publish(mirrors[0], "orders", "d", where="shop")
    mirrors.until(lambda: mirrors.contents(mirrors.b, "orders") == "abcd")


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        ("salaries", "read access to queue 'salaries' in vhost 'shop' refused for user 'site-7'"),
        ("unknown", "read access to queue 'unknown' in vhost 'shop' refused for user 'site-7'"),
        ("orders-2", "it has no queue 'orders-2'"),
    ],
)
def test_it_hears_of_no_queue_that_it_may_not_read(queue: str, why: str) -> None:
    mirrors = at_head_office()
    answer = mirrors.replicate(queue, peering="head-office")
    assert (answer["ok"], answer["code"]) == (False, "mirror-refused")
    assert answer["reason"] == f"127.0.0.1:5000: a: {why}"
    assert not mirrors.b.running.vhost.queues


def test_its_user_may_do_nothing_else() -> None:
    """The tag opens the methods of queue mirrors: not the link of a pair, and no management."""
    mirrors = at_head_office()
    for method in (10, 13, 20, 50, 52):
        liar = Liar(mirrors, mirrors[0], "site-7", "a secret", "shop")
        liar.say(method, {})
        assert liar.closed is not None
        text = f"ACCESS_REFUSED - extension method {method} is refused to user 'site-7'"
        assert (liar.closed.code, liar.closed.text) == (403, text)


@pytest.mark.parametrize(
    ("login", "why"),
    [
        (PeeringLogin("site-7", "wrong", "x", vhost="shop"), "403 ACCESS_REFUSED - Login was refused"),
        (PeeringLogin("site-7", "a secret", "x", vhost="none"), "530 NOT_ALLOWED - vhost 'none' not found"),
    ],
)
def test_a_wrong_login_is_refused_and_its_key_named(login: PeeringLogin, why: str) -> None:
    mirrors = at_head_office(login)
    reason = mirrors.replicate("orders", peering="x")["reason"]
    assert reason.startswith(f"127.0.0.1:5000: {why}")
    assert ("set peerings.x.username and .password to a user" in reason) is why.startswith("403")
    assert "wrong" not in reason


def test_a_peering_that_the_configuration_does_not_have() -> None:
    mirrors = at_head_office()
    fault = "the configuration of this broker has no peerings.north"
    answer = mirrors.replicate("orders", peering="north")
    assert answer == codes.MIRROR_BAD_ARGUMENTS.say(fault=fault).answer()

    assert mirrors.replicate("orders", peering="head-office")["ok"]
    mirrors.kill(mirrors.b)
    del mirrors.b.settings["peerings"]
    mirrors.start(mirrors.b)
    mirrors.run(1.0)
    said = "127.0.0.1:5000: the configuration of this broker has no peerings.head-office"
    assert (mirrors.line["state"], mirrors.line["error"]) == ("connecting", said)


# -- one peering


def peering(
    limits: PeeringLimits | None = None, node: str = "a", inbox: Inbox | None = None,
    kind: PeeringKind = PeeringKind.PAIR,
) -> Peering:  # fmt: skip
    login = PeeringLogin("u", "p", limits=limits or PeeringLimits())
    return Peering("far", 5672, login, inbox or Inbox(), node, kind)


def pauses(of: Peering, count: int, fail: Callable[[float], None]) -> list[float]:
    found, now = [], 0.0
    for _ in range(count):
        of.dial_id = 1
        fail(now)
        assert (of.dial_id, of.state) == (None, PeeringState.SUSPENDED)
        found.append(of.next_at - now)
        assert not of.due(of.next_at - 0.001)
        now = of.next_at
        assert of.due(now)
    return found


def test_the_pauses_between_attempts_double_up_to_a_limit_and_differ_between_nodes() -> None:
    def of(node: str) -> list[float]:
        made = peering(PeeringLimits(redial_most=5.0), node)
        return pauses(
            made, 9, lambda now: made.failed(now, nobody=True, distrust="", unresolved="")
        )  # fmt: skip

    for number, pause in enumerate(of("a")):
        most = min(REDIAL * 2**number, 5.0)
        assert 0.75 * most <= pause <= most
    assert of("a") == of("a")
    assert of("a") != of("b")


def test_who_was_refused_waits_longer_and_who_was_in_begins_anew() -> None:
    made = peering()
    pauses(made, 5, lambda now: made.failed(now, nobody=False, distrust="", unresolved=""))
    [pause] = pauses(made, 1, lambda now: made.failed(now, nobody=False, distrust="no TLS", unresolved=""))
    assert (pause, made.error) == (REFUSED_REDIAL, "no TLS")


@pytest.mark.parametrize(
    ("kind", "due"),
    [
        (PeeringKind.FEDERATION, [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (PeeringKind.PLAIN, [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (PeeringKind.PAIR, [2.0] * 6),
    ],
)
def test_who_is_refused_again_and_again_fills_no_log_of_another_site(
    kind: PeeringKind, due: list[float]
) -> None:
    made = peering(kind=kind)

    def refuse(now: float) -> None:
        made.failed(now, nobody=False, distrust="no TLS", unresolved="")

    assert pauses(made, 6, refuse) == due
    pauses(made, 1, lambda now: made.failed(now, nobody=True, distrust="", unresolved=""))
    assert pauses(made, 1, refuse) == due[:1]


@pytest.mark.parametrize(("limit", "in_time"), [(2.0, False), (5.0, True)])
def test_the_limit_of_the_handshake_is_the_peerings_own(limit: float, *, in_time: bool) -> None:
    """Over a satellite, the four round trips of the login take 2.4 s."""
    inbox = Inbox()
    made = peering(PeeringLimits(handshake_timeout=limit), inbox=inbox)
    made.dial_id = 1
    made.dialed(0.0)
    made.timers(2.4)
    assert made.client is not None
    assert made.client.wants_close is not in_time
    failed = [item for item in inbox.take() if isinstance(item, DialFailed)]
    assert [item.unspoken for item in failed] == [
        "the server did not finish the handshake in time" for _ in range(not in_time)
    ]
