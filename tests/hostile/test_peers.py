"""Peers that should not be there: the words that everybody knows, and epochs that nobody minted.

A stranger must not end the service of a primary; a real successor must.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.amqp091.client import ClientConnection, Closed
from broker.model.values import ORIGIN
from broker.security.identity import HA
from ha.core import codes
from ha.core.record.in_sync_record import EPOCH_STEP, MOST_TERMS, InSyncRecord, RecordVersion
from ha.core.wire.link import Ack, Method
from tests.bad_inputs.test_link import Liar, me
from tests.ha.pair import Pair
from tests.understudy.serving import serving
from understudy.config.load import load
from understudy.config.settings import ConfigError
from understudy.server.daemon import users_of

HASH = "$argon2id$v=19$m=8,t=1,p=1$aMcqIZG7xA71v6X1BILIug$64iZ1BAQSQC9i/XYeEmV8MngkfnPrivNemtH07NYV1I"
USER = (f"auth.users.joe.password={HASH}",)
CONTAINER = ("auth.default_user=joe", "auth.default_password=j")
PAIR = ("ha.brokers=127.0.0.1:1,127.0.0.1:2",)
ABSURD = 2**40 + 1


def peers(*settings: str) -> list[tuple[str, bool]]:
    """Users that may open the link, and whether from loopback only."""
    return [(user.name, user.loopback_only) for user in users_of(load(None, settings)) if HA in user.tags]


# -- the words that everybody knows


@pytest.mark.parametrize("users", [(), USER, CONTAINER])
def test_a_standalone_broker_has_no_user_of_the_link_by_default(users: tuple[str, ...]) -> None:
    assert peers(*users) == []
    assert peers(*users, "ha.username=twin") == []
    assert peers(*users, "ha.password=secret") == [("ha", False)]


def test_the_default_password_is_taken_from_loopback_only_by_whatever_name() -> None:
    assert peers(*PAIR) == [("ha", True)]
    assert peers(*PAIR, "ha.username=twin") == [("twin", True)]
    assert peers(*PAIR, "ha.password=secret") == [("ha", False)]


@pytest.mark.parametrize(("users", "key"), [(USER, "auth.users"), (CONTAINER, "auth.default_user")])
@pytest.mark.parametrize("said", [(), ("ha.password=ha",), ("ha.username=twin",)])
def test_a_pair_with_users_of_its_own_does_not_start_without_a_password_of_its_own(
    users: tuple[str, ...], key: str, said: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, (*users, *PAIR, *said))
    text = str(refused.value)
    assert text.startswith("ha.password") and f"is needed for a pair with {key}" in text
    assert "\n" not in text
    load(None, (*users, *PAIR, "ha.password=secret"))


def test_serve_refuses_it_with_exit_code_2_and_one_line(tmp_path: Path) -> None:
    words = [word for setting in (*USER, *PAIR) for word in ("--set", setting)]
    command = [sys.executable, "-m", "understudy", "serve", "--data-dir", str(tmp_path / "data"), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert "ha.password" in ended.stderr and not (tmp_path / "data").exists()


def test_a_broker_of_its_own_lets_nobody_open_the_link_by_the_default_words(tmp_path: Path) -> None:
    with serving(tmp_path, "--set", USER[0]) as broker:
        client = ClientConnection("ha", "ha", 0.0, capabilities={"understudy.ha-peer": True}, heartbeat=0)
        events: list[Any] = []
        with socket.create_connection(broker.amqp, timeout=30) as sock:
            while not events:
                sock.sendall(b"".join(client.take_output()))
                client.receive(sock.recv(65536), 0.0)
                events += client.events()
        assert isinstance(events[0], Closed) and events[0].code == 403
        broker.process.send_signal(signal.SIGTERM)


# -- epochs that nobody minted


def cluster(pair: Pair) -> str:
    return str(pair[0].running.core.cluster_id)


def record(pair: Pair, epoch: int, **but: Any) -> dict[str, Any]:
    """One that a stranger makes up."""
    made = {
        "cluster_id": cluster(pair), "epoch": epoch, "revision": 1, "owner": ["e" * 32, 1], "in_sync": [],
        "names": {"e" * 32: "liar"},
    }  # fmt: skip
    return made | but


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.up()
    pair.declare(pair[0], "q")
    return pair


def serves_on(pair: Pair, epoch: int, status: str = "active") -> None:
    a = pair[0]
    assert (a.status, a.running.core.epoch) == (status, epoch)
    assert a.running.core._lineage.seen < epoch + MOST_TERMS * EPOCH_STEP, "nor is its next epoch absurd"
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position), 1.0)


def refused(liar: Liar, log: list[str]) -> None:
    """Closed, and one line says why."""
    assert liar.closed is not None and liar.closed.code == 501
    [line] = [line for line in log if "tells of epoch" in line or "acknowledged epoch" in line]
    assert "\n" not in line


@pytest.mark.parametrize("epoch", [2**40, ABSURD, 2**61])
@pytest.mark.parametrize("shown", [True, False], ids=["with a record", "without"])
@pytest.mark.parametrize("serving_", [True, False], ids=["serving", "not serving"])
def test_an_absurd_epoch_ends_no_service(pair: Pair, epoch: int, shown: bool, serving_: bool) -> None:
    before = pair[0].running.core.epoch
    liar = Liar(pair, pair[0])
    made = record(pair, epoch) if shown else None
    liar.say(Method.HELLO, me(cluster_id=cluster(pair), epoch=epoch, record=made, serving=serving_))
    refused(liar, pair[0].log)
    serves_on(pair, before)


@pytest.mark.parametrize("field", ["seen", "position", "record"])
def test_an_absurd_epoch_is_refused_wherever_it_stands(pair: Pair, field: str) -> None:
    """Else the next promotion would mint an epoch that nobody can read."""
    before = pair[0].running.core.epoch
    told: dict[str, Any] = {"seen": ABSURD, "position": [ABSURD, 1], "record": record(pair, ABSURD)}
    liar = Liar(pair, pair[0])
    liar.say(Method.HELLO, me(cluster_id=cluster(pair), epoch=before, **{field: told[field]}))
    refused(liar, pair[0].log)
    serves_on(pair, before)


@pytest.mark.parametrize("of", ["nothing", "another cluster", "another epoch"])
def test_a_later_epoch_without_its_record_ends_no_service(pair: Pair, of: str) -> None:
    before = pair[0].running.core.epoch
    later = before + EPOCH_STEP
    made = {
        "nothing": None,
        "another cluster": record(pair, later, cluster_id="f" * 32),
        "another epoch": record(pair, before),
    }[of]
    liar = Liar(pair, pair[0])
    liar.say(Method.HELLO, me(cluster_id=cluster(pair), epoch=later, record=made, serving=True))
    refused(liar, pair[0].log)
    serves_on(pair, before)


@pytest.mark.parametrize("epoch", [ABSURD, 3 * EPOCH_STEP + 77])
def test_a_request_to_join_ends_no_service_and_asks_for_the_record(pair: Pair, epoch: int) -> None:
    before = pair[0].running.core.epoch
    liar = Liar(pair, pair[0])
    liar.say(Method.JOIN, me(cluster_id=cluster(pair), epoch=epoch))
    answer = liar.answer(Method.JOIN_OK)
    assert not answer["ok"] and f"the joining node claims epoch {epoch} without" in answer["reason"]
    assert liar.answer(Method.HELLO)["epoch"] == before
    liar.say(Method.HELLO_OK, me(cluster_id=cluster(pair), epoch=epoch))
    refused(liar, pair[0].log)
    serves_on(pair, before)


def test_an_acknowledgement_of_an_absurd_epoch_costs_the_link(pair: Pair) -> None:
    before = pair[0].running.core.epoch
    liar = Liar(pair, pair[0])
    liar.say(Method.JOIN, me(cluster_id=cluster(pair)))
    assert liar.answer(Method.JOIN_OK)["ok"]
    liar.say(Method.ACK, Ack(ORIGIN, ORIGIN, pair.now, 0, RecordVersion(ABSURD, 1), True).encode())
    assert "liar: acknowledged epoch" in "".join(pair[0].log)
    serves_on(pair, before)


@pytest.mark.parametrize("cluster_id", [None, "f" * 32])
@pytest.mark.parametrize("method", [Method.HELLO, Method.JOIN])
def test_whoever_does_not_know_the_cluster_ends_no_service(
    pair: Pair, cluster_id: str | None, method: Method
) -> None:
    before = pair[0].running.core.epoch
    liar = Liar(pair, pair[0])
    liar.say(method, me(cluster_id=cluster_id, epoch=before + EPOCH_STEP, serving=True))
    serves_on(pair, before)


@pytest.mark.parametrize("method", [Method.HELLO, Method.JOIN])
@pytest.mark.parametrize("epoch", [ABSURD, 2 * EPOCH_STEP + 77])
@pytest.mark.parametrize("former", [True, False], ids=["of a pair once", "never of a pair"])
def test_nobody_ends_the_service_of_a_broker_of_its_own(method: Method, epoch: int, former: bool) -> None:
    alone = Pair(1)
    alone.start()
    if former:
        alone[0].running.core._lineage.belong("c" * 32)
    alone.run(0.1)
    alone.declare(alone[0], "q")
    before = alone[0].running.core.epoch
    liar = Liar(alone, alone[0])
    known = alone[0].running.core.cluster_id
    shown = record(alone, epoch, cluster_id=known or "d" * 32)
    liar.say(method, me(cluster_id=known, epoch=epoch, record=shown, serving=True))
    assert alone[0].running.stopped is None
    serves_on(alone, before, "standalone")


@pytest.mark.parametrize("answers", [True, False], ids=["dialed", "dials"])
def test_a_real_successor_ends_the_service(answers: bool) -> None:
    """Two were promoted while nothing passed between them; by whichever way they meet, the earlier stops."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.separate(a, b, reset=True)
    pair.run(3)
    assert pair.ask(b, "promote", force_lossy=True, limit=30)["ok"]
    assert (a.status, b.status) == ("active", "active")
    later = b.running.core
    assert later.record is not None
    shown = InSyncRecord.as_json(later.record)
    told = me(
        node_id=b.running.me.node_id, name="b", number=b.number, incarnation=b.running.me.incarnation,
        cluster_id=cluster(pair), epoch=later.epoch, seen=later.epoch, record=shown, serving=True,
    )  # fmt: skip
    liar = Liar(pair, a)
    liar.say(Method.HELLO_OK if answers else Method.HELLO, told)
    assert a.status == "joining"
    assert f"stops serving: b knows of epoch {later.epoch}" in "".join(a.log)


def test_a_node_that_looks_for_its_primary_adopts_no_absurd_record(pair: Pair) -> None:
    a, b = pair.hosts
    pair.kill(a)
    pair.run(0.1)
    before = b.running.core.record
    liar = Liar(pair, b)
    liar.say(Method.HELLO, me(cluster_id=b.running.core.cluster_id, epoch=ABSURD, record=None))
    made = record_of(before, ABSURD)
    liar = Liar(pair, b)
    liar.say(Method.HELLO, me(cluster_id=b.running.core.cluster_id, epoch=ABSURD, record=made))
    assert b.running.core.record == before
    assert pair.ask(b, "promote")["ok"]
    assert before is not None and b.running.core.epoch < before.epoch + 2 * EPOCH_STEP


def record_of(known: InSyncRecord | None, epoch: int) -> dict[str, Any]:
    assert known is not None
    return known.as_json() | {"epoch": epoch}


def test_what_a_dialed_node_tells_is_said_once_and_stands_in_the_status(pair: Pair) -> None:
    """It was started without `ha.brokers`, say, and serves on its own in a later epoch."""
    a, b = pair.hosts
    before = a.running.core.epoch
    pair.kill(b)
    pair.run(3)
    b.settings["brokers"] = []
    pair.start(b)
    assert b.status == "standalone" and b.running.core.epoch > before
    pair.run(3)
    said = f"127.0.0.1:{b.port} is not believed: it tells of epoch {b.running.core.epoch} and does not show"
    assert len(a.told(codes.PEER_DOUBTED)) == 1 and said in a.told(codes.PEER_DOUBTED)[0]
    serves_on(pair, before)


def test_the_refusal_of_a_long_name_is_sent(pair: Pair) -> None:
    before = pair[0].running.core.epoch
    liar = Liar(pair, pair[0])
    liar.say(Method.HELLO, me(cluster_id=cluster(pair), name="\U0001f407" * 1000, epoch=ABSURD))
    refused(liar, pair[0].log)
    serves_on(pair, before)
