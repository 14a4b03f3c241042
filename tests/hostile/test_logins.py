"""Floods of logins by whoever has no password: the loop goes on, and right logins come in.

In counted steps: each check of a password is one that the test makes by hand, and nothing is hashed.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest
from argon2 import extract_parameters

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.server.handshake import PEER_CAPABILITY
from broker.peer import Peer
from broker.security import check_queue, pauses
from broker.security.authenticator import Authenticator, Check, Login
from broker.security.identity import Identity, User
from broker.security.logins import Logins
from broker.security.pauses import FIRST, FORGOTTEN, FREE, LONGEST, Pauses, address_of
from broker.security.tickets import Answer, Ticket
from broker.server.login_threads import LoginThreads
from broker.server.shell import Shell
from tests.broker.amqp091.wire import World
from tests.broker.stored import hashed
from tests.hostile.checker import WORD, Hall, answer, hash_of, users


@pytest.fixture
def hall(monkeypatch: pytest.MonkeyPatch) -> Hall:
    def never(check: Check) -> bool:
        raise AssertionError("a password was checked on the loop")

    monkeypatch.setattr(Check, "verify", never)
    return Hall(World(users=users("app", "shop", "till")))


def test_the_loop_serves_while_a_thousand_passwords_are_wrong(hall: Hall) -> None:
    victim = hall.world.open(user="op", password="op")
    victim.call(1, "confirm.select")
    victim.call(1, "queue.declare", queue="q")
    for n in range(1000):
        hall.knock("app", f"wrong {n}")
        if n % 20 == 0:
            victim.publish(1, b"m", routing_key="q")
            assert victim.names() == ["basic.ack"]
    assert hall.checker.made == []
    assert hall.check() > 0


def test_beyond_the_room_of_the_queue_a_login_is_told_at_once_to_try_again(hall: Hall) -> None:
    crowd = [hall.knock("app", f"wrong {n}") for n in range(1000)]
    told = [answer(client) for client in crowd]
    assert told.count("waits") == check_queue.MOST == hall.logins.waiting
    assert told.count("320") == 1000 - check_queue.MOST
    hall.world.pass_time(2)
    lines = [line for line in hall.world.logged if "is not looked at" in line]
    assert len(lines) == 2
    assert lines[0] == (
        "login of 'app' from 192.0.2.1 is not looked at: too many passwords wait to be checked;"
        " try again in a second"
    )
    assert lines[1].endswith(f"({1000 - check_queue.MOST - 1} of the kind in the last second)")


def test_wrong_names_of_one_host_are_one_line_a_second(hall: Hall) -> None:
    for n in range(50):
        hall.knock(f"nobody {n}", "wrong")
    while hall.check(1):
        hall.world.pass_time(0.01)
    assert sum("login refused for user" in line for line in hall.world.logged) == 1


@pytest.mark.parametrize(
    ("name", "password", "where"),
    [
        ("app", "wrong", {}),
        ("op", "wrong", {}),
        ("carol", "wrong", {}),
        ("nobody", "wrong", {}),
        ("", "wrong", {}),
        ("local", "local", {}),
        ("local", "wrong", {"loopback": True}),
        ("stored", "wrong", {}),
        ("stored", "", {}),
        ("bare", "wrong", {}),
        ("torn", "wrong", {}),
        ("ha", "wrong", {}),
    ],
)
def test_each_wrong_login_costs_one_check_whatever_is_wrong(
    name: str, password: str, where: dict[str, Any]
) -> None:
    stored = {
        "stored": User("stored", password_hash=hashed("word")),
        "bare": User("bare"),
        "torn": User("torn", password_hash="$argon2id$"),
    }
    local = User("local", password="local", loopback_only=True)
    authenticator = Authenticator((*users("app"), local), stored=stored.get)
    login = Login(name, password, "192.0.2.1", tls=True, **where)
    check = authenticator.begin(login)
    assert isinstance(check, Check)
    found = extract_parameters(check.password_hash)
    assert (found.memory_cost, found.time_cost, found.parallelism) == (19456, 2, 1)
    authenticator.remember(check, False)
    assert "Login was refused" in str(authenticator.begin(login))


def test_the_check_of_an_unknown_name_costs_what_most_configured_ones_do() -> None:
    dear = "$argon2id$v=19$m=65536,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA"
    authenticator = Authenticator([User("a", password_hash=dear), User("b", password="word")])
    check = authenticator.begin(Login("nobody", "wrong", loopback=True))
    assert isinstance(check, Check)
    found = extract_parameters(check.password_hash)
    assert (found.memory_cost, found.time_cost, found.parallelism) == (65536, 3, 4)
    assert check.verify() is False


def test_ten_thousand_wrong_logins_leave_the_right_ones_remembered(hall: Hall) -> None:
    first = hall.knock("app", WORD)
    assert hall.check() == 1 and answer(first) == "open"
    authenticator = hall.logins.authenticator
    for n in range(10_000):
        found = authenticator.begin(Login("app" if n % 2 else f"n{n}", f"wrong {n}", loopback=True))
        assert isinstance(found, Check)
        authenticator.remember(found, False)
    assert answer(hall.knock("app", WORD)) == "open"
    assert hall.checker.made == ["app"]


def test_a_client_that_repeats_its_wrong_password_is_checked_once(hall: Hall) -> None:
    for _ in range(100):
        client = hall.knock("app", "wrong")
        hall.check()
        assert answer(client) == "403"
    assert hall.checker.made == ["app"]
    assert hall.logins.pauses.failures("192.0.2.1") == 1


def test_equal_logins_are_checked_once_after_a_failover(hall: Hall) -> None:
    crowd = [hall.knock("app", WORD, f"192.0.2.{n % 200}") for n in range(1000)]
    assert hall.check() == 1
    assert {answer(client) for client in crowd} == {"open"}


def test_peers_and_remembered_logins_wait_for_nobody(hall: Hall) -> None:
    hall.knock("app", WORD)
    hall.check()
    for n in range(1000):
        hall.knock("app", f"wrong {n}")
    assert answer(hall.knock("app", WORD)) == "open"
    assert answer(hall.knock("op", "op")) == "open"
    assert answer(hall.knock("carol", WORD)) == "open"
    peer = hall.world.connect()
    peer.begin_login("ha", "secret", capabilities={PEER_CAPABILITY: True})
    peer.send(0, "connection.open", virtual_host="/")
    assert peer.names()[-1] == "connection.open-ok"


@pytest.mark.parametrize(
    ("why", "early"),
    [("busy", False), ("busy", True), ("wrong", False), ("wrong", True), ("shutdown", False)],
)
def test_a_client_that_is_refused_closes_as_any_other(hall: Hall, why: str, early: bool) -> None:
    for n in range(check_queue.MOST if why == "busy" else 0):
        hall.knock("app", f"wrong {n}")
    client = hall.world.connect(Peer("192.0.2.1", 40000, loopback=False, tls=True))
    claims = {"capabilities": {"authentication_failure_close": True}}
    close_ok = encode_frame(0, "connection.close-ok")
    client.raw(
        PROTOCOL_HEADER
        + encode_frame(
            0, "connection.start-ok", client_properties=claims, mechanism="PLAIN", response=b"\0app\0other"
        )
        + (close_ok if early else b"")
    )
    if why == "wrong":
        hall.check(1)
    elif why == "shutdown":
        hall.world.broker.close_connections(320, "shutdown", hall.now)
        hall.world.tick()
    if not early:
        client.raw(close_ok)
    assert client.closed and client.names()[-1] == "connection.close"


# -- whose turn it is


def test_addresses_take_turns_and_so_do_the_names_of_one(hall: Hall) -> None:
    for n in range(4):
        hall.knock("app", f"wrong {n}", "192.0.2.1")
    hall.knock("shop", "wrong", "192.0.2.1")
    hall.knock("till", "wrong", "192.0.2.2")
    hall.check(5)
    assert hall.checker.made == ["app", "till", "shop", "app", "app"]


def test_an_address_without_failures_comes_before_those_with_some_which_have_each_fourth_turn(
    hall: Hall,
) -> None:
    for n in range(3):
        hall.knock("app", f"wrong {n}", f"192.0.2.{n}")
    assert hall.check() == 3
    for n in range(3):
        hall.knock("app", f"again {n}", f"192.0.2.{n}")
    for n in range(5):
        hall.knock("till", f"other {n}", f"198.51.100.{n}")
    hall.check()
    assert hall.checker.made[3:] == ["app", *["till"] * 3, "app", *["till"] * 2, "app"]


def test_one_more_address_comes_in_while_a_thousand_others_are_refused_again_and_again(hall: Hall) -> None:
    for n in range(2000):
        hall.knock("app", f"wrong {n}", f"10.0.{n % 1000 // 250}.{n % 250}")
    client = hall.knock("shop", WORD, "192.0.2.1")
    assert answer(client) == "waits" and hall.check(2) == 2
    assert answer(client) == "open"


def test_who_waits_with_most_makes_room_for_another_address(hall: Hall) -> None:
    crowd = [hall.knock("app", f"wrong {n}") for n in range(check_queue.MOST)]
    other = hall.knock("shop", WORD, "192.0.2.2")
    assert answer(other) == "waits" and answer(crowd[-1]) == "320"
    assert hall.logins.waiting == check_queue.MOST
    hall.check(2)
    assert answer(other) == "open"


def test_an_address_that_failed_makes_room_for_one_that_did_not(hall: Hall) -> None:
    hall.knock("app", "wrong", "192.0.2.1")
    hall.check()
    crowd = [hall.knock("app", "wrong!", "192.0.2.1")]
    crowd += [hall.knock("app", f"wrong {n}", f"198.51.100.{n}") for n in range(check_queue.MOST - 1)]
    assert answer(hall.knock("shop", WORD, "192.0.2.9")) == "waits"
    assert answer(crowd[0]) == "320"
    assert answer(hall.knock("till", WORD, "192.0.2.10")) == "320", "all others wait with one, as it would"


def test_another_name_comes_in_from_an_address_that_floods_one(hall: Hall) -> None:
    """A proxy's, or loopback."""
    for n in range(FREE + 1):
        hall.knock("app", f"wrong {n}", "127.0.0.1")
    hall.check()
    for n in range(100):
        hall.knock("app", f"again {n}", "127.0.0.1")
    assert hall.logins.waiting == check_queue.MOST_OF_FAILING
    client = hall.knock("shop", WORD, "127.0.0.1")
    for _ in range(3):
        hall.world.pass_time(LONGEST)
        hall.check(1)
    assert answer(client) == "open"


# -- pauses


def test_each_failure_makes_the_pause_longer_up_to_a_limit_and_is_forgotten() -> None:
    found, now, lengths = Pauses(), 100.0, []
    for _ in range(10):
        found.failed("a", now)
        lengths.append(max(0.0, found.until("a") - now))
        now += LONGEST
    assert lengths[:FREE] == [0.0] * FREE
    assert lengths[FREE : FREE + 4] == pytest.approx([FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST])
    assert lengths[-1] == pytest.approx(LONGEST)
    assert found.until("b") == 0.0
    found.failed("b", now + FORGOTTEN)
    assert found.failures("a") == 0 and len(found) == 1


def test_the_table_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "_MOST", 10)
    found = Pauses()
    for n in range(1000):
        found.failed(str(n), 1.0)
    assert len(found) == 10 and found.failures("999") == 1


def test_after_failures_an_address_waits_and_a_right_password_then_works(hall: Hall) -> None:
    for n in range(FREE + 3):
        hall.knock("app", f"wrong {n}")
        hall.world.pass_time(LONGEST)
        assert hall.check() == 1
    client, elsewhere = hall.knock("shop", WORD), hall.knock("till", WORD, "192.0.2.2")
    assert hall.check() == 1
    assert (answer(client), answer(elsewhere)) == ("waits", "open")
    deadline = hall.logins.next_deadline()
    assert deadline is not None and deadline > hall.now
    hall.world.pass_time(deadline - hall.now)
    assert hall.check() == 1 and answer(client) == "open"
    assert hall.logins.next_deadline() is None


def test_a_login_that_waits_for_anothers_pause_goes_by_its_own_address(hall: Hall) -> None:
    for n in range(FREE + 1):
        hall.knock("app", f"wrong {n}")
    hall.check()
    first = hall.knock("shop", WORD)
    second = hall.knock("shop", WORD, "192.0.2.2")
    assert hall.check() == 1
    assert (answer(first), answer(second)) == ("open", "open")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
    ],
)
def test_an_address_is_what_one_host_has_for_itself(host: str, address: str) -> None:
    assert address_of(host) == address


# -- the handshake meanwhile


def test_what_a_client_sends_before_the_answer_is_served_after_it(hall: Hall) -> None:
    client = hall.world.connect()
    client.raw(
        PROTOCOL_HEADER
        + encode_frame(0, "connection.start-ok", mechanism="AMQPLAIN", response=_amqplain("app", WORD))
        + encode_frame(0, "connection.tune-ok", channel_max=9, frame_max=131072)
        + encode_frame(0, "connection.open", virtual_host="/")
    )
    for octet in encode_frame(1, "channel.open"):
        client.raw(bytes([octet]))
    assert client.names() == ["connection.start"]
    hall.check()
    assert client.names() == ["connection.tune", "connection.open-ok", "channel.open-ok"]


def test_and_no_more_of_it_is_kept_than_a_frame_before_login(hall: Hall) -> None:
    client = hall.knock("app", WORD)
    client.raw(bytes(8192))
    assert answer(client) == "503"
    assert hall.logins.waiting == 0 and hall.check() == 0


@pytest.mark.parametrize("how", ["eof", "lost", "close"])
@pytest.mark.parametrize("taken", [False, True])
def test_a_client_that_goes_meanwhile_leaves_nothing(hall: Hall, how: str, taken: bool) -> None:
    client = hall.knock("app", WORD)
    work = hall.checker.take(hall.now) if taken else None
    if how == "close":
        hall.world.broker.close_connections(320, "shutdown", hall.now)
    else:
        getattr(client.connection, how)(hall.now)
    assert hall.logins.waiting == 0 and hall.checker.take(hall.now) is None
    if work is not None:
        hall.checker.finish(work, hall.now)
    hall.world.tick()
    assert "open" not in answer(client)


def test_one_of_two_goes_and_the_other_gets_its_answer(hall: Hall) -> None:
    gone, stays = hall.knock("app", WORD), hall.knock("app", WORD)
    gone.connection.lost(hall.now)
    assert hall.check() == 1 and answer(stays) == "open"


def test_the_limit_of_the_handshake_goes_on(hall: Hall) -> None:
    client = hall.knock("app", WORD)
    hall.world.pass_time(10)
    assert client.closed and hall.logins.waiting == 0
    assert any("waiting for the check of its password" in line for line in hall.world.logged)


def test_a_client_that_cannot_be_told_is_abandoned(hall: Hall) -> None:
    clients = [
        hall.knock("app", f"wrong {n}", capabilities={"authentication_failure_close": False})
        for n in range(check_queue.MOST + 1)
    ]
    hall.check(1)
    assert answer(clients[0]) == answer(clients[-1]) == "abandoned"
    assert answer(clients[1]) == "waits"


def test_a_password_that_changed_meanwhile_is_checked_again_and_a_deleted_user_is_refused(
    hall: Hall,
) -> None:
    stored = hall.world.broker.directory.users
    stored["alice"] = User("alice", password_hash=hash_of("1"))
    stored["bob"] = User("bob", password_hash=hash_of("b"))
    alice, bob = hall.knock("alice", WORD), hall.knock("bob", WORD)
    works = [hall.checker.take(hall.now), hall.checker.take(hall.now)]
    stored["alice"] = User("alice", password_hash=hash_of("2"))
    del stored["bob"]
    for work in works:
        assert work is not None
        hall.checker.finish(work, hall.now)
    assert hall.logins.waiting == 2
    assert (answer(alice), answer(bob)) == ("waits", "waits")
    again = hall.checker.take(hall.now)
    assert again is not None and again.check.password_hash == hash_of("2")


def test_without_memory_for_a_check_nobody_is_called_wrong(hall: Hall) -> None:
    client = hall.knock("app", WORD)
    work = hall.checker.take(hall.now)
    assert work is not None
    hall.checker.finish(work, hall.now, memory=False)
    hall.world.tick()
    assert answer(client) == "320"
    assert hall.logins.pauses.failures("192.0.2.1") == 0
    client = hall.knock("app", WORD)
    hall.check()
    assert answer(client) == "open"


# -- AMQP 1.0


def test_amqp10_waits_for_the_answer_and_serves_what_came_before_it(hall: Hall) -> None:
    talker, octets = _talkers(hall, WORD)
    assert not talker.connection.running and hall.check() == 1
    talker.turn()
    assert talker.connection.running
    octets.raw(bytes(8193))
    assert octets.closed


def test_amqp10_tells_a_wrong_password_and_sends_on_whoever_is_not_looked_at(hall: Hall) -> None:
    talker, _ = _talkers(hall, "wrong")
    hall.check()
    talker.turn()
    assert talker.transport.condition.name == "amqp:unauthorized-access"
    for n in range(check_queue.MOST):
        hall.knock("app", f"wrong {n}", "192.0.2.1")
    talker, _ = _talkers(hall, "other")
    talker.turn()
    assert talker.connection.wants_close and talker.refused is None
    assert any("too many passwords wait" in line for line in hall.world.logged)


def test_amqp10_leaves_nothing_when_it_goes(hall: Hall) -> None:
    for client in _talkers(hall, WORD):
        client.connection.lost(hall.now)
    assert hall.logins.waiting == 0 and hall.check() == 0


def _talkers(hall: Hall, password: str) -> tuple[Any, Any]:
    """One with the engine, and one that has said its name only."""
    pytest.importorskip("proton")
    from broker.amqp10.connection import PROTOCOLS
    from tests.broker.amqp10.wire import Octets, Talker

    hall.world.broker.protocols.update(PROTOCOLS)
    peer = Peer("192.0.2.1", 1, loopback=False, tls=True)
    talker = Talker(hall.world, user="app", password=password, peer=peer)
    octets = Octets(hall.world, peer)
    response = b"\0app\0" + password.encode()
    init = b"\0\x53\x41\xc0" + bytes([len(response) + 10, 2]) + b"\xa3\x05PLAIN\xa0" + bytes([len(response)])
    body = init + response
    octets.raw(b"AMQP\3\1\0\0" + (len(body) + 8).to_bytes(4, "big") + b"\2\1\0\0" + body)
    return talker, octets


# -- the threads


def test_checks_are_made_on_threads_and_the_loop_turns_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Semaphore(0), threading.Event()
    where: set[str] = set()

    def verify(check: Check) -> bool:
        where.add(threading.current_thread().name)
        begun.release()
        go.wait()
        return check.password == WORD

    monkeypatch.setattr(Check, "verify", verify)

    async def run() -> list[Answer]:
        loop = asyncio.get_running_loop()
        logins = Logins(Authenticator(users("app", "shop", "till")))
        threads = LoginThreads(logins, cast(Shell, _Shell(loop)), threads=2)
        answers: list[Answer] = []
        done = asyncio.Event()

        def answered(found: Answer, now: float) -> None:
            answers.append(found)
            if len(answers) == 4:
                done.set()

        for name, password in (("app", WORD), ("shop", "wrong"), ("till", "wrong"), ("app", WORD)):
            login = Login(name, password, name, loopback=True)
            assert isinstance(logins.ask(login, answered, 0.0), Ticket)
        await loop.run_in_executor(None, begun.acquire)
        await loop.run_in_executor(None, begun.acquire)
        for _ in range(100):
            await asyncio.sleep(0)
        assert answers == [] and logins.waiting == 1
        go.set()
        await done.wait()
        threads.close()
        return answers

    answers = asyncio.run(run())
    assert [found for found in answers if isinstance(found, Identity)] == [Identity("app")] * 2
    assert all(name.startswith("passwords") for name in where) and len(where) == 2


class _Shell:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def tick_soon(self) -> None: ...


def test_without_a_driver_checks_are_made_at_once() -> None:
    logins = Logins(Authenticator(users()))
    found = logins.ask(Login("nobody", "wrong", loopback=True), lambda *answer: None, 0.0)
    assert "Login was refused" in str(found)


def _amqplain(name: str, password: str) -> bytes:
    fields = ((b"LOGIN", name.encode()), (b"PASSWORD", password.encode()))
    return b"".join(bytes([len(k)]) + k + b"S" + len(v).to_bytes(4, "big") + v for k, v in fields)
