"""Nodes in one process for tests: real `Node` objects, byte streams between them, a virtual disk, a clock
by hand.

`Pair.run(seconds)` moves everything: bytes, ticks, syncs, timers, in a fixed order. Nothing is random,
nothing sleeps.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.model.values import Need, Position, Scope
from broker.peer import Peer
from broker.security.identity import User, default_users
from broker.settings import BrokerSettings
from broker.store.node_files import NodeFiles
from broker.store.segment_log import SegmentLog
from broker.store.store import SegmentStore
from broker.store.sync import ManualSync
from ha.adapter.ledger_port import LedgerPort, NullLedger
from ha.adapter.node import Node
from ha.adapter.settings import HaSettings
from ha.core.ha_broker import HaBroker
from tests.ha.register import Register
from tests.simulation.harness.machines.virtual_disk import VirtualDisk
from understudy.shared.codes import Code, Coded

STEP = 0.005
FIRST, SECOND = 5000, 6000
"""Ports of the first host, on each network."""
RAW = b"\x02\0\1\0\0\0\x0e" + b"\0<\0\0" + b"\0\0\0\0\0\0\0\1" + b"\0\0" + b"\xce" + b"\x03\0\1\0\0\0\1%c\xce"


def raw(text: str) -> bytes:
    """The frames of a message with a one-octet body."""
    return RAW % text.encode()


class Notes(NullLedger):
    """A ledger that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[tuple[str, dict[str, Any]]] = []

    def record(self, kind: str, **fields: Any) -> None:
        self.kinds.append((kind, fields))


@dataclass(slots=True, eq=False)
class Wire:
    """One TCP connection: the dialing node and its dial, the accepting node and its connection."""

    dialer: Host
    dial_id: int
    acceptor: Host
    conn: Any
    out: bytearray = field(default_factory=bytearray)
    """On its way from the dialing node."""
    back: bytearray = field(default_factory=bytearray)
    """On its way to the dialing node."""
    network: int = 0


@dataclass(slots=True, eq=False)
class Host:
    """A machine: its disk stays, its node comes and goes."""

    name: str
    port: int
    number: int
    disk: VirtualDisk = field(default_factory=VirtualDisk)
    node: Node | None = None
    sync: ManualSync = field(default_factory=ManualSync)
    log: list[str] = field(default_factory=list)
    """The sentences that were logged."""
    said: list[Coded] = field(default_factory=list)
    """Those that have a code."""
    ledger: Any = field(default_factory=Notes)
    syncing: bool = True
    """False: the disk has stopped answering."""
    frozen: bool = False
    ids: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """Of its own, from its next start on."""
    called: str = ""
    """Its broker.name, if that is not `name`."""
    users: tuple[User, ...] = field(default_factory=default_users)
    external: str = ""
    """`auth.external`"""
    wall_error: int = 0
    """Milliseconds by which its wall clock is wrong."""

    @property
    def running(self) -> Node:
        assert self.node is not None
        return self.node

    @property
    def status(self) -> str:
        return self.running.core.status.value

    def disk_does(self, what: str) -> None:
        match what:
            case "stop" | "go":
                self.syncing = what == "go"
            case "fails":
                self.disk.failing["sync"] = errno.EIO
            case "mended":
                self.disk.failing.clear()
            case "rots":
                files = {p: len(raw) for p, raw in self.disk.contents().items() if p.endswith(".segment")}
                path = max(files, key=lambda path: (files[path], path))
                self.disk.damage(path, files[path] // 2)
            case "new":
                self.disk = VirtualDisk()
            case _:
                raise ValueError(what)

    def told(self, code: Code) -> list[str]:
        """The sentences that were logged with this code."""
        return [said.sentence for said in self.said if said.code == code.name]

    def logs(self, told: Coded | str) -> None:
        if isinstance(told, Coded):
            self.said.append(told)
        self.log.append(told.sentence if isinstance(told, Coded) else told)

    def random_bytes(self, count: int) -> bytes:
        self.ids += 1
        return (self.number.to_bytes(4, "big") + self.ids.to_bytes(12, "big"))[:count].ljust(count, b"\0")


def _id_of(name: str) -> str:
    return (name * 32)[:32]


def retune(core: HaBroker, **numbers: Any) -> None:
    """From now on all parts of that node's core go by these numbers."""
    for name, value in numbers.items():
        object.__setattr__(core.tuning, name, value)


class Pair:
    """Hosts, wires, time."""

    def __init__(self, count: int = 2, **settings: Any) -> None:
        self.now = 100.0
        names = ["abcdefghijklmnop"[i] if i < 16 else f"h{i}" for i in range(count)]
        self.hosts = [Host(name, FIRST + i, i + 1) for i, name in enumerate(names)]
        self.settings = settings
        self.wires: list[Wire] = []
        self.frame_max = 131072
        self.register = Register()
        """Asked only with `authority="register"`."""
        self.cut: set[frozenset[str]] = set()
        """Pairs of names between which bytes vanish and nothing connects."""
        self.dead: set[int] = set()
        """Networks on which bytes stand still and nothing connects: 0, or 1 for the second ports."""
        self.other_host: dict[int, Host] = {}
        """Ports of the second network at which another host listens than it should."""
        self.unresolved: dict[int, str] = {}
        """Ports of hosts whose name gives no address to anybody, and why."""
        self.held: dict[tuple[str, str], int] = {}
        """(from, to) -> how many bytes may still pass; what is beyond stays on its way."""
        self.link_ends: dict[tuple[str, str], int] = {}
        """(primary, backup) -> bytes that the backup gets on its link before all between them breaks."""

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    @property
    def wall(self) -> int:
        return int(self.now * 1000)

    def brokers(self, host: Host) -> list[tuple[str, int]]:
        """What that host's `ha.brokers` says."""
        return [("127.0.0.1", h.port) for h in self.hosts] if len(self.hosts) > 1 else []

    def routes(self) -> list[list[tuple[str, int]]]:
        """The same, where each host is on two networks."""
        return [[("127.0.0.1", h.port), ("127.0.0.1", h.port + SECOND - FIRST)] for h in self.hosts]

    # -- processes

    def start(self, *hosts: Host) -> None:
        for host in hosts or self.hosts:
            ledger: LedgerPort = host.ledger
            files = NodeFiles.open(
                host.disk,
                f"/{host.name}",
                host.name,
                number=host.number,
                new_id=partial(_id_of, host.name),
            )
            host.sync = ManualSync()
            host.node = Node(
                broker=BrokerSettings(
                    name=host.called or host.name,
                    frame_max=self.frame_max,
                    users=host.users,
                    external=host.external,
                ),
                ha=HaSettings(**{"brokers": self.brokers(host)} | self.settings | host.settings),
                store=SegmentStore(SegmentLog(host.disk, files.store_directory), host.sync),
                files=files,
                ledger=ledger,
                random_bytes=host.random_bytes,
                log=host.logs,
            )
            host.node.start(self.now, self.wall + host.wall_error)

    def kill(self, host: Host, *, clean: bool = True, keep: bool = False) -> None:
        """What was not synced is lost (`keep`: only the process is; the kernel writes on). Peers see
        connections close (or, not clean, nothing).
        """
        host.node = None
        if keep:
            host.disk.kill()
        else:
            host.disk.power_loss(None)
        for wire in list(self.wires):
            if host in (wire.dialer, wire.acceptor):
                self.wires.remove(wire)
                if wire.dialer is not host and wire.dialer.node is not None:
                    wire.dialer.node.dial_closed(wire.dial_id, clean, self.now)
                if wire.acceptor is not host and wire.acceptor.node is not None:
                    wire.conn.lost(self.now)

    def separate(self, one: Host, other: Host, *, reset: bool = False) -> None:
        """No byte passes any more. `reset`: both see their connections break."""
        self.cut.add(frozenset({one.name, other.name}))
        if reset:
            self.reset(one, other)

    def reset(self, one: Host, other: Host) -> None:
        """All connections between the two break, and both see it; what is on its way is lost."""
        for wire in list(self.wires):
            if {wire.dialer.name, wire.acceptor.name} == {one.name, other.name}:
                self.wires.remove(wire)
                wire.dialer.running.dial_closed(wire.dial_id, True, self.now)
                wire.conn.lost(self.now)

    def heal(self) -> None:
        self.cut.clear()
        self.held.clear()

    def hold(self, sender: Host, receiver: Host, passing: int = 0) -> None:
        """From now on `passing` bytes arrive, and no more until `heal`."""
        self.held[sender.name, receiver.name] = passing

    # -- time

    def run(self, seconds: float = 1.0) -> None:
        end = self.now + seconds
        while self.now < end:
            self.step()
            self.now += STEP

    def until(self, condition: Any, limit: float = 20.0) -> None:
        """Run until `condition()`; AssertionError after `limit` seconds of the clock."""
        end = self.now + limit
        while not condition():
            assert self.now < end, [h.log[-6:] for h in self.hosts]
            self.step()
            self.now += STEP

    def step(self) -> None:
        for host in self.hosts:
            node = host.node
            if node is None or host.frozen:
                continue
            deadline = node.next_deadline()
            if deadline is not None and deadline <= self.now:
                node.timers(self.now)
            node.end_tick(self.now, self.wall + host.wall_error)
            node.take_dirty()
            for dial in node.wants_dials():
                self._dial(host, dial.dial_id, dial.port)
            self.register.ask(host, node.wants_authority(), self.now)
            if host.syncing:
                host.sync.run()
        self.register.run(self.now)
        for wire in list(self.wires):
            self._move(wire)

    def _dial(self, host: Host, dial_id: int, port: int) -> None:
        network = int(port >= SECOND)
        target = next(h for h in self.hosts if h.port == port - network * (SECOND - FIRST))
        target = self.other_host.get(port, target)
        cut = frozenset({host.name, target.name}) in self.cut or network in self.dead
        if port in self.unresolved:
            host.running.dial_failed(dial_id, self.unresolved[port], self.now, unresolved=True)
            return
        if target.node is None or cut:
            host.running.dial_failed(dial_id, "no way" if cut else "refused", self.now, refused=not cut)
            return
        conn = target.node.accept(Peer("127.0.0.1", host.port, loopback=True), self.now)
        self.wires.append(Wire(host, dial_id, target, conn, network=network))
        host.running.dialed(dial_id, self.now)

    def _move(self, wire: Wire) -> None:
        dialer, acceptor = wire.dialer, wire.acceptor
        apart = frozenset({dialer.name, acceptor.name}) in self.cut or wire.network in self.dead
        if dialer.frozen or acceptor.frozen or apart:
            return
        wire.out += b"".join(dialer.running.take_dial_output(wire.dial_id))
        self._deliver(wire.out, dialer, acceptor, lambda data: wire.conn.receive(data, self.now))
        wire.back += b"".join(wire.conn.take_output())
        link = (acceptor.name, dialer.name)
        ends = self.link_ends.get(link)
        if ends is not None:
            del wire.back[ends:]
            self.link_ends[link] = ends - len(wire.back)
        self._deliver(
            wire.back,
            acceptor,
            dialer,
            lambda data: dialer.running.dial_received(wire.dial_id, data, self.now),
        )
        if ends is not None and not self.link_ends[link]:
            del self.link_ends[link]
            self.separate(acceptor, dialer, reset=True)
            return
        closing = wire.conn.wants_close or dialer.running.dial_wants_close(wire.dial_id)
        if closing and not wire.out and not wire.back and wire in self.wires:
            self.wires.remove(wire)
            wire.conn.lost(self.now)
            dialer.running.dial_closed(wire.dial_id, True, self.now)

    def _deliver(
        self, waiting: bytearray, sender: Host, receiver: Host, receive: Callable[[bytes], None]
    ) -> None:
        """As much as is let through."""
        left = self.held.get((sender.name, receiver.name), len(waiting))
        data = bytes(waiting[:left])
        if data:
            if (sender.name, receiver.name) in self.held:
                self.held[sender.name, receiver.name] -= len(data)
            del waiting[: len(data)]
            receive(data)

    # -- operators and clients

    def ask(self, host: Host, command: str, limit: float = 5.0, **args: Any) -> dict[str, Any]:
        answers: list[dict[str, Any]] = []
        host.running.manage(command, args, answers.append, self.now)
        self.until(lambda: bool(answers), limit)
        return answers[0]

    def up(self) -> None:
        """The usual beginning: start, promote the first, wait for the others to be ready."""
        self.start()
        self.run(0.3)
        answer = self.ask(self[0], "promote")
        assert answer["ok"], answer
        self.until(lambda: all(h.status == "ready" for h in self.hosts[1:]))

    def declare(self, host: Host, name: str, **more: Any) -> None:
        host.running.vhost.declare_queue(name, owner=self, durable=True, **more)

    def snapshots(
        self, host: Host, chunk: int, window: int = 4 << 20, lag: int = 1 << 20, definitions: int = 500
    ) -> None:
        """From now on that primary reads and sends about so many bytes of snapshots a tick, or so many
        records of `definitions`, while no more than `window` bytes are on their way to the joiner, whose lag
        is short below `lag`.
        """
        retune(
            host.running.core, snapshot_chunk=chunk, joiner_window=window, short_lag=lag,
            definitions_chunk=definitions,
        )  # fmt: skip

    def publish(
        self, host: Host, queue: str, texts: str, *, persistent: bool = True, where: str = "/"
    ) -> Position:
        """One message a letter; gives the position their confirms wait for, after the tick's flush."""
        vhost = host.running.vhosts[where]
        vhost.publish(
            vhost.route("", queue),
            [raw(t) for t in texts],
            persistent=persistent,
            channel=1,
            largest_frame=30,
            producer="p/1",
            first_tag=1,
        )
        return vhost.history.position

    def confirmed(self, host: Host, position: Position, *, need: Need = Need.DURABLE) -> bool:
        return host.running.broker.completion.reached(position, need)

    def consume(self, host: Host, queue: str, count: int) -> str:
        """Get and acknowledge."""
        found = host.running.vhost.queues[queue]
        entries = [e for e in (found.pop(no_ack=False) for _ in range(count)) if e is not None]
        found.acknowledge(entries)
        return text(entries)

    def contents(self, host: Host, queue: str) -> str:
        return text(host.running.vhost.queues[queue].held_entries())

    def fingerprint(self, host: Host) -> str:
        return host.running.vhosts.fingerprint(Scope.LINK)


def text(entries: list[Any]) -> str:
    return "".join(chr(entry[2][-2]) for entry in entries)
