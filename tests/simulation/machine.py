"""One computer of the pair: a disk that stays, and a process, the node, that comes and goes.

Does for a `Node` what the asyncio shell does in earnest: hands it bytes, ticks, timers and finished syncs,
and carries its output to the network. `kill` is kill -9 and a power cut in one: memory is gone, and so is
what was not synced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from broker.engine import BrokerSettings, Peer
from broker.store.node_files import NodeFiles
from broker.store.segment_log import SegmentLog
from broker.store.store import SegmentStore
from broker.store.sync import ManualSync
from ha.adapter.ledger_port import NullLedger
from ha.adapter.node import Dial, Node
from ha.adapter.settings import HaSettings
from tests.simulation.clock import Clock, Timer
from tests.simulation.network import Address, End, Network
from tests.simulation.plan import MachinePlan
from tests.simulation.virtual_disk import VirtualDisk

TICK = 0.00005
"""Seconds from the first byte of a burst to the end of its tick."""

OutputTap = Callable[["Machine", str, bytes], None]
"""Called with the machine, the client's connection name and the bytes, as they are handed to the network."""


class InboundSocket:
    """A connection that the node accepted. Implements `network.Socket`."""

    def __init__(self, machine: Machine, end: End) -> None:
        self.machine = machine
        self.end = end
        self.name = end.peer.name
        address = ("127.0.0.1", 40000 + machine.accepted)
        self.conn = machine.running.accept(Peer(*address, loopback=True), machine.clock.now)

    def received(self, data: bytes) -> None:
        self.conn.receive(data, self.machine.clock.now)
        self.machine.tick_soon()

    def closed(self, clean: bool) -> None:
        if clean:
            self.conn.eof(self.machine.clock.now)
        self.conn.lost(self.machine.clock.now)
        self.machine.inbound.pop(id(self.conn), None)
        self.machine.tick_soon()

    def flush(self, tap: OutputTap) -> None:
        data = b"".join(self.conn.take_output())
        if data:
            tap(self.machine, self.name, data)
            self.end.send(data)
        if self.conn.wants_close:
            self.machine.inbound.pop(id(self.conn), None)
            self.end.close(clean=True)
            self.conn.lost(self.machine.clock.now)


class DialSocket:
    """A connection that the node asked for. Implements `network.Socket`."""

    def __init__(self, machine: Machine, dial_id: int, end: End) -> None:
        self.machine = machine
        self.dial_id = dial_id
        self.end = end
        self.life = machine.life

    def received(self, data: bytes) -> None:
        self.machine.running.dial_received(self.dial_id, data, self.machine.clock.now)
        self.machine.tick_soon()

    def closed(self, clean: bool) -> None:
        self.machine.dials.pop(self.dial_id, None)
        # FIN or RST, the peer's kernel has answered: that is what the node calls clean.
        self.machine.running.dial_closed(self.dial_id, True, self.machine.clock.now)
        self.machine.tick_soon()

    def flush(self) -> None:
        node = self.machine.running
        data = b"".join(node.take_dial_output(self.dial_id))
        if data:
            self.end.send(data)
        if node.dial_wants_close(self.dial_id):
            self.machine.dials.pop(self.dial_id, None)
            self.end.close(clean=True)
            node.dial_closed(self.dial_id, True, self.machine.clock.now)


class Machine:
    """`node` is None while the process is down."""

    def __init__(
        self, clock: Clock, network: Network, rng: Random, plan: MachinePlan, address: Address,
        settings: HaSettings, tap: OutputTap,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.network = network
        self.rng = rng
        self.name = plan.name
        self.address = address
        self.settings = settings
        self.tap = tap
        self.disk = VirtualDisk()
        self.node: Node | None = None
        self.on_started: Callable[[Machine], None] = lambda machine: None
        self.on_killed: Callable[[Machine], None] = lambda machine: None
        self.on_ticked: Callable[[Machine], None] = lambda machine: None
        """Called when the output of a tick was handed on."""
        self.life = 0
        self.accepted = 0
        self.inbound: dict[int, InboundSocket] = {}
        self.dials: dict[int, DialSocket] = {}
        self.sync_time = plan.sync_time
        self.slow_until = 0.0
        """Until then each sync takes `slow_time` seconds."""
        self.slow_time = 0.0
        self._sync = ManualSync()
        self._syncing = False
        self._tick: Timer | None = None
        self._deadline: Timer | None = None
        self._deadline_at: float | None = None

    @property
    def running(self) -> Node:
        if self.node is None:
            raise RuntimeError(f"{self.name} is not running")
        return self.node

    def start(self) -> None:
        """Begin a process life on what the disk kept."""
        self.life += 1
        self.clock.note(f"{self.name} starts, life {self.life}")
        files = NodeFiles.open(
            self.disk,
            f"/{self.name}",
            self.name,
            number=self.address[1] % 65535 + 1,
            new_id=lambda: self._random_bytes(16).hex(),
        )
        self._sync = ManualSync()
        self._syncing = False
        store = SegmentStore(SegmentLog(self.disk, files.store_directory), self._sync)
        self.node = Node(
            broker=BrokerSettings(name=self.name), ha=self.settings, store=store,
            files=files, ledger=NullLedger(), random_bytes=self._random_bytes, log=self._log,
        )  # fmt: skip
        self.node.start(self.clock.now, self.clock.wall_ms)
        self.network.listen(self.address, self._accept)
        self.on_started(self)
        self._end_tick()

    def kill(self) -> None:
        """End the process and lose what its disk had not synced. Its kernel answers peers with FIN or RST."""
        clean = self.rng.random() < 0.5
        self.clock.note(f"{self.name} is killed ({'FIN' if clean else 'RST'} to its peers)")
        self.on_killed(self)
        self.node = None
        self.network.unlisten(self.address)
        ends = [s.end for s in self.inbound.values()] + [d.end for d in self.dials.values()]
        for end in ends:
            end.close(clean)
        self.inbound.clear()
        self.dials.clear()
        for timer in (self._tick, self._deadline):
            if timer is not None:
                timer.cancel()
        self._tick = self._deadline = self._deadline_at = None
        self.disk.power_loss(self.rng if self.rng.random() < 0.5 else None)

    def role(self) -> str:
        """The status word alone, cheaply; `down` for no process."""
        return "down" if self.node is None else self.node.core.status.value

    def status(self) -> dict[str, object]:
        return self.running.status() if self.node is not None else {"status": "down"}

    def tick_soon(self) -> None:
        if self._tick is None and self.node is not None:
            self._tick = self.clock.after(TICK, self._end_tick)

    # -- inside

    def _random_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def _log(self, sentence: str) -> None:
        self.clock.note(f"{self.name}: {sentence}")

    def _accept(self, end: End) -> InboundSocket | None:
        if self.node is None:
            return None
        self.accepted += 1
        socket = InboundSocket(self, end)
        self.inbound[id(socket.conn)] = socket
        self.tick_soon()
        return socket

    def _end_tick(self) -> None:
        self._tick = None
        node = self.running
        node.end_tick(self.clock.now, self.clock.wall_ms)
        for conn in node.take_dirty():
            socket = self.inbound.get(id(conn))
            if socket is not None:
                socket.flush(self.tap)
        for dial in list(self.dials.values()):
            dial.flush()
        for wanted in node.wants_dials():
            self._dial(wanted)
        self.on_ticked(self)
        if node.stopped is not None:
            raise RuntimeError(f"{self.name} stopped: {node.stopped}")
        self._drive_sync()
        self._set_deadline()

    def _dial(self, wanted: Dial) -> None:
        life = self.life

        def connected(end: End) -> DialSocket:
            socket = DialSocket(self, wanted.dial_id, end)
            if self.node is None or self.life != life:
                end.close(clean=False)
                return socket
            self.dials[wanted.dial_id] = socket
            self.node.dialed(wanted.dial_id, self.clock.now)
            self.tick_soon()
            return socket

        def failed(why: str) -> None:
            if self.node is not None and self.life == life:
                self.node.dial_failed(wanted.dial_id, why, self.clock.now)
                self.tick_soon()

        self.network.connect(f"link-{self.name}", (wanted.host, wanted.port), connected, failed)

    def _drive_sync(self) -> None:
        if not self._syncing and self._sync.wanted and self._sync.write():
            self._syncing = True
            slow = self.slow_time if self.clock.now < self.slow_until else 0.0
            self.clock.after(
                slow + self.sync_time * (0.5 + self.rng.random()), partial(self._synced, self.life)
            )

    def _synced(self, life: int) -> None:
        if self.node is None or self.life != life:
            return
        self._syncing = False
        self._sync.sync()
        self._end_tick_now()

    def _end_tick_now(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self._end_tick()

    def _set_deadline(self) -> None:
        wanted = self.running.next_deadline()
        if wanted == self._deadline_at and self._deadline is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline_at = wanted
        self._deadline = None if wanted is None else self.clock.at(wanted, self._timers)

    def _timers(self) -> None:
        self._deadline = self._deadline_at = None
        self.running.timers(self.clock.now)
        self._end_tick_now()
