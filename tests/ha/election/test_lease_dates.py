"""What the leadership lease dates from: acknowledgements, rounds of hellos, and nothing else."""

from __future__ import annotations

import pytest

from broker.model.values import ORIGIN
from ha.core.election.peers import PeerAddress, Peers
from ha.core.errors import LinkError
from ha.core.primary.remote_backup import RemoteBackup
from ha.core.record.authority import PeerAnswer
from ha.core.record.in_sync_record import Incarnation
from ha.core.record.lease import HelloRound, Lease
from tests.ha.election.test_lease import up


def test_a_lease_ends_at_the_instant_and_may_be_shortened() -> None:
    lease = Lease(3.0, 10.0)
    assert not lease.change(12.999) and not lease.expired
    assert lease.change(13.0) and lease.expired
    assert not lease.change(13.1)
    lease.renewed(11.0)
    assert lease.change(13.1) and not lease.expired
    lease.renewed(9.0)
    assert lease.change(13.1) and lease.expired


def test_a_round_is_done_when_all_answered_failed_or_had_their_time() -> None:
    silent, gone, here = PeerAddress("s", peer=1), PeerAddress("g"), PeerAddress("h", peer=2)
    hellos = HelloRound(10.0, 10.5)
    assert not hellos.done([silent, gone, here], 10.1)
    gone.failed_at, here.answered_at = 10.2, 10.2
    assert hellos.done([gone, here], 10.2) and not hellos.done([silent, gone, here], 10.2)
    assert hellos.done([silent, gone, here], 10.5)


def test_an_answer_to_an_earlier_question_never_counts_for_a_later_one() -> None:
    peers = Peers(["h"])
    answer = PeerAnswer("b", "b", 1, "joining", False, 0, ORIGIN, None)
    entry = peers.by_address["h"]
    peers.opened(1, "h")
    peers.ask_anew()
    before = peers.question
    peers.answered("h", answer, before, 10.0)
    assert entry.heard_since(10.0)
    peers.ask_anew()
    assert not entry.heard_since(10.0), "it came in the tick in which the next was asked"
    peers.answered("h", answer, before, 10.0)
    assert not entry.heard_since(10.0)
    peers.answered("h", answer, peers.question, 10.0)
    assert entry.heard_since(10.0)


def test_a_commit_that_is_ones_own_copy_proves_nothing() -> None:
    pair = up()
    a, b = pair.hosts
    keeper = a.running.core.keeper
    pair.separate(a, b, reset=True)
    before = keeper.owned_at
    primary = a.running.core.primary
    assert primary is not None
    primary.met(Incarnation(b.running.me.node_id, 99), pair.now + 1.0)
    assert a.running.core.record is not None and not a.running.core.record.in_sync
    assert keeper.owned_at == before


def test_what_the_authority_proves_ends_where_a_member_has_linked() -> None:
    """From then on the member may count on its own last acknowledgement, and so must the primary."""
    backup = RemoteBackup(Incarnation("b", 1), "b", None, 10.0)
    assert backup.lease_from is None
    backup.linked(7, 9.5)
    backup.admitted(9.0)
    assert backup.lease_from == 9.0
    backup.echoed(10.5, 11.0)
    backup.echoed(10.0, 11.0)
    assert backup.lease_from == 10.5
    with pytest.raises(LinkError):
        backup.echoed(11.5, 11.0)


def test_an_echo_of_another_primary_is_no_echo() -> None:
    """Clocks of two machines have nothing to do with each other."""
    pair = up()
    a, b = pair.hosts
    backup = b.running.core.backup
    assert backup is not None
    pair.separate(a, b, reset=True)
    pair.run(0.05)
    backup._echo = 10.0**9
    pair.heal()
    pair.until(lambda: b.status == "ready" and a.running.status()["link"] == "up")
    assert not any("not sent yet" in line for line in a.log)
