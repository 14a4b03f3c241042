"""A federated broker that says what cannot be: it costs its own connection or link, and no other's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker.amqp091.client import ExtensionReceived
from broker.model.history.record_codec import encode_record
from broker.model.history.records import Bind, EnqueueRun, Envelope, QueueDelete
from broker.model.queue.link import BY
from ha.adapter.federation.asking import LinkInterest
from ha.core.federation.heeding import Heeding
from ha.core.federation.wire import (
    FeederFrame,
    InterestFlag,
    LinkMethod,
    TakerFrame,
    encode_id,
    encode_serial,
    interest_head,
    on_stream,
)
from ha.core.wire.link import frame
from tests.bad_inputs.test_link import Liar
from tests.builds import PURE_ONLY
from tests.ha.federation.nets import Net, restore
from tests.ha.federation.test_hop import joined
from tests.ha.pair import raw

ASKED = {
    "node": "liar", "owner": "o" * 32, "name": "liar", "epoch": 1, "exchange": "x", "type": "topic",
    "agent": "x@hub", "limits": {}, "members": [], "drops": False,
    "uuid": "", "taken_epoch": 0, "taken": 0, "version": 1,
}  # fmt: skip
_COMMON = ("node", "owner", "name", "epoch", "exchange", "type", "agent", "version")
OFFERED = {key: ASKED[key] for key in _COMMON} | {"uuid": "ab" * 16, "echo": False}


class LinkLiar(Liar):
    """Logged in as a federated broker at the hub."""

    def __init__(self, net: Net) -> None:
        super().__init__(net, net.serving("hub"), "fed", "secret")

    def tell(self, method: LinkMethod, payload: bytes | dict[str, Any], stream: int = 1) -> None:
        body = json.dumps(payload).encode() if isinstance(payload, dict) else payload
        self.say(method, on_stream(stream) + body)

    def told(self, method: LinkMethod) -> list[dict[str, Any]]:
        found = [e for e in self.seen if isinstance(e, ExtensionReceived) and e.method_id == method]
        return [json.loads(e.payload[2:]) for e in found]


def interest(*records: Bind | QueueDelete, flags: int = 0, serial: int = 1) -> bytes:
    head = interest_head(serial, InterestFlag(flags))
    return b"".join(frame(TakerFrame.INTEREST, [head, *map(encode_record, records)]))


def bind(key: str = "k", path: object = ("liar",), **arguments: Any) -> Bind:
    named = {BY: list(path)} if isinstance(path, tuple) else {}
    return Bind("x", None, "", key, {**arguments, **named})


def runs(*raws: bytes, first: int = 1, path: tuple[str, ...] = ()) -> bytes:
    envelope = Envelope(9, "x", "a.b", persistent=True, wall_ms=1, channel=1, largest_frame=30, path=path)
    record = encode_record(EnqueueRun([b"q" * 16], [first], envelope, list(raws)))
    return b"".join(frame(FeederFrame.RUNS, [encode_serial(1), record]))


def goes_on(net: Net) -> None:
    """The honest link is as it was."""
    net.send("hub", "a.b", "z")
    net.until(lambda: net.content("leaf", "q").endswith("z"))


CUT = encode_record(bind())[:-2]
BROKEN: list[tuple[str, Callable[[LinkLiar], None]]] = [
    ("no stream", lambda liar: liar.say(LinkMethod.OPEN, b"\0")),
    ("no JSON", lambda liar: liar.tell(LinkMethod.OPEN, b"{")),
    ("a field is missing", lambda liar: liar.tell(LinkMethod.OPEN, {"node": "liar"})),
    ("a node with an @", lambda liar: liar.tell(LinkMethod.OPEN, ASKED | {"node": "a@b"})),
    ("an epoch of no kind", lambda liar: liar.tell(LinkMethod.OPEN, ASKED | {"epoch": -1})),
    ("an offer without a uuid", lambda liar: liar.tell(LinkMethod.OFFER, OFFERED | {"uuid": "ab"})),
]
OPEN: list[tuple[str, Callable[[LinkLiar], None]]] = [
    ("the same stream twice", lambda liar: liar.tell(LinkMethod.OPEN, ASKED)),
    ("a frame above 1 MiB", lambda liar: liar.tell(LinkMethod.DATA, b"\x7f\xff\xff\xff\1")),
    ("a frame of no type", lambda liar: liar.tell(LinkMethod.DATA, b"\0\0\0\0\x63")),
    ("nodes to withhold that are none", lambda liar: liar.tell(
        LinkMethod.DATA, b"".join(frame(TakerFrame.WITHHOLD, [b'{"nodes":1}']))
    )),
    ("an interest cut short", lambda liar: liar.tell(
        LinkMethod.DATA, b"".join(frame(TakerFrame.INTEREST, [interest_head(1, InterestFlag(0)), CUT])))),
    ("an interest without a path", lambda liar: liar.tell(LinkMethod.DATA, interest(bind(path=None)))),
    ("an interest that is no binding", lambda liar: liar.tell(
        LinkMethod.DATA, interest(QueueDelete(b"q" * 16, "q")))),
    ("taken, and never sent", lambda liar: liar.tell(
        LinkMethod.DATA, b"".join(frame(TakerFrame.TOOK, [encode_id((2**40, 1))])))),
]  # fmt: skip
GIVEN: list[tuple[str, bytes]] = [
    ("messages of what is no node", runs(raw("a"), path=("a@b",))),
    ("messages through too many nodes", runs(raw("a"), path=("n",) * 33)),
    ("a record that is no message", b"".join(
        frame(FeederFrame.RUNS, [encode_serial(1), encode_record(QueueDelete(b"q" * 16, "q"))]))),
    ("a run cut short", b"".join(frame(FeederFrame.RUNS, [encode_serial(1), CUT]))),
]  # fmt: skip


@pytest.mark.parametrize("said", [each[1] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_what_cannot_be_read_closes_that_connection(said: Callable[[LinkLiar], None]) -> None:
    net = joined()
    liar = LinkLiar(net)
    said(liar)
    assert liar.closed is not None and liar.closed.code == 501
    goes_on(net)


@pytest.mark.parametrize("said", [each[1] for each in OPEN], ids=[each[0] for each in OPEN])
def test_a_taker_that_lies_loses_its_connection(said: Callable[[LinkLiar], None]) -> None:
    net = joined()
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OPEN, ASKED)
    assert liar.told(LinkMethod.OPENED) and liar.closed is None
    said(liar)
    assert liar.closed is not None and liar.closed.code == 501
    goes_on(net)


@pytest.mark.parametrize("payload", [each[1] for each in GIVEN], ids=[each[0] for each in GIVEN])
def test_a_giver_that_lies_loses_its_connection(payload: bytes) -> None:
    net = joined()
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OFFER, OFFERED)
    assert liar.told(LinkMethod.ACCEPTED) and liar.closed is None
    liar.tell(LinkMethod.DATA, payload)
    assert liar.closed is not None and liar.closed.code == 501
    goes_on(net)


def test_an_unreadable_message_is_left_out_and_the_link_goes_on() -> None:
    net = joined()
    net.queue("hub", "all", "#")
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OFFER, OFFERED)
    liar.tell(LinkMethod.DATA, runs(b"\2\0\1\0\0\0\1?\xce", raw("b")))
    liar.tell(LinkMethod.DATA, runs(raw("b"), raw("c"), first=2))
    assert liar.closed is None and net.content("hub", "all") == "bc"


def test_a_message_that_has_been_here_is_not_taken_again() -> None:
    net = joined()
    net.queue("hub", "all", "#")
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OFFER, OFFERED)
    liar.tell(LinkMethod.DATA, runs(raw("a"), path=("hub", "far")))
    assert liar.closed is None and net.content("hub", "all") == ""


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"exchange": "amq.failover"}, "it has no exchange"),
        ({"exchange": ""}, "it has no exchange"),
        ({"exchange": "nowhere"}, "declare it there"),
        ({"type": "headers"}, "of type topic, not headers"),
        ({"node": "hub"}, "each node needs a name of its own"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_in_a_sentence(asked: dict[str, str], said: str) -> None:
    net = joined()
    for method, document in ((LinkMethod.OPEN, ASKED), (LinkMethod.OFFER, OFFERED)):
        liar = LinkLiar(net)
        liar.tell(method, document | asked)
        assert liar.closed is None
        [refusal] = liar.told(LinkMethod.REFUSED)
        assert said in refusal["reason"] and refusal["patient"]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (bind(path=tuple(f"n{n}" for n in range(33))), "32 are the most"),
        (bind(**{"x-match": "some"}), ""),
    ],
)
def test_an_interest_that_no_binding_may_have_ends_that_link_alone(record: Bind, said: str) -> None:
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("hub", kind="headers")
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OPEN, ASKED | {"type": "headers"})
    liar.tell(LinkMethod.DATA, interest(record))
    assert liar.closed is None
    [stop] = liar.told(LinkMethod.STOP)
    assert said in stop["reason"] and stop["patient"]


def test_a_federated_broker_may_use_nothing_but_its_links() -> None:
    for method in (10, 13, 40, 50, 52):
        liar = LinkLiar(joined())
        liar.say(method, b"{}")
        assert liar.closed is not None and liar.closed.code == 403


# -- 51: what is wanted, told with serials and digests that cannot be right


def test_serials_that_come_twice_or_with_a_gap_cost_nobody_anything() -> None:
    net = joined()
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OPEN, ASKED)
    for serial, key in ((1, "k.1"), (1, "k.2"), (9, "k.3"), (3, "k.4")):
        liar.tell(LinkMethod.DATA, interest(bind(key), serial=serial))
    assert liar.closed is None
    queue = net.serving("hub").running.vhost.queues["amq.link.x@liar"]
    keys = {binding.routing_key for binding in net.serving("hub").running.vhost.bound_to(queue)}
    assert keys == {"k.1", "k.2", "k.3", "k.4"}
    goes_on(net)


@PURE_ONLY
def test_an_upstream_that_confirms_what_it_was_never_told_loses_that_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = joined(hub=1, leaf=1)
    go_on = Heeding.go_on

    def lies(self: Heeding, most: int) -> tuple[int, int]:
        applied, whole = go_on(self, most)
        return applied, whole + 7 if whole else 0

    monkeypatch.setattr(Heeding, "go_on", lies)
    net.queue("leaf", "more", "b")
    net.until(lambda: net.line("leaf", "hub")["state"] == "connecting")
    monkeypatch.setattr(Heeding, "go_on", go_on)
    net.runs("leaf", "hub")
    net.send("hub", "b", "1")
    net.gets("leaf", "more", "1")
    goes_on(net)


def test_a_digest_that_lies_is_answered_with_all_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    net = joined()
    net.separate(*net.hosts, reset=True)
    net.run(0.5)
    with monkeypatch.context() as patch:
        patch.setattr(LinkInterest, "digest", property(lambda self: "f" * 64))
        net.heal()
        net.runs("leaf", "hub")
    goes_on(net)


# -- 52: messages that nobody asked for


def test_messages_for_which_nobody_asked_go_nowhere_and_are_counted() -> None:
    net = joined()
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OFFER, OFFERED)
    before = net.serving("hub").running.vhost.queues.keys()
    liar.tell(LinkMethod.DATA, runs(raw("a"), raw("b")))
    assert liar.closed is None and net.serving("hub").running.vhost.queues.keys() == before
    assert net.content("leaf", "q") == "ab"  # it wants these, and got them by the hub
    vhost = net.serving("leaf").running.vhost
    vhost.unbind_queue("q", "x", "a.*", owner=net)
    liar.tell(LinkMethod.DATA, runs(raw("c"), first=3))
    net.run(0.3)
    assert liar.closed is None and net.content("leaf", "q") == "ab"


# -- 53: cursors


@pytest.mark.parametrize(
    ("uuid", "epoch", "closes"),
    [("", 0, False), ("ff" * 16, 2**40, False), ("its own", 0, False), ("its own", 2**40, True)],
    ids=["none", "of another queue", "behind", "ahead"],
)
def test_a_cursor_that_is_behind_gets_what_waits_and_one_that_is_ahead_loses_its_connection(
    uuid: str, epoch: int, closes: bool
) -> None:
    net = joined()
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OPEN, ASKED)
    [opened] = liar.told(LinkMethod.OPENED)
    liar.tell(LinkMethod.DATA, interest(bind("k")))
    net.send("hub", "k", "123")
    liar.tell(LinkMethod.STOP, {"reason": "", "delete": False})
    assert net.waiting("hub", "liar") == 3
    again = LinkLiar(net)
    named = {"uuid": opened["uuid"] if uuid == "its own" else uuid}
    again.tell(LinkMethod.OPEN, ASKED | named | {"taken_epoch": epoch, "taken": 1})
    if closes:
        assert again.closed is not None and again.closed.code == 501
    else:
        assert again.closed is None and again.told(LinkMethod.OPENED)
    assert net.waiting("hub", "liar") == 3
    goes_on(net)


# -- 54: another broker at the address of an upstream


@pytest.mark.parametrize("name", ["hub", "other"])
def test_another_broker_at_the_address_of_an_upstream_is_taken_from_anew(name: str) -> None:
    net = joined()
    net.send("hub", "a.b", "1")
    net.gets("leaf", "q", "1")
    host = net.serving("hub")
    net.kill(host)
    restore(host, {}, 0, "f" * 32)
    federation = host.settings["federation"]
    host.settings = {"federation": type(federation)(name, federation.logins, federation.addresses)}
    net.start(host)
    net.until(lambda: "it has no exchange 'x'" in net.line("leaf", "hub")["reason"])
    net.exchange("hub")
    net.runs("leaf", "hub")
    net.send("hub", "a.b", "2")
    net.gets("leaf", "q", "12")
