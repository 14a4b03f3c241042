"""The pair's side: what is asked is answered, whatever becomes of the witness."""

from __future__ import annotations

import pytest

from broker.amqp091.server.handshake import MANAGEMENT_CAPABILITY, PEER_CAPABILITY
from ha.adapter.witness import codes
from tests.bad_inputs.test_link import Liar
from tests.ha.witness.witnessed import LEASE, NAME, PASSWORD, Witnessed


def test_two_nodes_share_one_record_and_a_lease() -> None:
    pair = Witnessed()
    pair.whole()
    for host in (pair.a, pair.b):
        at = f"127.0.0.1:{pair.w.port}"
        assert pair.authority(host) == {
            "kind": "pair", "ok": True, "code": "witness-answers", "reason": f"the witness answers at {at}",
        }  # fmt: skip
        peerings = {line["of"]: line for line in host.running.status()["peerings"]}
        assert (peerings["witness"]["address"], peerings["witness"]["state"]) == (at, "open")
    assert pair.w.running.status()["witness_for"][NAME]["owner"] == "a"


def test_a_primary_that_is_cut_off_is_followed_once_its_lease_has_run_out() -> None:
    pair = Witnessed()
    pair.whole()
    cut_at = pair.now
    pair.separate(pair.a, pair.b)
    pair.separate(pair.a, pair.w)
    pair.until(lambda: pair.b.status == "active")
    assert LEASE - 2.0 < pair.now - cut_at < LEASE + 0.5
    assert pair.a.running.core.output_fenced
    assert pair.authority(pair.a)["code"] == "witness-unreachable"
    pair.heal()
    pair.until(lambda: pair.a.status == "ready")


def test_a_primary_that_stops_gives_its_lease_back() -> None:
    pair = Witnessed()
    pair.whole()
    pair.a.running.stop(pair.now)
    pair.run(0.05)
    pair.kill(pair.a)
    stopped_at = pair.now
    pair.until(lambda: pair.b.status == "active")
    assert pair.now - stopped_at < 1.0


def test_a_pair_goes_on_without_its_witness_and_finds_it_again() -> None:
    pair = Witnessed()
    pair.whole()
    pair.kill(pair.w)
    pair.run(3 * LEASE)
    assert (pair.a.status, pair.b.status) == ("active", "ready")
    told = f"the witness at 127.0.0.1:{pair.w.port} is not reached: connection refused"
    assert pair.authority(pair.b)["reason"] == told
    assert len([line for line in pair.a.told(codes.UNREACHABLE) if told in line]) == 1
    pair.start(pair.w)
    pair.until(lambda: pair.authority(pair.a)["ok"] and pair.authority(pair.b)["ok"])
    assert pair.w.running.status()["witness_for"][NAME]["owner"] == "a"


def test_a_witness_that_does_not_answer_leaves_no_request_open() -> None:
    """Its process is stopped: the connection stays, and nothing comes."""
    pair = Witnessed()
    pair.whole()
    pair.w.frozen = True
    pair.kill(pair.a)
    pair.run(3.0)
    assert pair.b.status != "active"
    assert pair.authority(pair.b)["reason"].endswith("is not reached: no answer within 1 s")
    pair.w.frozen = False
    pair.until(lambda: pair.b.status == "active")


CORRECT = "correct ha.witness_name here (one of ha.witness_for there)"
LOGIN = (
    f"login refused with 403; {CORRECT}, or ha.witness_password; from another machine it may also want TLS"
)


@pytest.mark.parametrize(
    ("name", "password", "why"),
    [
        (NAME, "wrong", LOGIN),
        ("nobody", PASSWORD, LOGIN),
        ("guest", "guest", f"'guest' is no pair there; {CORRECT}"),
        ("boss", "guest", f"'boss' is no pair there; {CORRECT}"),
    ],
)
def test_who_may_not_ask_is_told_which_settings_to_correct(name: str, password: str, why: str) -> None:
    pair = Witnessed(name=name, password=password)
    pair.start()
    pair.run(4.0)
    assert pair.a.status == "joining"
    found = pair.authority(pair.a)
    assert found["code"] == "witness-refused"
    at = f"127.0.0.1:{pair.w.port}"
    assert found["reason"].startswith(f"the witness at {at} refuses this node: {why}")
    assert "wrong" not in found["reason"]


def test_a_pair_may_do_nothing_else_at_its_witness() -> None:
    pair = Witnessed()
    pair.whole()
    for claim in ("", PEER_CAPABILITY):
        with pytest.raises(AssertionError, match="code=403"):
            Liar(pair, pair.w, NAME, PASSWORD, claim=claim)
    for method in (10, 40, 50):
        liar = Liar(pair, pair.w, NAME, PASSWORD, claim=MANAGEMENT_CAPABILITY)
        liar.say(method, {})
        assert liar.closed is not None and liar.closed.code == 403


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"", "it closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a web server answers there; ha.witness must be"),
        (b"AMQP\x03\x01\x00\x00", "what answers there does not speak AMQP 0-9-1"),
        (b"\x00" * 100, "what answers there does not speak AMQP 0-9-1"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "it speaks TLS (amqps://HOST:PORT)"),
        (None, "it takes connections and says nothing: it hangs, or is no broker"),
    ],
    ids=["closes", "HTTP", "AMQP 1.0", "zeros", "TLS", "silent"],
)
def test_what_is_no_witness_is_named(answer: bytes | None, cause: str) -> None:
    pair = Witnessed()
    pair.start(pair.a)
    node = pair.a.running
    node.peerings.due(pair.now, at_once=True)
    (dial,) = [dial for dial in node.wants_dials() if dial.port == pair.w.port]
    node.dialed(dial.dial_id, pair.now)
    if answer:
        node.dial_received(dial.dial_id, answer, pair.now)
    elif answer is not None:
        node.dial_closed(dial.dial_id, True, pair.now)
    node.timers(pair.now + 2.0)
    node.end_tick(pair.now + 2.0, pair.wall)
    assert cause in pair.authority(pair.a)["reason"]


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b"[]", b"\xff", b'{"id": 1, "outcome": "maybe"}', b'{"id": 1, "outcome": "done"'],
)  # fmt: skip
def test_an_answer_that_is_none_costs_the_connection(answer: bytes) -> None:
    pair = Witnessed()
    pair.whole()
    asker = next(peer for peer in pair.w.running.hooks.peers.values() if peer.user == NAME)
    asker.send_extension(1, 53, answer)
    pair.run(0.05)
    told = f"the witness at 127.0.0.1:{pair.w.port} is not reached: it does not answer as a witness"
    assert told in "".join(pair.a.told(codes.UNREACHABLE) + pair.b.told(codes.UNREACHABLE))
    pair.until(lambda: pair.authority(pair.a)["ok"] and pair.authority(pair.b)["ok"])
    assert (pair.a.status, pair.b.status) == ("active", "ready")


def test_a_witness_whose_disk_fails_says_so() -> None:
    pair = Witnessed()
    pair.whole()
    pair.w.disk.failing["sync"] = 5
    pair.kill(pair.b)
    pair.run(4.0)
    assert pair.a.told(codes.CANNOT_ANSWER)
    pair.w.disk.failing.clear()
    pair.until(lambda: pair.authority(pair.a)["ok"])
