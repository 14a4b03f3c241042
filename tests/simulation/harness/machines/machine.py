"""One computer of the cluster: a disk that stays, and a process, the node, that comes and goes.

Does for a `Node` what the asyncio shell does in earnest: hands it bytes, ticks, timers, finished syncs and
the authority's answers, and carries its output to the network. Ways to end: `Death`. `pause` is SIGSTOP: the
kernel goes on taking bytes, the process hears of them after `resume`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from broker.model.history.records import Dequeue
from broker.security.identity import default_users
from broker.settings import BrokerSettings
from broker.store.errors import StoreError
from broker.store.node_files import NodeFiles
from broker.store.segment_log import SegmentLog
from broker.store.store import SegmentStore
from broker.store.sync import ManualSync
from ha.adapter.authority_port import AuthorityOutcome, AuthorityRequest
from ha.adapter.ledger_port import LedgerPort, NullLedger
from ha.adapter.node import Dial, Node
from ha.adapter.settings import HaSettings
from tests.simulation.harness.clock import Clock, Timer
from tests.simulation.harness.machines.host_clock import HostClock
from tests.simulation.harness.machines.machine_sockets import DialSocket, InboundSocket
from tests.simulation.harness.machines.slow_disk import SlowDisk
from tests.simulation.harness.machines.virtual_disk import Crash, VirtualDisk
from tests.simulation.harness.machines.virtual_overflow import VirtualOverflow
from tests.simulation.harness.network import Address, End, Network
from tests.simulation.harness.plan import MachinePlan
from understudy.shared.codes import Coded

DIAL_LIMIT = 2.0
"""Seconds after which the shell gives a dial up."""

AskAuthority = Callable[[str, AuthorityRequest, Callable[[AuthorityOutcome, Any], None]], None]
"""Called with the host, its request and what to do with the answer, which comes once."""
OutputTap = Callable[["Machine", str, bytes], None]
"""Called with the machine, the client's connection name and the bytes, as they are handed to the network."""


class Death(enum.Enum):
    """How a process ends, from what its disk and its peers see of it."""

    KILLED = "killed"
    """kill -9: what it wrote is in the page cache; the kernel answers its peers with FIN or RST."""
    CRASHED = "killed, and its unsynced writes lost"
    """As after a crash of the machine that its peers are told of."""
    POWER = "without power"
    """Its unsynced writes are lost, and no peer is told until the machine is up again."""
    STOPPED = "stopped"
    """SIGTERM: it says its last words, syncs, and ends."""


def _ignore(machine: Machine) -> None:
    """Nobody listens."""


class Machine:
    """`node` is None while the process is down; `refused` says why it could not start, if it could not."""

    def __init__(
        self, clock: Clock, network: Network, rng: Random, plan: MachinePlan, address: Address,
        settings: HaSettings, tap: OutputTap, second: Address | None = None,
    ) -> None:  # fmt: skip
        """`second`: its address on the second network, for the other nodes alone."""
        self.clock = clock
        self.network = network
        self.rng = rng
        self.name = plan.name
        self.address, self.second = address, second
        self.settings = settings
        self.tap = tap
        self.host = HostClock(clock, plan)
        self.disk = VirtualDisk()
        self.node: Node | None = None
        self.refused = ""
        self.ask_authority: AskAuthority | None = None
        """How the register is reached, if there is one."""
        self.users = default_users()
        self.on_started: Callable[[Machine], None] = _ignore
        self.on_killed: Callable[[Machine], None] = _ignore
        self.on_paused: Callable[[Machine], None] = _ignore
        self.on_resumed: Callable[[Machine], None] = _ignore
        self.on_ticked: Callable[[Machine], None] = _ignore
        """Called when the output of a tick was handed on."""
        self.on_dial_output: Callable[[Machine, End, bytes], None] = lambda machine, end, data: None
        self.on_dial_ended: Callable[[Machine, End, bool], None] = lambda machine, end, answered: None
        """A connection that the node asked for: what goes out on it, and that it ended."""
        self.new_ledger: Callable[[], LedgerPort] = NullLedger
        self.life = 0
        self.accepted = 0
        self.inbound: dict[int, InboundSocket] = {}
        self.dials: dict[int, DialSocket] = {}
        self.sync_time = plan.sync_time
        self.tick_time = plan.tick
        self.segment_bytes, self.window = plan.segment, plan.window
        self.large_message, self.share = 1 << 20, 8_000
        self.producers = 10_000
        """The most that may be known."""
        self.slow = SlowDisk()
        self.may_stop = False
        """Its disk is made to fail: that the node stops is what it must do."""
        self.rotten = False
        """A byte of its disk is not what was written, and it has not started since."""
        self.spoilt = False
        """Its copy could not take an event, and is not whole again."""
        self.astray: Dequeue | None = None
        """What its copy has not taken either, and nobody there has noticed yet."""
        self.doomed = False
        self.on_input: Callable[[Machine, str, bytes], None] = lambda machine, connection, data: None
        self.on_log: Callable[[Machine, str], None] = lambda machine, sentence: None
        """It is made to end before long, nobody knows when."""
        self.paused = False
        self._ends: dict[int, End] = {}
        """All connections of this life, as the kernel knows them."""
        self._stop_at_output = self._in_tick = False
        """It is to be stopped in its next tick; it was, and has that tick's output still to hand on."""
        self._backlog: list[Callable[[], None]] = []
        self._sync = ManualSync()
        self.store: SegmentStore | None = None
        self._syncing = False
        self._tick: Timer | None = None
        self._deadline: Timer | None = None
        self._deadline_at: float | None = None

    @property
    def running(self) -> Node:
        if self.node is None:
            raise RuntimeError(f"{self.name} is not running")
        return self.node

    def role(self) -> str:
        """The status word alone, cheaply; `down` for no process."""
        return "down" if self.node is None else self.node.core.status.value

    def status(self) -> dict[str, object]:
        return self.running.status() if self.node is not None else {"status": "down"}

    def spoil(self) -> None:
        self.spoilt = True
        self.clock.note(f"an event of {self.name} is spoilt")

    # -- life

    def start(self) -> bool:
        """Begin a process life on what the disk kept. False if it does not start: `refused` says why."""
        self.life += 1
        self.refused, self.spoilt, self.astray = "", False, None
        self.clock.note(f"{self.name} starts, life {self.life}")
        self.network.power(self.name, True)
        try:
            self._build().start(self.host.now, self.host.wall_ms)
        except Crash:
            self.node = None
            self._lose_power(self.rng)
            self.clock.note(f"FAULT: {self.name} crashes while it starts")
            return False
        except StoreError as error:
            self.node = None
            self.disk.kill()
            self.refused = " ".join(str(error).split())
            self.clock.note(f"{self.name} does not start: {self.refused}")
            return False
        self.rotten = False
        self.network.listen(self.address, self._accept, self.name)
        if self.second is not None:
            self.network.listen(self.second, self._accept, self.name)
            self.network.ways[self.second] = 1
        self.on_started(self)
        self._end_tick()
        return True

    def _build(self) -> Node:
        files = NodeFiles.open(
            self.disk,
            f"/{self.name}",
            self.name,
            number=self.address[1] % 65535 + 1,
            new_id=lambda: self._random_bytes(16).hex(),
        )
        self._sync = ManualSync()
        self._syncing = False
        log = SegmentLog(self.disk, files.store_directory, segment_bytes=self.segment_bytes)
        self.store = SegmentStore(log, self._sync)
        self.node = Node(
            broker=BrokerSettings(
                name=self.name, large_message=self.large_message, share=self.share, users=self.users,
                producers_most=self.producers,
            ),
            ha=self.settings, store=self.store, files=files, ledger=self.new_ledger(),
            random_bytes=self._random_bytes, log=self._log,
            overflow=VirtualOverflow() if self.window else None,
        )  # fmt: skip
        if self.window:
            self.node.vhosts.window = self.window
        return self.node

    def links(self, host: str, way: int) -> list[End]:
        """Its connections with that host on that network, those that it accepted and those that it made."""
        return [end for end in self._ends.values() if end.way == way and end.peer.host == host]

    def kill(self, death: Death = Death.CRASHED, *, fault: bool = True) -> None:
        """End the process now. `fault`: it is injected; else others, or the node itself, had a reason to."""
        clean = self.rng.random() < 0.5
        said = f"FAULT: {self.name}" if fault else self.name
        if death is Death.STOPPED:
            death, clean = self._last_words(said), True
        told = "nobody is told" if death is Death.POWER else f"{'FIN' if clean else 'RST'} to its peers"
        self.clock.note(f"{said} is {death.value} ({told})")
        self.on_killed(self)
        self.node = None
        self.paused = self._stop_at_output = self._in_tick = False
        self._backlog.clear()
        for address in (self.address, self.second):
            if address is not None:
                self.network.unlisten(address)
        for end in self._ends.values():
            if death is Death.POWER:
                end.vanish()
            else:
                end.close(clean)
        self._ends.clear()
        self.inbound.clear()
        self.dials.clear()
        for timer in (self._tick, self._deadline):
            if timer is not None:
                timer.cancel()
        self._tick = self._deadline = self._deadline_at = None
        if death is Death.POWER:
            self.network.power(self.name, False)
        if death is Death.KILLED:
            self.disk.kill()
        else:
            self._lose_power(self.rng if self.rng.random() < 0.5 else None)

    def _lose_power(self, tears: Random | None) -> None:
        self.disk.power_loss(tears)
        self.host.begin_anew()

    def _last_words(self, said: str) -> Death:
        """What it does at SIGTERM; and how it ends, which its disk may decide."""
        if self.node is None or self.paused or self._in_tick:
            return Death.KILLED
        node = self.node
        self.clock.note(f"{said} is told to stop (SIGTERM)")
        try:
            node.stop(self.host.now)
        except Crash:
            return Death.CRASHED
        self._flush(node)
        return Death.KILLED

    def pause(self, *, in_tick: bool = False) -> None:
        """SIGSTOP, between two ticks or, in the next one, before its output is handed to the kernel."""
        if self.node is None or self.paused:
            return
        if in_tick:
            self._stop_at_output = True
            self.tick_soon()
        else:
            self._freeze()

    def _freeze(self) -> None:
        self.clock.note(f"FAULT: {self.name} is stopped (SIGSTOP)")
        self.paused = True
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self.on_paused(self)

    def resume(self) -> None:
        """SIGCONT: ends the tick that it was in, hears what waits for it, or a part, then its timers."""
        self._stop_at_output = False
        if self.role() == "down" or not self.paused:  # what `node` is may change in each line below
            return
        self.clock.note(f"{self.name} goes on (SIGCONT)")
        self.paused = False
        self.on_resumed(self)
        if self._in_tick:
            self._in_tick = False
            self._put_out(self.running)
            if self.node is None:
                return
        heard, self._backlog = self._backlog, []
        first = self.rng.choice((0, len(heard), self.rng.randint(0, len(heard))))
        for action in (*heard[:first], self._timers):
            if self.node is not None:  # an earlier one may have been its end
                action()
        for action in heard[first:]:
            self.hear(action)

    def hear(self, action: Callable[[], None]) -> None:
        """Something happened outside the process: it does `action` about it now, or after its pause."""
        if self.node is None:
            return
        if self.paused:
            self._backlog.append(action)
            return
        self.only_acked = False
        action()
        if not self.only_acked or not self._acks_wait():
            self.tick_soon()

    def _acks_wait(self) -> bool:
        """Whether what was heard needs no tick of its own."""
        if self._tick is None and self.node is not None:
            if self.node.acks_wait(self.host.now) is None:
                return False
            self._set_deadline()
        return True

    def tick_soon(self) -> None:
        if self._tick is None and self.node is not None and not self.paused:
            self._tick = self.clock.after(self.tick_time, self._end_tick)

    # -- inside

    def _random_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def _log(self, told: Coded | str) -> None:
        sentence = told.sentence if isinstance(told, Coded) else told
        self.clock.note(f"{self.name}: {sentence}")
        self.on_log(self, sentence)

    def _accept(self, end: End) -> InboundSocket | None:
        if self.node is None:
            return None
        self._ends[id(end)] = end
        return InboundSocket(self, end)

    def _end_tick(self) -> None:
        """One tick and its output; ends the process if its disk crashes it, or if it wants to end."""
        self._tick = None
        node = self.running
        try:
            node.end_tick(self.host.now, self.host.wall_ms)
        except Crash:
            self.kill(Death.CRASHED)
            return
        if self._stop_at_output:
            self._stop_at_output, self._in_tick = False, True
            self._freeze()
            return
        self._put_out(node)

    def _put_out(self, node: Node) -> None:
        """The output of a tick, and what the node wants next."""
        node.before_output(self.host.now)
        self._flush(node)
        for wanted in node.wants_dials():
            self._dial(wanted)
        for request in node.wants_authority():
            self._ask(request)
        self.on_ticked(self)
        if node.stopped is not None:
            self._stopped(node.stopped)
            return
        self._drive_sync()
        if self.node is not None:
            self._set_deadline()

    def _flush(self, node: Node) -> None:
        for conn in node.take_dirty():
            socket = self.inbound.get(id(conn))
            if socket is not None:
                socket.flush()
        for dial in list(self.dials.values()):
            dial.flush()

    def _stopped(self, why: str) -> None:
        if not self.may_stop:
            raise RuntimeError(f"{self.name} stopped: {why}")
        self.kill(self.rng.choice((Death.KILLED, Death.CRASHED)), fault=False)

    def _dial(self, wanted: Dial) -> None:
        life = self.life
        answered = False

        def connected(end: End) -> DialSocket:
            nonlocal answered
            socket = DialSocket(self, wanted.dial_id, end)
            if self.node is None or self.life != life or answered:
                end.close(clean=False)
                return socket
            answered = True
            self._ends[id(end)] = end
            self.hear(partial(established, socket))
            return socket

        def established(socket: DialSocket) -> None:
            self.dials[wanted.dial_id] = socket
            self.running.dialed(wanted.dial_id, self.host.now)

        def failed(why: str) -> None:
            nonlocal answered
            if self.node is not None and self.life == life and not answered:
                answered = True
                refused = why == "connection refused"
                self.hear(
                    lambda: self.running.dial_failed(wanted.dial_id, why, self.host.now, refused=refused)
                )

        self.network.connect(
            f"link-{self.name}", (wanted.host, wanted.port), connected, failed, host=self.name
        )
        if self.network.troubled:
            self.clock.after(DIAL_LIMIT, lambda: failed("timed out"))

    def _ask(self, request: AuthorityRequest) -> None:
        if self.ask_authority is None:
            raise RuntimeError(f"{self.name} asks an authority that is not there")
        life = self.life

        def answered(
            outcome: AuthorityOutcome, record: dict[str, Any] | None, reason: str, owner_gone: bool = False
        ) -> None:
            if self.life == life:
                self.hear(
                    lambda: self.running.authority_answered(
                        request.request_id, outcome, record, self.host.now, reason, owner_gone
                    )
                )

        self.ask_authority(self.name, request, answered)

    def _drive_sync(self) -> None:
        if not self._syncing and self._sync.wanted:
            try:
                written = self._sync.write()
            except Crash:
                self.kill(Death.CRASHED)
                return
            if written:
                self._syncing = True
                takes = self.slow.takes(self.clock.now) + self.sync_time * (0.5 + self.rng.random())
                self.clock.after(takes, partial(self._synced, self.life))
            elif self.store is not None and self.store.failed is not None:
                self.tick_soon()

    def _synced(self, life: int) -> None:
        if self.node is None or self.life != life:
            return
        if self.paused:
            self._backlog.append(partial(self._synced, life))
            return
        self._syncing = False
        try:
            self._sync.sync()
        except Crash:
            self.kill(Death.CRASHED)
            return
        if self.running.disk_moved():
            self._end_tick_now()
        else:
            self._drive_sync()

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
        self._deadline = None if wanted is None else self.host.at(wanted, self._timers)

    def _timers(self) -> None:
        """What is due; after a pause it is `resume` that looks."""
        self._deadline = self._deadline_at = None
        if self.paused or self.node is None:
            return
        self.running.timers(self.host.now)
        self._end_tick_now()
