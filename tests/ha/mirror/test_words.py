"""What is refused when a queue is to be replicated, and what no follower may say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ha.core.mirror.wire import (
    MirrorMethod,
    Question,
)
from ha.core.wire.link import VERSION
from tests.bad_inputs.test_link import Liar
from tests.ha.mirror.mirrors import Mirrors, following


def refused(mirrors: Mirrors, **more: Any) -> str:
    asked = {"source": mirrors.addresses, "queue": "q"} | more
    answer = mirrors.ask(mirrors.b, "replicate", 20.0, **asked)
    assert not answer["ok"], answer
    assert "\n" not in answer["reason"]
    assert mirrors.b.running.peerings.status() == []
    return str(answer["reason"])


def test_a_senseless_request_is_refused_and_leaves_nothing_behind() -> None:
    mirrors = Mirrors(3)
    mirrors.begin()
    b = mirrors.b
    mirrors[0].running.vhost.declare_queue("mine", owner=mirrors, exclusive=True)
    assert "it has no queue 'nope'" in refused(mirrors, queue="nope")
    assert "exclusive to a connection" in refused(mirrors, queue="mine")
    assert "it does not serve (ready); a at 127.0.0.1:5000 does" in refused(
        mirrors, source=["127.0.0.1:5001"]
    )
    assert "it is this very broker" in refused(mirrors, source=[f"127.0.0.1:{b.port}"])
    assert "a queue's name has" in refused(mirrors, queue="")
    assert "a queue's name has" in refused(mirrors, name="")
    assert "reserved prefix" in refused(mirrors, name="amq.x")
    for wrong in (
        [],
        ["x"],
        ["h:0"],
        ["h:99999"],
        "h:1",
        ["h:1", "h:1"],
        None,
        [f"h:{n}" for n in range(1, 99)],
    ):
        assert "addresses HOST:PORT" in refused(mirrors, source=wrong)
    mirrors.declare(b, "q")
    assert "there is a queue 'q' here already" in refused(mirrors)
    assert list(b.running.vhost.queues) == ["q"]
    answer = mirrors.ask(mirrors[0], "replicate", source=["127.0.0.1:5002"], queue="q", name="z")
    assert answer["reason"] == "a belongs to a pair; only a broker of its own follows another's queue"
    answer = mirrors.ask(b, "replicate-stop", name="q")
    assert answer["reason"] == "there is no queue 'q' that follows another broker's"


def test_nobody_there_or_a_wrong_password() -> None:
    mirrors = Mirrors()
    mirrors.begin()
    mirrors.kill(mirrors[0])
    assert refused(mirrors) == "127.0.0.1:5000: nobody answers there"
    mirrors.start(mirrors[0])
    mirrors.kill(mirrors.b)
    mirrors.b.settings["password"] = "wrong"
    mirrors.start(mirrors.b)
    reason = refused(mirrors)
    assert "403 ACCESS_REFUSED" in reason
    assert reason.endswith(
        "(set ha.password, not its default, and ha.username to the same values there and here)"
    )
    assert not any("wrong" in line for line in mirrors.b.log)


def test_a_source_with_which_there_is_no_tls_is_not_taken_for_nobody() -> None:
    mirrors = Mirrors()
    mirrors.begin()
    b, answers = mirrors.b.running, []
    asked = {"source": mirrors.addresses, "queue": "q"}
    b.manage("replicate", asked, answers.append, mirrors.now)
    b.peerings.due(mirrors.now, at_once=True)
    (dial,) = b.wants_dials()
    b.dial_failed(dial.dial_id, "its certificate is not accepted: it is old", mirrors.now, distrusted=True)
    mirrors.until(lambda: bool(answers))
    assert (
        answers[0]["code"] == "mirror-refused" and "its certificate is not accepted" in answers[0]["reason"]
    )


def test_a_silent_source_is_given_up_by_who_asked() -> None:
    mirrors = Mirrors()
    mirrors.begin()
    mirrors[0].frozen = True
    assert refused(mirrors) == (
        "127.0.0.1:5000: somebody listens there, and is no broker that answers: "
        "the server did not finish the handshake in time; over a slow line, set ha.peering.handshake_timeout"
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server is a web server"),
        (b"AMQP\0\1\0\0", "the server speaks another version of the protocol"),
        (b"", "it closed the connection"),
    ],
)
def test_something_else_that_listens_there_is_not_taken_for_nobody(said: bytes, why: str) -> None:
    mirrors = Mirrors()
    mirrors.begin()
    b, answers = mirrors.b.running, []
    b.manage("replicate", {"source": mirrors.addresses, "queue": "q"}, answers.append, mirrors.now)
    b.peerings.due(mirrors.now, at_once=True)
    (dial,) = b.wants_dials()
    b.dialed(dial.dial_id, mirrors.now)
    b.dial_received(dial.dial_id, said, mirrors.now)
    b.dial_closed(dial.dial_id, True, mirrors.now)
    mirrors.until(lambda: bool(answers))
    sentence = f"127.0.0.1:5000: somebody listens there, and is no broker that answers: {why}"
    assert (answers[0]["ok"], answers[0]["reason"]) == (False, sentence)


def test_a_source_to_which_there_is_no_way_is_not_taken_for_nobody() -> None:
    mirrors = Mirrors()
    mirrors.begin()
    mirrors.separate(mirrors[0], mirrors.b)
    assert refused(mirrors) == "127.0.0.1:5000: no answer comes from there"


ASKED = Question("q", "", "n" * 32, "x", "").encode()
OFFERED = b"the queue's own"


@pytest.mark.parametrize(
    "words",
    [
        [(MirrorMethod.GO, b"u" * 16)],
        [(MirrorMethod.ASK, ASKED), (MirrorMethod.GO, b"short")],
        [(MirrorMethod.ASK, ASKED), (MirrorMethod.GO, b"u" * 16)],
        [(MirrorMethod.ASK, ASKED), (MirrorMethod.HAVE, b"\0\0\0\1"), (MirrorMethod.GO, OFFERED)],
        [(MirrorMethod.ASK, ASKED), (MirrorMethod.HAVE, bytes(5)), (MirrorMethod.GO, OFFERED)],
        [(MirrorMethod.ASK, b"{}")],
        [(MirrorMethod.ASK, b"\xff")],
        [(MirrorMethod.ASK, json.dumps({"queue": 1}).encode())],
        [(MirrorMethod.DATA, b"")],
        [(MirrorMethod.ANSWER, b"")],
    ],
)
def test_who_says_what_a_follower_may_not_is_closed_and_nobody_else(
    words: list[tuple[MirrorMethod, bytes]],
) -> None:
    mirrors = following()
    liar = Liar(mirrors, mirrors[0])
    uuid = mirrors[0].running.vhost.queues["q"].uuid
    for method, payload in words:
        liar.client.send_extension(method, uuid if payload is OFFERED else payload)
    liar.move()
    assert liar.closed is not None and liar.closed.code == 501
    mirrors.publish(mirrors[0], "q", "d")
    mirrors.follows(mirrors[0])


def test_a_follower_that_acknowledges_what_was_not_sent_is_closed() -> None:
    mirrors = following()
    liar = Liar(mirrors, mirrors[0])
    uuid = mirrors[0].running.vhost.queues["q"].uuid
    for method, payload in (
        (MirrorMethod.ASK, ASKED), (MirrorMethod.HAVE, bytes(4)), (MirrorMethod.GO, uuid),
        (MirrorMethod.ACK, (1 << 40).to_bytes(8, "big")),
    ):  # fmt: skip
        liar.client.send_extension(method, payload)
    liar.move()
    assert liar.closed is not None
    assert [line["follower"] for line in mirrors[0].running.status()["followers"]] == ["b"]


def test_a_source_that_was_deleted_between_the_answer_and_the_beginning() -> None:
    mirrors = following()
    liar = Liar(mirrors, mirrors[0])
    vhost = mirrors[0].running.vhost
    uuid = vhost.queues["q"].uuid
    liar.say(MirrorMethod.ASK, ASKED)
    vhost.delete_queue("q", owner=liar)
    liar.say(MirrorMethod.HAVE, bytes(4))
    liar.say(MirrorMethod.GO, uuid)
    assert liar.closed is None
    ended = [event for event in liar.seen if getattr(event, "method_id", 0) == MirrorMethod.ENDED]
    assert json.loads(ended[0].payload) == {"reason": "the queue is deleted"}


def test_nobody_of_its_cluster_and_no_other_version_is_fed() -> None:
    mirrors = following(3)
    a, other, _ = mirrors.hosts
    liar = Liar(mirrors, a)

    def refusal(**fields: Any) -> str:
        asked = {"node_id": "n" * 32, "name": "x", "cluster_id": ""} | fields
        liar.say(MirrorMethod.ASK, Question("q", "", **asked).encode())
        answer = liar.answer(MirrorMethod.ANSWER)
        assert not answer["ok"]
        return str(answer["reason"])

    sentence = "x belongs to its cluster, which replicates by itself"
    assert refusal(node_id=other.running.me.node_id) == sentence
    assert refusal(cluster_id=a.running.core.cluster_id) == sentence
    assert refusal(version=VERSION + 1) == f"its link version is {VERSION}, not {VERSION + 1}"


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "e" * 256, "ü" * 128])
def test_what_can_be_no_name_of_a_queue_here_is_refused(name: str) -> None:
    mirrors = Mirrors()
    mirrors.begin()
    assert "a queue's name has" in refused(mirrors, name=name)
    assert "a queue's name has" in refused(mirrors, queue=name, name="z")


@pytest.mark.parametrize("address", ["h" * 70_000 + ":1", "a\nb:1", "\ud800:1", "h:" + "1" * 5000])
def test_what_can_be_no_address_is_refused(address: str) -> None:
    mirrors = Mirrors()
    mirrors.begin()
    assert "addresses HOST:PORT" in refused(mirrors, source=[address])
