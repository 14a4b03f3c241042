"""The handshake of an AMQP 1.0 client, heartbeats, and all ways in which a connection ends."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from proton import Delivery, Event, Message

from broker.hooks import Applicant, Hold, Hooks, Refusal
from broker.peer import Peer
from broker.security.access import Door
from tests.broker.amqp091.wire import ManualGate, World
from tests.broker.amqp10.wire import Octets, Talker, detached, world10
from tests.broker.stored import permission, user
from tests.tls import Authority
from understudy.shared.amqp10.framing import AMQP_HEADER, SASL_HEADER
from understudy.shared.amqp10.sasl import AUTH, OK, frame, mechanisms, outcome


class Gatekeeper(Hooks):
    """Hooks that answer as told."""

    answer: Refusal | Hold | None = None

    def connection_opening(self, connection: Applicant, *, management: bool) -> Refusal | Hold | None:
        return self.answer


def sent_on(talker: Talker) -> bool:
    """The connection ends without a reason, so the client assumes that the broker died."""
    return talker.connection.wants_close and talker.refused is None


def test_a_client_is_accepted_and_learns_the_server_properties() -> None:
    talker = Talker(world10(name="left"))
    assert talker.connection.running
    assert talker.engine.remote_container == "left"
    told = {str(key): value for key, value in talker.engine.remote_properties.items()}
    assert told["product"] == "Understudy"
    assert list(talker.engine.remote_offered_capabilities) == ["ANONYMOUS-RELAY"]


def test_without_the_engine_a_client_of_1_0_gets_the_header_of_0_9_1() -> None:
    world = World()
    client = Octets(world)
    client.raw(SASL_HEADER)
    assert client.take() == b"AMQP\0\0\x09\x01"
    assert client.closed
    assert "header of AMQP 1.0, which this broker or listener does not speak" in world.logged[-1]


def test_a_wrong_password_fails_in_sasl_and_is_never_logged() -> None:
    world = world10()
    talker = Talker(world, password="sesame")
    assert talker.connection.wants_close
    assert talker.transport.condition is not None
    assert talker.transport.condition.name == "amqp:unauthorized-access"
    assert any("login refused for user 'guest'" in line for line in world.logged)
    assert not any("sesame" in line for line in world.logged)


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_a_certificate_names_the_user(tmp_path: Path, name: str) -> None:
    pem = Path(Authority(tmp_path).signed("client", common_name=name).certificate).read_bytes()
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    world = world10(external="common_name")
    world.vhost.shared.change_directory([user(), permission()])
    client = Octets(world, Peer("10.0.0.9", 40000, loopback=False, tls=True, shown=lambda: der))
    client.raw(SASL_HEADER)
    offered = client.take()
    assert offered == SASL_HEADER + mechanisms(("PLAIN", "EXTERNAL")) and offered.endswith(b"\x08EXTERNAL")
    client.raw(frame(b"\x00\x53\x41\xc0\x0b\x01\xa3\x08EXTERNAL"))
    assert client.take() == outcome(OK if name == "alice" else AUTH)
    assert client.connection.user == ("alice" if name == "alice" else "")


def test_the_pairs_own_user_is_no_application() -> None:
    talker = Talker(world10(), user="ha", password="ha")
    assert talker.refused is not None and talker.refused[0] == "amqp:unauthorized-access"


def test_a_listener_for_peers_speaks_no_1_0() -> None:
    world = world10()
    client = Octets(world, Peer("127.0.0.1", 40000, loopback=True, door=Door.PEERS))
    client.raw(SASL_HEADER)
    assert client.take() == b"AMQP\0\0\x09\x01"


def test_a_backup_sends_clients_on() -> None:
    keeper = Gatekeeper()
    keeper.answer = Refusal(320, "CONNECTION_FORCED - this broker is a backup, the primary is right:5672")
    world = world10(keeper)
    talker = Talker(world)
    assert sent_on(talker)
    assert not talker.heard(Event.CONNECTION_REMOTE_OPEN)
    assert any("the primary is right:5672" in line for line in world.logged)


def test_an_unknown_user_on_a_backup_is_sent_on_too() -> None:
    world = world10()
    world.vhost.shared.serving = False
    assert sent_on(Talker(world, user="shop", password="shop"))


def test_a_held_client_continues_with_its_earlier_input() -> None:
    keeper = Gatekeeper()
    keeper.answer = Hold.HOLD
    world = world10(keeper)
    world.open  # noqa: B018
    talker = Talker(world, open_=False)
    talker.engine.open()
    talker.session.open()
    link = talker.session.receiver("in")
    link.source.dynamic = True
    link.open()
    talker.turn()
    assert not talker.heard(Event.CONNECTION_REMOTE_OPEN)
    keeper.answer = None
    world.pass_time(0.2)
    talker.turn()
    assert talker.heard(Event.CONNECTION_REMOTE_OPEN)
    assert link.remote_source.address.startswith("/queues/")


def test_a_client_held_too_long_is_sent_on() -> None:
    keeper = Gatekeeper()
    keeper.answer = Hold.HOLD
    world = world10(keeper)
    talker = Talker(world)
    world.pass_time(10.1)
    talker.turn()
    assert sent_on(talker)


@pytest.mark.parametrize("said", [b"", SASL_HEADER[:5], SASL_HEADER])
def test_a_handshake_has_ten_seconds(said: bytes) -> None:
    world = world10()
    client = Octets(world)
    if said:
        client.raw(said)
    world.pass_time(9.9)
    assert not client.closed
    world.pass_time(0.2)
    assert client.closed
    assert any("handshake not finished in time" in line for line in world.logged)


def test_the_hostname_names_the_virtual_host() -> None:
    world = world10()
    assert Talker(world, hostname="mail.example.net").connection.vhost.name == "/"
    assert Talker(world, hostname="vhost:/").connection.vhost.name == "/"
    refused = Talker(world, hostname="vhost:shop").refused
    assert refused == ("amqp:not-allowed", "vhost 'shop' not found")


EMPTY = b"\0\0\0\x08\x02\0\0\0"


def test_a_silent_client_is_given_up_and_a_living_one_is_not() -> None:
    world = world10(heartbeat=5)
    silent, living = Talker(world), Talker(world)
    assert living.transport.remote_idle_timeout == 5
    for _ in range(10):
        world.pass_time(2)
        living.raw(b"\0\0\0\x08\x02\0\0\0")
    assert silent.connection.wants_close and not living.connection.wants_close
    assert any("no sign of life for 10 s" in line for line in world.logged)


def test_a_client_that_stands_still_on_much_unread_output_is_given_up() -> None:
    """It is not served, but its input is noticed, up to a limit: its silence counts."""
    world = world10(heartbeat=5, unsent_max=10_000)
    still, living = Talker(world), Talker(world)
    for talker in (still, living):
        talker.connection.writable(False)
        talker.connection.written(100_000)
        talker.raw(EMPTY)
    for _ in range(6):
        world.pass_time(2)
        living.raw(EMPTY)
    assert still.connection.wants_close
    assert not living.connection.wants_close and not living.connection.paused_reading
    living.raw(EMPTY * 20_000)
    assert living.connection.paused_reading


def test_a_client_gets_the_signs_of_life_that_it_wants() -> None:
    world = world10(heartbeat=0)
    talker = Talker(world, idle=8.0)
    talker.take()
    world.pass_time(2.1)
    assert talker.take() == b"\0\0\0\x08\x02\0\0\0"
    world.pass_time(2.1)
    assert talker.take() == b"\0\0\0\x08\x02\0\0\0"
    talker.connection.written(500_000)  # not all of a write was taken at once
    world.pass_time(2.1)
    assert talker.take() == b"\0\0\0\x08\x02\0\0\0"
    hasty = Talker(world, idle=0.01)
    assert hasty.refused is not None and hasty.refused[0] == "amqp:not-allowed"


def test_a_broker_that_takes_leave_ends_the_connection_without_a_close() -> None:
    """After a close frame, Proton's Python clients would stop reading and never notice the end."""
    world = world10()
    talker = Talker(world)
    world.broker.close_connections(320, "CONNECTION_FORCED - this broker is a backup now", world.now)
    talker.turn()
    assert sent_on(talker)


def test_a_fault_is_sent_and_its_answer_awaited() -> None:
    world = world10()
    polite, deaf = Talker(world), Talker(world)
    for each in (polite, deaf):
        each.connection.close(530, "NOT_ALLOWED - enough")
        each.turn()
    assert polite.refused == ("amqp:not-allowed", "NOT_ALLOWED - enough")
    polite.engine.close()
    polite.turn()
    assert polite.connection.wants_close and not deaf.connection.wants_close
    world.pass_time(3.1)
    assert deaf.connection.wants_close


def test_a_client_takes_leave() -> None:
    world = world10()
    talker = Talker(world)
    talker.receiver(None)
    talker.engine.close()
    talker.turn()
    assert talker.heard(Event.CONNECTION_REMOTE_CLOSE)
    assert talker.refused is None
    assert talker.connection.wants_close
    assert not world.vhost.queues


def test_a_half_close_ends_it() -> None:
    world = world10()
    talker = Talker(world)
    talker.receiver(None)
    talker.connection.eof(world.now)
    world.tick()
    assert talker.connection.wants_close
    assert not world.vhost.queues


def test_a_deleted_virtual_host_takes_its_clients_along() -> None:
    world = world10()
    talker = Talker(world)
    world.broker._close_clients_of(world.vhost)
    talker.turn()
    assert sent_on(talker)


def test_dropped_fenced_output_is_never_sent() -> None:
    """A suspended primary wakes: neither outcomes nor deliveries may leave before it knows its role."""
    world = world10()
    world.open().call(1, "queue.declare", queue="q")
    talker = Talker(world)
    link = talker.sender("q")
    talker.receiver("q", credit=10)
    world.broker.fence_output()
    (delivery,) = talker.send(link, Message(body=b"1"))
    assert not delivery.settled
    assert talker.take() == b""
    world.broker.drop_fenced_output()
    world.broker.close_connections(320, "CONNECTION_FORCED - this broker is a backup now", world.now)
    talker.turn()
    assert not delivery.settled and delivery.remote_state == 0
    assert not talker.heard(Event.DELIVERY)
    assert sent_on(talker)


def test_a_temporary_queue_does_not_end_while_output_is_withheld() -> None:
    """Its client may have left because this node was suspended and is not the primary any more."""
    world = world10()
    talker = Talker(world)
    talker.receiver(None)
    world.broker.fence_output()
    talker.connection.lost(world.now)
    world.tick()
    assert world.vhost.queues
    world.broker.resume_output()
    world.tick()
    assert not world.vhost.queues


def test_fenced_output_is_sent_when_output_resumes() -> None:
    world = world10()
    world.open().call(1, "queue.declare", queue="q")
    talker = Talker(world)
    link = talker.sender("q")
    world.broker.fence_output()
    (delivery,) = talker.send(link, Message(body=b"1"))
    assert not delivery.settled
    world.broker.resume_output()
    talker.turn()
    assert delivery.remote_state == Delivery.ACCEPTED


def test_outcomes_that_are_held_when_it_ends_are_never_said() -> None:
    world = world10()
    world.open().call(1, "queue.declare", queue="q", durable=True)
    gate = ManualGate()
    world.broker.gates.append(gate)
    talker = Talker(world)
    (delivery,) = talker.send(talker.sender("q"), Message(body=b"1", durable=True))
    world.broker.close_connections(320, "CONNECTION_FORCED - demoted", world.now)
    gate.applied = gate.durable = world.vhost.history.position
    talker.turn()
    assert delivery.remote_state == 0
    assert not world.broker.holding


def test_receivers_do_not_wait_for_outcomes_of_their_connections_sends() -> None:
    """Outcomes may take as long as a backup is away."""
    world = world10()
    world.open().call(1, "queue.declare", queue="q", durable=True)
    gate = ManualGate()
    world.broker.gates.append(gate)
    talker = Talker(world)
    (delivery,) = talker.send(talker.sender("q"), Message(body=b"1", durable=True))
    link = talker.receiver("q")
    assert link.remote_source.address == "q"
    link.drain(5)
    talker.turn()
    ((_, message),) = talker.received(link)
    assert bytes(message.body) == b"1"
    assert link.credit == 0 and not link.draining()
    assert not delivery.settled


def test_two_protocols_at_one_door() -> None:
    world = world10()
    old = world.open()
    old.call(1, "queue.declare", queue="q")
    new = Talker(world)
    link = new.receiver("q", credit=2)
    old.publish(1, b"hello", routing_key="q")
    new.turn()
    ((_, message),) = new.received(link)
    assert bytes(message.body) == b"hello"
    assert detached(link) is None
    assert len(world.broker.connections) == 2


def test_headers_may_come_octet_by_octet() -> None:
    world = world10()
    client = Octets(world)
    for octet in SASL_HEADER:
        client.raw(bytes([octet]))
    assert client.take().startswith(SASL_HEADER)


def test_amqp_before_sasl_is_answered_with_the_sasl_header() -> None:
    world = world10()
    client = Octets(world)
    client.raw(AMQP_HEADER)
    assert client.take() == SASL_HEADER
    assert client.closed
