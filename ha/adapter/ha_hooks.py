"""HaHooks: the broker's hooks, answered by the core. Owner: Node. Called by the broker inside a tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.hooks import Applicant, ExtensionPeer, Hold, Hooks, LargeMessage, Refusal, Sender
from broker.model.history.records import ExchangeDeclare, QueueDeclare
from broker.model.queue.link import is_link
from broker.model.queue.link_ids import LinkIds
from broker.model.queue.queue import Mode
from broker.model.values import Scope
from ha.adapter.content_ahead import ContentAhead
from ha.adapter.inbox import Arrived, Inbox, PeerCame, PeerLost
from ha.adapter.peer_check import PeerCheck
from ha.core.connection_observer import CONNECTION_FORCED, AdmissionAnswer
from ha.core.ha_broker import HaBroker
from ha.core.id_setter import IdSetter
from ha.core.replication_test import ReplicationTest
from ha.core.wire.link import Method

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.model.queue.queue import Queue
    from broker.model.vhost.vhosts import VirtualHosts


class HaHooks(Hooks):
    """`core` and `vhosts` are set by Node right after they exist."""

    core: HaBroker
    vhosts: VirtualHosts

    def __init__(self, test: ReplicationTest, inbox: Inbox, check: PeerCheck) -> None:
        self._test = test
        self._inbox = inbox
        self._check = check
        self.peers: dict[int, ExtensionPeer] = {}
        self._ids: dict[ExtensionPeer, int] = {}
        self.exchange_made: Callable[[str, str], None] = lambda vhost, exchange: None
        self.interest_told: Callable[[str, str], Callable[[], bool] | None] = lambda vhost, exchange: None

    def queue_scope(self, declared: QueueDeclare) -> Scope:
        return self._test.queue_scope(declared)

    def exchange_scope(self, declared: ExchangeDeclare) -> Scope:
        return self._test.exchange_scope(declared)

    def queue_created(self, queue: Queue) -> None:
        if queue.mode is Mode.ACTIVE:
            self.set_ids(queue)

    def exchange_created(self, vhost: str, exchange: str) -> None:
        self.exchange_made(vhost, exchange)

    def binding_told(self, vhost: str, exchange: str) -> Callable[[], bool] | None:
        return self.interest_told(vhost, exchange)

    def set_ids(self, queue: Queue) -> None:
        """Ids of this epoch, from 1: each queue has its own, but for link queues, which share them."""
        numbers = self.vhosts.link_numbers
        queue.ids = LinkIds(numbers) if is_link(queue.name) else IdSetter(self.core.epoch)

    def connection_opening(self, connection: Applicant, *, management: bool) -> Refusal | Hold | None:
        error = self._check.opening(connection)
        if error is not None:
            return Refusal(error.code, error.reply_text)
        decision = self.core.admit(peer=management)
        match decision.answer:
            case AdmissionAnswer.ADMIT:
                return None
            case AdmissionAnswer.HOLD:
                return Hold.HOLD
            case AdmissionAnswer.REFUSE:
                return Refusal(CONNECTION_FORCED, decision.text)

    def large_message(self, connection: Sender) -> LargeMessage | None:
        primary = self.core.primary
        content = None if primary is None else primary.contents.begin(connection)
        return None if primary is None or content is None else ContentAhead(self.core, primary, content)

    def extension(self, connection: ExtensionPeer, channel: int, method_id: int, payload: bytes) -> None:
        error = self._check.method(connection, method_id)
        if error is not None:
            raise error
        peer = self._ids.get(connection)
        if peer is None:
            peer = self._ids[connection] = self._inbox.new_peer()
            self.peers[peer] = connection
            if method_id == Method.HELLO:
                self._inbox.put(PeerCame())
        self._inbox.put(Arrived(peer, method_id, payload))

    def is_client(self, connection: object) -> bool:
        """Whether a connection has not used the extension class."""
        return connection not in self._ids

    def connection_lost(self, connection: ExtensionPeer, *, clean: bool) -> None:
        peer = self._ids.pop(connection, None)
        if peer is not None:
            del self.peers[peer]
            self._inbox.put(PeerLost(peer, clean))
