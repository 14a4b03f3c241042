"""Builds broker, replication, store, ledger and sockets from a configuration, and runs them.

Role: the only place that builds a real `Node`. Called by the `serve` command; returns when the process is to
end. SIGTERM and SIGINT end it gracefully: clients get a close (320), everything is flushed, and the ledger
gets its inventory and its seal.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from broker.engine import Broker
from broker.model.values import ORIGIN, Position
from broker.pieces import assembling_max
from broker.sampling import EVERY
from broker.security.access import Door
from broker.security.identity import ADMINISTRATOR, HA, WITNESS, User, default_users
from broker.server.clock import now, wall_ms
from broker.server.event_loop import TickLoop
from broker.server.login_threads import LoginThreads
from broker.server.shell import Shell
from broker.settings import BrokerSettings
from broker.store.errors import StoreError
from broker.store.files import RealFiles
from broker.store.kernel_sync import KernelSync
from broker.store.node_files import NodeFiles
from broker.store.segment_log import SegmentLog
from broker.store.spill import Spill
from broker.store.store import Base, NullStore, SegmentStore, Store
from broker.store.sync import LoopSync, ThreadSync
from ha.adapter.ledger_port import LedgerPort, NullLedger
from ha.adapter.node import Node
from ha.adapter.settings import HaSettings
from understudy import __version__, codes
from understudy.config.settings import WELL_KNOWN, HaSection, Settings
from understudy.ledger.batches import LedgerSink
from understudy.ledger.writer import LedgerError
from understudy.server.log_lines import set_up_log
from understudy.server.notify import Notifier
from understudy.server.open_files import Room, room, tell
from understudy.server.peerings import dial_tls, federation_of, limits_of, peerings_of, witness_of
from understudy.shared.addresses import HostPort
from understudy.shared.codes import Coded, CodedError
from understudy.shared.compiled_modules import Build

if TYPE_CHECKING:
    from ssl import SSLContext

    from broker.security.tls import Tls
    from ha.etcd.driver import EtcdDriver
    from ha.pacemaker.driver import PacemakerDriver
    from understudy.http.room import Listener
    from understudy.http.server import HttpServer
    from understudy.server.certificates import CertificateWatch

_D = TypeVar("_D", bound="HttpServer")
LOG = logging.getLogger("understudy")
_MEMORY_SHARE = 0.6
_PAGING_SHARE = 0.4
_PAGE = os.sysconf("SC_PAGE_SIZE")


class CannotStart(CodedError):
    """Why the node cannot run."""


class _WakingStore(SegmentStore):
    """Calls `wake` whenever `durable` has moved, on whichever thread syncs."""

    wake: Callable[[], None] = staticmethod(lambda: None)
    busy_since: float | None = None
    """Since when a group has been written to the disk; None if none is."""

    def write_group(self) -> bool:
        self.busy_since = now()
        busy = super().write_group()
        if not busy:
            self.busy_since = None
        return busy

    def sync_group(self) -> None:
        super().sync_group()
        self.busy_since = None

    def group_synced(self, result: int) -> None:
        super().group_synced(result)
        self.busy_since = None

    def start(
        self, base: Base, on_durable: Callable[[], None] | None = None, since: Position = ORIGIN
    ) -> None:
        def moved() -> None:
            if on_durable is not None:
                on_durable()
            self.wake()

        super().start(base, moved, since)


@dataclass(slots=True)
class _Parts:
    """The parts of one node."""

    node: Node
    store: Store
    sync: LoopSync | None
    """What syncs the store, unless only a thread does."""
    files: NodeFiles
    ledger: LedgerPort
    spill: Spill
    tls: Tls | None
    notifier: Notifier


def serve_until_stopped(settings: Settings) -> str | None:
    """Run a node until a signal (returns None), or until it must stop by itself (returns why). Raises
    CannotStart, and ConfigError for unusable TLS files."""
    notifier = Notifier()
    try:
        parts = _build(settings, notifier)
    except StoreError as error:
        raise CannotStart(error.said) from None
    except LedgerError as error:
        raise CannotStart(codes.LEDGER_FAILED.say(fault=error)) from None
    set_up_log(settings.log.level, settings.log.format)
    if settings.broker.amqp10:
        speak_amqp10(parts.node.broker)
    try:
        with asyncio.Runner(loop_factory=TickLoop) as runner:
            return runner.run(_serve(settings, parts))
    finally:
        parts.spill.close()
        parts.files.close()


def speak_amqp10(broker: Broker) -> None:
    """Accept AMQP 1.0, if its engine is installed."""
    try:
        from broker.amqp10.connection import PROTOCOLS
    except ImportError:
        LOG.info(codes.NO_AMQP10.say())
    else:
        broker.protocols.update(PROTOCOLS)


def users_of(settings: Settings) -> tuple[User, ...]:
    """The configured users or the default ones, and the identity of the pair if there is one."""
    auth, ha = settings.auth, settings.ha
    others = _peers(ha)
    for name in ha.witness_for:
        public = ha.witness_password == WELL_KNOWN
        others.append(User(name, frozenset({WITNESS}), password=ha.witness_password, loopback_only=public))
    if auth.default_user is not None:
        tags = frozenset({ADMINISTRATOR})
        others.append(User(auth.default_user, tags, password=auth.default_password))
    elif auth.users is None:
        others += [user for user in default_users() if HA not in user.tags]
    for name, user in (auth.users or {}).items():
        others.append(User(name, frozenset(user.tags), password_hash=user.password))
    return tuple(others)


def _peers(ha: HaSection) -> list[User]:
    """The users who may open the link. The default password is public: it is accepted from loopback only, and
    only in a pair. A standalone broker has such a user only with a password of its own, for brokers that
    mirror its queues."""
    if ha.is_well_known and not ha.brokers:
        return []
    return [User(ha.username, frozenset({HA}), password=ha.password, loopback_only=ha.is_well_known)]


def _build(settings: Settings, notifier: Notifier) -> _Parts:
    """Lock the data directory and build the node. Nothing is served or sent yet."""
    tls = None
    if settings.tls.certificate is not None:  # its library takes long to import
        from understudy.server.certificates import tls_of

        tls = tls_of(settings)
    real = RealFiles()
    files = NodeFiles.open(real, str(settings.broker.data_dir), settings.broker.name)
    try:
        store: Store = NullStore()
        sync = None
        if settings.broker.durable:
            salt = int.from_bytes(os.urandom(8), "big")
            size = settings.broker.segment_size
            log = SegmentLog(real, files.store_directory, salt=salt, segment_bytes=size)
            sync = _loop_sync()
            store = _WakingStore(log, sync or ThreadSync())
        ledger: LedgerPort = NullLedger()
        if settings.ledger.enabled:
            ledger = LedgerSink(
                str(settings.ledger_dir),
                settings.broker.name,
                "broker",
                incarnation=files.identity.incarnation,
                cluster=files.identity.cluster_id or "",
                rotate_bytes=settings.ledger.rotate,
                rotate_age=settings.ledger.rotate_age,
            )
        spill = Spill(
            real, f"{files.directory}/overflow", _paging_limit(settings), resident_bytes, LOG.warning
        )
        node = Node(
            broker=_broker_settings(settings),
            ha=_ha_settings(settings),
            store=store,
            files=files,
            ledger=ledger,
            random_bytes=os.urandom,
            log=partial(_tell, notifier, ledger),
            warn=LOG.warning,
            overflow=spill,
        )
        spill.start()
    except BaseException:
        files.close()
        raise
    return _Parts(node, store, sync, files, ledger, spill, tls, notifier)


def _loop_sync() -> LoopSync | None:
    try:
        return LoopSync(KernelSync())
    except OSError:  # another system, or a container that forbids these calls
        return None


def _tell(notifier: Notifier, ledger: LedgerPort, told: Coded | str) -> None:
    """Log an event of the node, and report it to the manager and the ledger. While the node reads a large
    store, only these events show that it lives."""
    LOG.info(told)
    if isinstance(ledger, LedgerSink):
        ledger.beat()
    notifier.starting(str(told))


def resident_bytes() -> int:
    """Memory of this process that is not swapped out, as the kernel counts it. Its file stays open, because
    it must be readable when no other file can be opened."""
    return int(os.pread(_statm(), 200, 0).split()[1]) * _PAGE


@cache
def _statm() -> int:
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def _broker_settings(settings: Settings) -> BrokerSettings:
    broker = settings.broker
    return BrokerSettings(
        name=broker.name,
        version=__version__,
        product=broker.product,
        product_version=broker.product_version,
        users=users_of(settings),
        allow_plain_without_tls=settings.auth.allow_plain_without_tls,
        external="" if settings.auth.external == "off" else settings.auth.external,
        frame_max=broker.frame_max,
        channel_max=broker.channel_max,
        consumer_max_per_channel=broker.consumer_max_per_channel,
        consumer_max_per_queue=broker.consumer_max_per_queue,
        consumer_timeout=round(1000 * broker.consumer_timeout),
        producers_most=settings.producers.most,
        producers_idle=settings.producers.idle,
        transaction_max=broker.transaction_max,
        heartbeat=round(broker.heartbeat),
        handshake_timeout=broker.handshake_timeout,
        message_max=broker.max_message_size,
        assembling_max=assembling_max(broker.max_message_size),
        memory_limit=broker.memory_limit or _memory_share(_MEMORY_SHARE),
        disk_free_limit=broker.disk_free_limit or None,
    )


def _memory_share(share: float) -> int | None:
    """A share of the machine's memory, in bytes; None if the kernel does not report it."""
    try:
        return int(share * _PAGE * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError):
        return None


def _paging_limit(settings: Settings) -> int:
    """In bytes: the configured limit or the default, but at most the memory limit at which publishers are
    paused."""
    limit = settings.broker.paging_limit or _memory_share(_PAGING_SHARE) or 1 << 40
    return min(limit, settings.broker.memory_limit or limit)


def _ha_settings(settings: Settings) -> HaSettings:
    ha = settings.ha
    return HaSettings(
        brokers=[(first.host, first.port) for first, *_ in ha.brokers],
        routes=[[(address.host, address.port) for address in routes] for routes in ha.brokers],
        public_brokers=[str(address) for address in ha.public_brokers],
        listens=[
            (address.host, address.port)
            for address in (
                (ha.listen,) if ha.listen else (*settings.broker.listen, *settings.broker.tls_listen)
            )
        ],
        replicate=ha.replicate,
        on_backup_loss=ha.on_backup_loss,
        min_backups=ha.min_backups,
        last_man=ha.last_man,
        confirm=ha.confirm,
        ack_timeout=ha.ack_timeout,
        lease=ha.lease,
        backup_timeout=ha.backup_timeout,
        dequeue_lag=ha.dequeue_lag,
        reconnect_grace=ha.reconnect_grace,
        username=ha.username,
        password=ha.password,
        tls=ha.tls,
        authority=ha.authority,
        role=ha.role or "",
        witness=witness_of(ha),
        witness_for=ha.witness_for,
        cib_set=ha.cib_set,
        failover_timeout=ha.failover_timeout,
        etcd_prefix=ha.etcd.prefix,
        peering=limits_of(ha.peering),
        peerings=peerings_of(settings),
        federation=federation_of(settings),
    )


def _disk_moved(node: Node, shell: Shell, thread: int) -> None:
    """Ask for a tick, from any thread; on the broker's own `thread` only where the node has use for one."""
    if threading.get_ident() != thread or node.disk_moved():
        shell.wake()


def _watch_disk(loop: asyncio.AbstractEventLoop, sync: LoopSync, on: bool) -> None:
    if on:
        loop.add_reader(sync.fileno(), sync.ready)
    else:
        loop.remove_reader(sync.fileno())


async def _serve(settings: Settings, parts: _Parts) -> str | None:
    node, store = parts.node, parts.store
    space = room()
    clients = min(settings.broker.max_connections, space.clients)
    node.broker.clients_max = clients
    shell = Shell(node, clients=clients, reserve=space.reserve, lingering=space.lingering)
    if isinstance(store, _WakingStore):
        store.wake = partial(_disk_moved, node, shell, threading.get_ident())
    if parts.sync is not None:
        parts.sync.after_output, parts.sync.unnoticed = node.feeds_backups, node.waits_for_backups
        shell.before_tick, shell.output_sent = parts.sync.look, parts.sync.output_sent
        parts.sync.watch = partial(_watch_disk, asyncio.get_running_loop(), parts.sync)
    passwords = LoginThreads(node.broker.logins, shell)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tell)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shell.request_stop)
    watch = _watch(parts.tls)
    again = _nothing_to_read if watch is None else watch.read
    loop.add_signal_handler(signal.SIGHUP, again)
    parts.notifier.starting("data directory locked, reading the store")
    gc.disable()  # reading a million messages makes no cycles; the shell collects later
    try:
        node.start(now(), wall_ms())
    except StoreError as error:
        parts.ledger.close()
        raise CannotStart(error.said) from None
    doors: list[HttpServer] = []
    stopped: str | None = None
    authority: PacemakerDriver | EtcdDriver | None = None
    sampling: asyncio.Task[None] | None = None
    beats = loop.create_task(_beats(parts.ledger, settings.ledger.heartbeat / 3))
    try:
        authority = _authority(settings, node, shell)
        await _listen(settings, shell, parts.tls)
        if space.clients < settings.broker.max_connections:
            LOG.info(codes.CLIENTS_LIMITED.say(clients=space.clients))
        await _start_http(settings, parts, shell, doors, space)
        sampling = loop.create_task(_sample(node)) if doors else None
        LOG.info(codes.BUILD.say(build=_modules()))
        status, folder = node.status()["status"], os.path.abspath(settings.broker.data_dir)
        LOG.info(codes.NODE_STARTED.say(node=settings.broker.name, status=status, folder=folder))
        parts.notifier.ready(f"{settings.broker.name} accepts connections")
        stopped = node.stopped or await shell.run()
    finally:
        beats.cancel()
        if sampling is not None:
            sampling.cancel()
        parts.notifier.stopping()
        # A node that must stop by itself writes and sends nothing more, because it might be wrong.
        if stopped is None and node.stopped is None:
            node.stop(now())
            await shell.close(settings.broker.stop_timeout)
        else:  # closed links tell the backup that this node no longer serves
            await shell.close(0.0)
        if parts.sync is not None:
            loop.remove_reader(parts.sync.fileno())
        passwords.close()
        if watch is not None:
            watch.stop()
        for door in doors:
            await door.close()
        if authority is not None:
            await authority.close()
        parts.notifier.close()
    if stopped is None:
        LOG.info(codes.NODE_ENDED.say().about(settings.broker.name))
    else:
        LOG.error(codes.NODE_STOPPED.say(reason=stopped).about(settings.broker.name))
    return stopped


async def _beats(ledger: LedgerPort, seconds: float) -> None:
    """Write heartbeats to the ledger from the loop that serves clients: silence means nothing is served."""
    while isinstance(ledger, LedgerSink):
        ledger.beat()
        await asyncio.sleep(seconds)


async def _sample(node: Node) -> None:
    """Sample the counters now and then, for those who ask over HTTP. Others get their turn between steps."""
    while True:
        for _ in node.broker.sampler.passes(now()):
            await asyncio.sleep(0)
        await asyncio.sleep(EVERY)


def _nothing_to_read() -> None:
    """Handler of SIGHUP for a node without TLS. Without a handler the signal would end the process."""
    LOG.info(codes.NOTHING_TO_READ.say())


def _watch(tls: Tls | None) -> CertificateWatch | None:
    if tls is None:
        return None
    from understudy.server.certificates import CertificateWatch

    watch = CertificateWatch(tls)
    watch.start()
    return watch


def _authority(settings: Settings, node: Node, shell: Shell) -> PacemakerDriver | EtcdDriver | None:
    """Carries requests to the authority, if it is outside the pair and no broker. Raises CannotStart if the
    authority cannot be used."""
    driver: PacemakerDriver | EtcdDriver
    match settings.ha.authority:
        case "manual" | "pair":
            return None
        case "pacemaker":
            from ha.pacemaker.driver import PacemakerDriver, cibadmin_is_there, helper_words

            if not cibadmin_is_there():
                raise CannotStart(codes.NO_CIBADMIN.say())
            driver = PacemakerDriver(node, helper_words(settings.ha.cib_set), now, shell.tick_soon)
        case "etcd":
            from understudy.server.etcd import CannotRead, etcd_driver

            try:
                driver = etcd_driver(settings.ha, node, now, shell.tick_soon)
            except CannotRead as fault:
                raise CannotStart(fault.said) from None
    driver.start()
    shell.carry = driver.carry
    return driver


async def _listen(settings: Settings, shell: Shell, tls: Tls | None) -> None:
    """Open all listeners. The first that cannot be opened ends the start."""
    shell.dial_tls = dial_tls(settings, tls)
    apart = settings.ha.listen
    clients = Door.ANY if apart is None else Door.CLIENTS
    for address in settings.broker.listen:
        await _open(shell, address, clients, None)
    if tls is not None:
        for address in settings.broker.tls_listen:
            await _open(shell, address, clients, lambda: tls.clients)
    peers = (lambda: tls.peers) if tls is not None and settings.ha.tls else None
    if apart is not None:
        await _open(shell, apart, Door.PEERS, peers)


async def _open(shell: Shell, address: HostPort, door: Door, tls: Callable[[], SSLContext] | None) -> None:
    try:
        bound = await shell.listen(address.host, address.port, door=door, tls=tls)
    except OSError as error:
        raise CannotStart(codes.LISTEN_FAILED.say(address=address, cause=_reason(error))) from None
    what = "the link" if door is Door.PEERS else "AMQP"
    LOG.info(codes.LISTENS.say(what=what + " over TLS" * (tls is not None), address=HostPort(*bound[:2])))


async def _start_http(
    settings: Settings, parts: _Parts, shell: Shell, doors: list[HttpServer], space: Room
) -> None:
    """Open the HTTP listeners, if any is configured. Imports aiohttp only then, which takes a third of a
    second. Each listener is in `doors` before it opens."""
    broker = settings.broker
    if broker.http is None and broker.control is None:
        return
    from understudy.http.control import ControlServer
    from understudy.http.node.disk_probe import DiskProbe
    from understudy.http.server import HttpServer

    where: object = broker.http
    try:
        if broker.http is not None:
            secure = _http_context(settings, parts)
            doors.append(_door(HttpServer, settings, parts, shell, space, secure))
            bound, scheme = await doors[-1].start(broker.http), "http" if secure is None else "https"
            LOG.info(codes.LISTENS.say(what=scheme.upper(), address=f"{scheme}://{bound}"))
        if broker.control is not None:
            where = broker.control
            control = _door(ControlServer, settings, parts, shell, space)
            doors.append(control)
            store = parts.store
            disk = DiskProbe(broker.data_dir, now, lambda: getattr(store, "busy_since", None))
            await control.start_at(broker.control, disk)
    except OSError as error:
        raise CannotStart(codes.LISTEN_FAILED.say(address=where, cause=_reason(error))) from None


def _http_context(settings: Settings, parts: _Parts) -> Callable[[], SSLContext] | None:
    """TLS for clients of HTTP, if there is to be any."""
    tls = parts.tls
    return (lambda: tls.clients) if tls is not None and settings.broker.http_tls else None


def _door(
    kind: type[_D], settings: Settings, parts: _Parts, shell: Shell, space: Room,
    secure: Callable[[], SSLContext] | None = None,
) -> _D:  # fmt: skip
    from understudy.client_tls import ClientTls, SecureAddress
    from understudy.http.guard import names_of
    from understudy.http.room import NodeFolders
    from understudy.http.server import reachable

    amqp = reachable(HostPort(*shell.addresses[0][:2]))
    if not settings.broker.listen:
        amqp = SecureAddress.of(amqp, ClientTls(itself=True))
    return kind(
        parts.node, parts.node.broker.logins, clock=now, tick_soon=shell.tick_soon, amqp=amqp,
        tls=parts.tls, visitors=space.visitors, hosts=names_of(settings), folders=NodeFolders(
            settings.broker.data_dir, settings.reports_dir, settings.watch_dir,
            tuple(parts.node.settings.client_addresses),
        ),
        listeners=_listeners(settings, shell), secure=secure,
    )  # fmt: skip


def _listeners(settings: Settings, shell: Shell) -> list[Listener]:
    """The AMQP listeners that are open, in the order of `_listen`."""
    from understudy.http.room import Listener

    plain, apart = len(settings.broker.listen), settings.ha.listen is not None
    kinds = ["amqp"] * plain + ["amqp/ssl"] * (len(shell.addresses) - plain - apart)
    bound = zip([*kinds, *["clustering"] * apart], shell.addresses, strict=True)
    return [Listener(kind, str(host), int(port)) for kind, (host, port, *_) in bound]


def _reason(error: OSError) -> str:
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _modules() -> str:
    return "compiled modules" if Build.name == "compiled" else f"plain Python: {Build.reason}"
