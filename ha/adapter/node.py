"""A whole node without I/O: broker, ha core, store, node files and ledger behind one driving interface.

Owner: the asyncio shell (`broker.server.shell`), or the simulation: both call exactly the methods below, on
one thread. Time is passed in: `now` is seconds of a clock that never goes back, `wall_ms` is milliseconds
since 1970.

A driver's loop: deliver bytes to connections (`conn.receive`) and dials (`dial_received`); call `timers(now)`
when `next_deadline()` has come; call `end_tick(now, wall_ms)` once after each burst of those, and also
whenever the store reports a finished sync; then write what `take_dirty()` connections and
`take_dial_output` give. Drain `wants_dials()` and `wants_authority()` after each end_tick and report how each
went. A driver whose process may have stood still since `end_tick` calls `before_output(now)` first of all.
Stop the process when `stopped` is not None.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.deadlines import sooner
from broker.engine import Broker
from broker.model.history.history import History
from broker.model.values import CONFIRM_LEVELS, ORIGIN, Need, Position
from broker.model.vhost.vhosts import VirtualHosts
from broker.store.errors import StoreError
from broker.wall_clock import JUMP_MS
from ha.adapter import codes
from ha.adapter.authority_port import AuthorityDesk, AuthorityOutcome, AuthorityRequest
from ha.adapter.effect_runner import EffectRunner
from ha.adapter.federation.federation import FEDERATION_METHODS, Federation
from ha.adapter.ha_hooks import HaHooks
from ha.adapter.inbox import Arrived, AuthorityAnswered, DialFailed, DialOpen, Inbox, PeerCame, PeerLost
from ha.adapter.last_man import LastMan
from ha.adapter.ledger_port import NullLedger
from ha.adapter.management.questions import CONTROLLER, Questions
from ha.adapter.management.status_view import confirm_of, confirm_words, controller_of, status_of
from ha.adapter.mirror.mirrors import MIRROR_METHODS, QueueMirrors
from ha.adapter.own_address import left_out
from ha.adapter.peer_check import PeerCheck
from ha.adapter.peering.dial_faults import DialFaults
from ha.adapter.peering.peering import PeeringKind
from ha.adapter.peering.peerings import Dial, Peerings
from ha.adapter.primary_vhost import PrimaryVhost
from ha.adapter.quarantine import Quarantine
from ha.adapter.record_store import load_record, save_record, who_this_is
from ha.adapter.recovery import Bases, recover
from ha.adapter.replica.queue_words import ended_words, forgotten_words
from ha.adapter.replica.vhost import ReplicaVhost
from ha.adapter.sinks import LedgerSink, LinkSink, StoreSink
from ha.adapter.witness.client import WitnessClient
from ha.adapter.witness.desk import WitnessDesk
from ha.core.election.peers import ROUTE
from ha.core.errors import NodeFatal
from ha.core.ha_broker import HaBroker
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.record.record_keeper import Outcome
from ha.core.replication_test import ReplicationTest
from ha.core.wire.link import Method
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.connection import Connection
    from broker.model.queue.message_run import Overflow
    from broker.peer import Peer
    from broker.settings import BrokerSettings
    from broker.store.node_files import NodeFiles
    from broker.store.store import Store
    from ha.adapter.ledger_port import LedgerPort
    from ha.adapter.settings import HaSettings

__all__ = ["AuthorityRequest", "Dial", "Node"]

SHUTDOWN = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"


class Node:
    """One broker of a pair, or one on its own when `ha.brokers` is empty."""

    stopped: str | None
    """Why this node must end (a failed sync, an illegal transition), or None: nothing is written after
    that."""

    def __init__(
        self, *, broker: BrokerSettings, ha: HaSettings, store: Store, files: NodeFiles, ledger: LedgerPort,
        random_bytes: Callable[[int], bytes], log: Callable[[Coded | str], None],
        warn: Callable[[Coded], None] | None = None, overflow: Overflow | None = None,
    ) -> None:  # fmt: skip
        """Takes no action until `start`. `random_bytes(n)` gives UUIDs; `log` gets one event a call (of the
        broker, a sentence without a code), `warn` those that an operator may have to act on (None: `log`
        gets them).

        Raises StoreError if the in-sync record on disk is damaged.
        """
        self.stopped = None
        broker = replace(broker, cluster_name=ha.federated.node)
        self.me = who_this_is(files, broker, random_bytes)
        self._store, self._files, self.ledger = store, files, ledger
        self.settings, self.random_bytes, self.log = ha, random_bytes, log
        self.warn: Callable[[Coded], None] = warn or log
        self._inbox = Inbox()
        self.hooks = HaHooks(ReplicationTest(ha.default_level), self._inbox, PeerCheck(ha.dialed))
        wanted = not isinstance(ledger, NullLedger)
        history = History(dequeue_lag=ha.dequeue_lag, ledger_wanted=wanted)
        self.vhosts = VirtualHosts(self.hooks, history, lambda: random_bytes(16), MESSAGE_FORMAT)
        self.hooks.vhosts = self.vhosts
        self.vhost = self.vhosts.root
        self.broker = Broker(broker, self.hooks, self.vhosts, log=log, warn=self.warn, overflow=overflow)
        self._quarantine = Quarantine(files.files, files.directory, self.me.incarnation)
        bases = self._bases = Bases(self.vhosts)
        self.replica = ReplicaVhost(
            self.vhosts, store, bases, ledger, self._quarantine, self._save_incomplete
        )
        self.peerings = Peerings(broker.name, self._inbox)
        self.peerings.add(ha.dialed, ha.login, self._inbox, PeeringKind.PAIR)
        record, incomplete = load_record(files)
        authority = ha.new_authority()
        self.core = HaBroker(
            self.me,
            ha.tuning(),
            [ROUTE.join(f"{host}:{port}" for host, port in member) for member in ha.members],
            record=record,
            incomplete=incomplete,
            epoch_seen=files.epoch,
            cluster_id=files.identity.cluster_id,
            primary_model=PrimaryVhost(self.vhosts, store, self.broker.holding),
            replica_model=self.replica,
            position=self._position,
            authority=authority, public=ha.public_brokers,
            absent=left_out(ha.dialed, ha.listens),
            new_cluster_id=random_bytes(16).hex() if authority.AUTOMATIC else "",
            pair_role=ha.pair_role, clients=lambda: self.broker.clients,
        )  # fmt: skip
        self.hooks.core = self.core
        self.broker.on_clock = self.before_output
        self.broker.disk.free = lambda: files.files.free(files.directory)
        self._effects = EffectRunner(self)
        self.authority = AuthorityDesk(ha.authority, log, self.warn, outside=authority.ARBITRATES)
        self._witness_client: WitnessClient | None = None
        if ha.witness is not None:
            asker = (self.me.node_id, self.me.incarnation)
            self._witness_client = WitnessClient(
                ha.witness, asker, ha.failover_timeout, self.peerings, self._inbox, self.authority
            )
        self._core_deadline: float | None = None
        self._dial_faults = DialFaults(log)
        self._grace_until: float | None = None
        self.now, self._wall_ms = 0.0, 0
        self._released = ORIGIN
        """Up to here the last tick has released confirms, at least."""
        self._started = False
        self._questions = Questions(self)
        self.core.messages.serve(CONTROLLER, self._controller)
        self.witness = WitnessDesk(
            files.files, files.directory, ha.witness_for, self.warn,
            lambda: {self.me.node_id, *self.core.membership.members},
        )  # fmt: skip
        self.mirrors = QueueMirrors(self, store, self._inbox)
        self.federation = Federation(self, store)
        self.hooks.exchange_made = self.federation.exchange_made
        self.hooks.interest_told = self.federation.interest_told
        self.broker.gates += [store, self.core]
        self.broker.completion.disk = store
        if ha.brokers:
            history.confirm = CONFIRM_LEVELS[ha.confirm]
        self._ledger = LedgerSink(ledger, store, history)
        self.last_man = LastMan(self, store, bases, persist=ha.last_man == "persist")
        self.broker.sinks += [StoreSink(store, bases), LinkSink(self), self._ledger]
        self.broker.sinks.append(self.mirrors.source)

    # -- life

    def start(self, now: float, wall_ms: int) -> None:
        """Recover the store; standalone: open a new durable epoch and serve; else: joining, and dial the
        others.

        Raises StoreError if the store cannot be recovered.
        """
        self.now, self._wall_ms = now, wall_ms
        self.broker.go_on_from(now, wall_ms)
        self.core.clocks.tick(now, wall_ms, wall_ms)
        recovered = recover(self._store, self.vhosts, self.log, self.broker.paging)
        self._store.start(self._bases(), None, recovered)
        self.replica.position = recovered
        self.ledger.view = self.core.epoch
        self._started = True
        self.witness.start(now)
        self.core.start(now)
        self._effects.run(now)
        self.mirrors.start()
        self.peerings.due(now)

    def stop(self, now: float) -> None:
        """Clean end: close clients with 320, flush, note inventory and seal in the ledger, close the store.

        Afterwards output may still be taken and written; the driver then closes every socket.
        """
        if self.stopped is not None or not self._started:
            self.ledger.close(seal=False)
            return
        self.before_output(now)
        self._started = False
        self.last_words(now)
        self._rest(now)
        if self._witness_client is not None:
            self._witness_client.release()
        self.core.farewell()
        self._effects.run(now)
        self.broker.drop_fenced_output()
        self.broker.close_connections(320, SHUTDOWN, now)
        for queue in self.vhosts.queues_by_uuid.values():
            for epoch, ids in queue.snapshot().items():
                for first, last in ids.ranges():
                    self.ledger.record("present", queue=queue.uuid.hex(), epoch=epoch, first=first, last=last)
        self._store.close()
        self._ledger.note_durable()
        self.ledger.close(seal=self._store.failed is None)

    # -- inbound connections

    def accept(self, peer: Peer, now: float) -> Connection:
        """A client, a backup or an operator connected. Drive the result as any broker connection."""
        return self.broker.accept(peer, now)

    def take_dirty(self) -> list[Connection]:
        """Connections with output, or to be closed, since the last call. Those of peers come first: confirms
        wait for backups."""
        dirty = self.broker.take_dirty()
        if len(dirty) > 1:
            dirty.sort(key=self.hooks.is_client)
        return dirty if self.stopped is None else []

    def acks_wait(self, now: float) -> float | None:
        """See `Broker.acks_wait`."""
        return self.broker.acks_wait(now) if self._running else None

    def feeds_backups(self) -> bool:
        """Whether history goes to backups."""
        primary = self.core.primary
        return primary is not None and bool(primary.backups)

    def waits_for_backups(self) -> bool:
        """Whether all that waits for this node's disk waits for a backup's answer as well."""
        history = self.vhosts.history
        return (
            self.feeds_backups()
            and self.broker.completion.floor is Need.DURABLE
            and self.core.durable < Position(history.epoch, history.n)
        )

    # -- outbound dials

    def wants_dials(self) -> list[Dial]:
        """New connections to open; drained by the call. Answer each with `dialed` or `dial_failed`."""
        return self.peerings.take_wanted() if self._running else []

    def dialed(self, dial_id: int, now: float) -> None:
        """The connection is established."""
        self.peerings.dialed(dial_id, now)

    def dial_failed(
        self, dial_id: int, error: str, now: float, *, refused: bool = False, distrusted: bool = False,
        unresolved: bool = False,
    ) -> None:  # fmt: skip
        """The connection could not be established; the node asks again with a new id. `refused`: the kernel
        there answered that nothing listens, which says more than silence. `distrusted`: TLS failed, by
        `error`. `unresolved`: the name gives no address, by `error`."""
        distrust, why = error if distrusted else "", error if unresolved else ""
        self.peerings.failed(dial_id, now, nobody=refused, distrust=distrust, unresolved=why)

    def dial_received(self, dial_id: int, data: bytes, now: float) -> None:
        """Bytes arrived."""
        self.peerings.received(dial_id, data, now)

    def dial_closed(self, dial_id: int, clean: bool, now: float, distrust: str = "") -> None:
        """The connection is gone. `clean`: by FIN or RST, that is, the peer's kernel answered; False:
        silence. `distrust`: how TLS failed."""
        self.peerings.closed(dial_id, clean, now, distrust)

    def take_dial_output(self, dial_id: int) -> list[bytes]:
        """Bytes to write, drained. Ask all open dials after each end_tick."""
        client = self.peerings.client(dial_id)
        return client.take_output() if client is not None and self.stopped is None else []

    def dial_wants_close(self, dial_id: int) -> bool:
        """True once the node is done with the connection: write its output, then close it, and call
        `dial_closed`."""
        client = self.peerings.client(dial_id)
        return client is None or client.wants_close

    # -- the authority

    def wants_authority(self) -> list[AuthorityRequest]:
        """Requests to the authority since the last call. None with `manual`, whose record is this node's own
        copy."""
        requests = self.authority.take()
        return requests if self._running else []

    def authority_answered(
        self, request_id: int, outcome: AuthorityOutcome, record: dict[str, Any] | None, now: float,
        reason: str = "", owner_gone: bool = False,
    ) -> None:  # fmt: skip
        """The authority's answer. `record`: what it holds, None if nothing; it is ignored after `not yet` and
        `unknown`. `reason`: a sentence for the log. `owner_gone`: of a read; the lease of the record's owner
        has run out there. Tick soon."""
        self._inbox.put(AuthorityAnswered(request_id, outcome, record, reason, owner_gone))

    def authority_stands(self, ok: bool, said: Coded) -> None:
        """The state of the authority, as the driver sees it."""
        self.authority.stands(ok, said)

    # -- time

    def before_output(self, now: float) -> None:
        """It is `now`, however long the last tick took: hold back output that may not leave any more."""
        if now >= self.core.lease_until and self._running:
            self.core.heed_lease(now)
            self._effects.run(now)

    def end_tick(self, now: float, wall_ms: int) -> None:
        """Hear peers, dispatch, flush history to store, links and ledger, acknowledge, release confirms."""
        if not self._running:
            return
        self.now, self._wall_ms = now, wall_ms
        try:
            self._tick(now, wall_ms)
        except (NodeFatal, StoreError, OSError) as error:
            self._fatal(f"{error}")
            return
        if self._store.failed is not None:
            self._fatal(self._store.failed)

    def _tick(self, now: float, wall_ms: int) -> None:
        core = self.core
        core.clocks.tick(now, wall_ms, self.broker.wall_at(now))
        if now >= core.lease_until:
            core.heed_lease(now)
            self._effects.run(now)
        self._hear(now)
        if self._core_deadline is not None and now >= self._core_deadline:
            core.timers(now)
        if self.broker.output_fenced or now >= core.lease_until:
            core.heed_lease(now)
        if self._store.failed is not None:
            return
        self._effects.run(now)
        if self._grace_until is not None and now >= self._grace_until:
            self._grace_until = None
            if self.vhosts.serving:
                ended = [queue.title for queue in self.vhosts.abandoned_queues()]
                if self.vhosts.delete_abandoned():
                    self.log(ended_words(ended))
        if core.primary is not None and core.primary.flushes_all(now):
            self.vhosts.history.hasten()
        self.mirrors.tick(now)
        self.federation.tick(now)
        self._questions.tick()
        self.last_man.tick(wall_ms)
        self.broker.completion.floor = core.confirm_floor
        self._released = self.broker.completion.durable
        self.broker.end_tick(now, wall_ms)
        self.last_man.end_tick(wall_ms)
        self.mirrors.end_tick(now)
        self.federation.end_tick(now)
        self._questions.end_tick()
        core.end_tick(now)
        self._effects.run(now)
        if self._witness_client is not None:
            self._witness_client.carry(self.authority.take(), now)
        self._ledger.note_durable()
        self.ledger.flush()
        self._core_deadline = core.next_deadline()

    def _hear(self, now: float) -> None:
        """Take everything that peers sent since the last tick, in order of arrival."""
        if self._witness_client is not None:
            self._witness_client.tick(now)
        for item in self._inbox.take():
            self._dial_faults.heard(item)
            match item:
                case Arrived(peer=peer, method=method, payload=payload):
                    self._method(peer, method, payload, now)
                case DialOpen(peer=peer, address=address):
                    self.core.dial_open(peer, address, now)
                case DialFailed():
                    self.core.dial_failed(
                        item.address, now, item.refusal, nobody=item.nobody, distrust=item.distrust,
                        unresolved=item.unresolved,
                    )  # fmt: skip
                case PeerCame():
                    self.peerings.resume(now)
                case PeerLost(peer=peer, clean=clean):
                    self.core.peer_lost(peer, clean, now)
                    self.mirrors.lost(peer)
                    self.federation.lost(peer)
                case AuthorityAnswered(request_id=request_id, outcome=outcome, record=record):
                    self.core.authority_answered(
                        request_id, Outcome(outcome), record, now, item.reason, item.owner_gone
                    )
            if isinstance(item, Arrived) and item.method == Method.HELLO_OK:
                for name in filter(self.core.peers.is_self, self.peerings.names()):
                    self.peerings.forget(name)

    def _method(self, peer: int, method: int, payload: bytes, now: float) -> None:
        """One extension method of a peer, for whoever understands it."""
        if method == Method.MANAGE:
            asker = self.hooks.peers.get(peer)
            by, source = (asker.user, asker.peer_address) if asker is not None else ("", "")  # gone: nobody
            reply = partial(self._effects.manage_ok, peer)
            self._questions.heard(payload, reply, now, by, source)
        elif method == Method.WITNESS:
            self._witness(peer, payload, now)
        elif method in MIRROR_METHODS:
            self.mirrors.hear(peer, method, payload)
        elif method in FEDERATION_METHODS:
            self.federation.hear(peer, method, payload)
        else:
            self.core.method(peer, method, payload, now)

    def _witness(self, peer: int, payload: bytes, now: float) -> None:
        """Answer a node of a pair that has this one for its witness."""
        asker = self.hooks.peers.get(peer)
        if asker is not None:
            self._effects.witness_ok(asker, self.witness.hear(asker.user, payload, now))

    def disk_moved(self) -> bool:
        """Whether a tick is due because the store's `durable` has moved. Call it on the broker's thread. No
        tick is due while all that waits for the disk waits for a backup, too: the backup's ack makes one."""
        completion = self.broker.completion
        if completion.floor is not Need.DURABLE or not self.vhosts.serving or self._store.failed is not None:
            return True
        return completion.durable > self._released

    def timers(self, now: float) -> None:
        """Do what is due: heartbeats, handshakes, redials, exclusions (in the `end_tick` that follows)."""
        if self._running:
            self.broker.timers(now)
            self.peerings.timers(now)
            self.witness.timers(now)

    def next_deadline(self) -> float | None:
        """When to call `timers`, and then `end_tick`, next."""
        if not self._running:
            return None
        if self.last_man.hungry():
            return self.now
        deadline = sooner(self._core_deadline, self.broker.next_deadline())
        deadline = sooner(deadline, self.peerings.next_deadline(self.now))
        deadline = sooner(deadline, self._grace_until)
        deadline = sooner(deadline, self.mirrors.next_deadline())
        deadline = sooner(deadline, self.federation.next_deadline())
        deadline = sooner(deadline, self.witness.next_deadline())
        deadline = sooner(deadline, self._questions.next_deadline())
        if self._witness_client is not None:
            deadline = sooner(deadline, self._witness_client.next_deadline())
        return deadline

    # -- management

    def status(self) -> dict[str, Any]:
        """name, node_id, status, epoch, link, members, promotable, reason, position, queues, ..."""
        found = status_of(self.core, self.me, self.vhosts, self._position(), self.authority.trouble)
        found["authority"] = self.authority.status()
        counts: dict[str, Any] = {
            "quarantined": self._quarantine.count,
            "stored_bytes": self._store.stored_bytes,
            "store_syncs": self._store.syncs,
            "memory": self.broker.memory.parts,
            **self.mirrors.status(),
            "peerings": self.peerings.status(),
            "federation": self.federation.status(),
        }
        if self.settings.witness_for:
            counts["witness_for"] = self.witness.status()
        if ledger := self.ledger.health():
            counts["ledger"] = ledger
        if self.core.automatic is not None:
            counts["controller"] = self._controller()
        counts["events"] = dict(self._effects.events)
        counts["recent_events"] = list(self._effects.recent)
        counts["held_channels"] = len(self.broker.holding)
        if self.settings.brokers:
            counts["last_man"] = self.last_man.status()
            counts["confirm"] = confirm_of(self.core, self.vhosts)
        found["reason"] += self.last_man.words() + confirm_words(self.core)
        return found | counts | {"alarms": self.broker.alarms}

    def _controller(self) -> dict[str, Any]:
        """How this node's controller stands; empty if it has none."""
        if self.core.automatic is None:
            return {}
        trouble = self.authority.trouble
        return controller_of(self.core, self.broker.clients, self.now, self._wall_ms, trouble)

    def manage(
        self, command: str, args: dict[str, Any], reply: Callable[[dict[str, Any]], None], now: float
    ) -> None:
        """Run `ping | status | query | ready | definitions | promote | demote | switchover | controller |
        replicate | replicate-stop`; `reply` comes once, some ticks later perhaps. The answer has `ok` (bool),
        `reason` (a sentence) and, mostly, `status`.
        `promote` takes `force_lossy` and `fenced` (who certainly runs no more; True: the old primary),
        `switchover` `to` (a name; None: the best of them): both answer once clients are served or nothing
        has come of it, which may take a `lease`. A driver outside a tick calls `end_tick` soon after.
        """
        self._questions.ask(command, args, reply, now)

    def look_soon(self, now: float) -> None:
        """The core has something to do in the next tick."""
        self._core_deadline = now

    # -- what effects need

    def answer(self, token: int, ok: bool, reason: str, code: str) -> None:
        self._questions.answer(token, ok, reason, code)

    def start_serving(self, epoch: int, now: float) -> None:
        """The epoch is durable before the first id of it."""
        self._files.raise_epoch(epoch)
        if forgotten := self.replica.claim():
            self.warn(forgotten_words(forgotten))
        if (wall_ms := self.core.clocks.take_over(now, JUMP_MS)) is not None:
            # Messages are dated by the last primary's clock: none expires early by this one's.
            self.broker.go_on_from(now, wall_ms)
        if stamped := self.vhosts.activate(epoch):
            self.log(codes.LEVELS_SET.say(count=stamped, level=self.settings.default_level))
        # What was promoted may be in memory only: whoever asks for it before anything new waits for the disk.
        self._store.append(Position(epoch, 0), [])
        for queue in self.vhosts.queues_by_uuid.values():
            self.hooks.set_ids(queue)
        self.ledger.view = epoch
        self._grace_until = now + self.settings.reconnect_grace if self.vhosts.await_clients() else None
        self.federation.serve(now)

    def stop_serving(self, reason: str, now: float) -> None:
        """The gates already hold confirms back: nothing that is flushed here is confirmed."""
        self.broker.drop_fenced_output()
        self.federation.rest()
        self._rest(now)
        text = f"CONNECTION_FORCED - this broker stops serving: {reason}"
        self.broker.close_connections(320, text, now, keep=lambda c: c.is_management)

    def last_words(self, now: float) -> None:
        """Before a planned end: recent consumer acks reach the backups while their links last."""
        self.vhosts.history.flush(now, self._wall_ms, force=True)
        if self.core.primary is not None:
            self.core.primary.cut_checkpoint(now)

    def _rest(self, now: float) -> None:
        """Flush, and make the virtual hosts replicas before any client is closed. Clients go because of this
        node, so no auto-delete or exclusive queue may end by it. The next primary decides."""
        if self.vhosts.serving:
            self.vhosts.history.flush(now, self._wall_ms, force=True)
            self.replica.position = Position(self.vhosts.history.epoch, self.vhosts.history.n)
            self.vhosts.deactivate()
        self._grace_until = None

    def save_record(self, record: InSyncRecord, incomplete: bool) -> None:
        self._files.raise_epoch(record.epoch)
        save_record(self._files, record, incomplete)

    def adopt_cluster(self, cluster_id: str) -> None:
        self._files.set_cluster(cluster_id)

    def take_number(self, number: int) -> None:
        self._files.set_number(number)

    # -- inside

    @property
    def _running(self) -> bool:
        return self._started and self.stopped is None

    def _save_incomplete(self, record: InSyncRecord) -> None:
        self.save_record(record, True)

    def _position(self) -> Position:
        """The last position on this node's disk (in memory, if it has no disk)."""
        if self.vhosts.serving:
            here = Position(self.vhosts.history.epoch, self.vhosts.history.n)
        else:
            here = self.replica.position
        return min(here, self._store.durable)

    def _fatal(self, reason: str) -> None:
        self.stopped = " ".join(reason.split()) or "an unknown fault"
        self.log(codes.NODE_STOPS.say(why=self.stopped))
        self.ledger.close(seal=False)
