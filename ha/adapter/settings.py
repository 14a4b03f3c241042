"""Settings of the high-availability half of a node. Owner: the creator of a `Node` (daemon, simulation,
tests).

The daemon fills them from its configuration file; nothing here reads files or environment. Durations are
seconds as floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.values import UNSET
from ha.adapter.federation.settings import FederationSettings
from ha.adapter.peering.login import PeeringLimits, PeeringLogin
from ha.adapter.witness.place import WitnessPlace
from ha.core.election.manual import ManualAuthority
from ha.core.election.pair.authority import PairAuthority
from ha.core.election.pair.table import PairRole
from ha.core.election.register import LeasingRegister, RegisterAuthority
from ha.core.record.authority import Authority
from ha.core.tuning import Tuning

AUTHORITIES: dict[str, type[Authority]] = {
    "manual": ManualAuthority,
    "pair": PairAuthority,
    "register": RegisterAuthority,
    "pacemaker": RegisterAuthority,
    "etcd": LeasingRegister,
}


@dataclass(slots=True, frozen=True)
class HaSettings:
    """One node's view of its pair. `brokers` lists every member, this node included; empty: standalone."""

    brokers: list[tuple[str, int]] = field(default_factory=list)
    """Where they find each other: the first address of each."""
    routes: list[list[tuple[str, int]]] = field(default_factory=list)
    """All addresses of each, in the same order; empty: the one in `brokers`."""
    public_brokers: list[str] = field(default_factory=list)
    """Where clients find the same brokers, in the same order; empty: at the same addresses."""
    listens: list[tuple[str, int]] = field(default_factory=list)
    """Where this node listens for them, as configured; empty: not known."""
    replicate: str | None = None
    """Default level of queues and exchanges that do not say `x-replicate`; None: `all`. Without brokers there
    is none: they get it when there are some.
    """
    on_backup_loss: str = "continue"
    """`continue`: confirm alone, once the exclusion of whom this node has lost is recorded; `block`: confirm
    nothing while no backup is in sync.
    """
    min_backups: int = 0
    """With fewer backups in sync than this, confirms are held, whatever `on_backup_loss` says."""
    last_man: str = "none"
    """`persist`: while no backup is in sync, the primary keeps transient messages of replicated, durable
    queues on its disk, too; `none`: it does not.
    """
    confirm: str = "all-disks"
    """What the confirm of a persistent message waits for, where no policy says so: `all-disks`,
    `primary-disk` or `all-memory`."""
    ack_timeout: float = 2.0
    """A backup in sync that has not acknowledged for this long is excluded."""
    lease: float = 3.0
    """Length of the leadership lease: once it has expired, nothing is confirmed or delivered. A link
    heartbeat goes out every third of it.
    """
    backup_timeout: float = 5.0
    """After a promotion: how long a member of the record may take to reconnect and catch up."""
    dequeue_lag: float = 0.01
    """Longest time a dequeue may wait to be sent in a range with others."""
    reconnect_grace: float = 10.0
    """After a promotion: how long queues of owners that have not come back live on."""
    username: str = "ha"
    password: str = "ha"
    tls: bool = False
    """The driver's dials speak TLS, and take nobody who is not of the pair's authority."""
    peering: PeeringLimits | None = None
    """Time limits of the connections between the nodes of the pair; None: those of any peering."""
    peerings: Mapping[str, PeeringLogin] = field(default_factory=dict)
    """By name: how this node logs in at brokers of other sites, to follow their queues."""
    federation: FederationSettings | None = None
    """This node in a net of brokers whose exchanges are federated; None: it is in none."""
    authority: str = "manual"
    """`manual`: each node's own copy of the record; `register`: a compare-and-set register outside the pair,
    which the driver asks (`Node.wants_authority`); `pacemaker`: the same, and the register is Pacemaker's
    CIB; `etcd`: the same, and the register keeps a lease of the primary, too: nodes promote themselves;
    `pair`: each node's own copy, and the two promote themselves by what they see of each other.
    """
    role: str = ""
    """Under `pair`: `primary` or `backup`."""
    witness: WitnessPlace | None = None
    """Under `pair`: where a third broker keeps the record and a lease of the primary, as etcd does; None: no
    witness."""
    witness_for: tuple[str, ...] = ()
    """The pairs that have this node for their witness: the names by which they log in."""

    cib_set: str = ""
    """Under `pacemaker`: which set of the CIB holds the record."""
    failover_timeout: float = 5.0
    """Under `etcd` and with a witness: the length of the owner's lease. Once it has run out, a backup
    promotes itself. Under `pair` without a witness: how long the other node may be silent."""
    etcd_prefix: str = ""
    """Under `etcd`: what the keys of the record begin with."""

    def __post_init__(self) -> None:
        if self.routes and [routes[0] for routes in self.routes] != self.brokers:
            raise ValueError("routes do not begin with the addresses of brokers")
        if self.authority not in AUTHORITIES:
            raise ValueError(f"ha.authority is {self.authority!r}, not one of {', '.join(AUTHORITIES)}")

    @property
    def login(self) -> PeeringLogin:
        """At the other nodes of the pair, and at brokers for which no other is named."""
        return PeeringLogin(
            self.username, self.password, tls=self.tls, limits=self.peering or PeeringLimits()
        )

    @property
    def federated(self) -> FederationSettings:
        return self.federation or FederationSettings()

    def login_of(self, peering: str) -> PeeringLogin | None:
        """By name; "" is `login`. None: the configuration has no such peering."""
        return self.peerings.get(peering) if peering else self.login

    @property
    def pair_role(self) -> PairRole | None:
        """None but under `pair`."""
        return PairRole(self.role) if self.authority == "pair" else None

    def new_authority(self) -> Authority:
        """What decides on promotions, for one node."""
        if self.authority == "pair" and self.witness is not None:
            return LeasingRegister()
        return AUTHORITIES[self.authority]()

    @property
    def members(self) -> list[list[tuple[str, int]]]:
        """All addresses of each member."""
        return self.routes or [[address] for address in self.brokers]

    @property
    def dialed(self) -> list[tuple[str, int]]:
        """All addresses of all members."""
        return [address for member in self.members for address in member]

    @property
    def client_addresses(self) -> list[str]:
        """Of all members: the addresses that a client should list."""
        return self.public_brokers or [f"{host}:{port}" for host, port in self.brokers]

    @property
    def default_level(self) -> str:
        """The effective `ha.replicate`; UNSET without brokers."""
        return self.replicate or "all" if self.brokers else UNSET

    @property
    def heartbeat(self) -> float:
        """Seconds between link heartbeats: a third of the lease, and often enough for `ack_timeout` and to
        notice a silent node in time."""
        lease, ack_timeout = self._in_time()
        return min(lease, ack_timeout) / 3

    def _in_time(self) -> tuple[float, float]:
        """`lease` and `ack_timeout`. In a pair that decides by itself, an old primary must have stopped, and
        a backup be excluded, by the time that the other node may serve."""
        if self.authority != "pair":
            return self.lease, self.ack_timeout
        return min(self.lease, self.failover_timeout), min(self.ack_timeout, self.failover_timeout * 2 / 3)

    def compatibility(self) -> dict[str, str]:
        """The settings that a primary and its backups must share, by key of the configuration."""
        register = {}
        if self.authority == "pacemaker":
            register["ha.cib_set"] = self.cib_set
        elif self.authority == "etcd":
            register["ha.etcd.prefix"] = self.etcd_prefix
            register["ha.failover_timeout"] = f"{self.failover_timeout:g}s"
        elif self.authority == "pair":
            register["ha.failover_timeout"] = f"{self.failover_timeout:g}s"
            register["ha.witness"] = str(self.witness or "none")
        if self.federated.node:
            register["federation.node"] = self.federated.node
        return register | {
            "ha.authority": self.authority,
            "ha.confirm": self.confirm,
            "ha.lease": f"{self.lease:g}s",
            "ha.min_backups": str(self.min_backups),
            "ha.on_backup_loss": self.on_backup_loss,
            "ha.replicate": self.default_level,
        }

    def tuning(self) -> Tuning:
        """The same numbers in the form of the core."""
        lease, ack_timeout = self._in_time()
        return Tuning(
            members=len(self.brokers),
            block_on_loss=self.on_backup_loss == "block",
            min_backups=self.min_backups,
            ack_timeout=ack_timeout,
            backup_timeout=self.backup_timeout,
            heartbeat=self.heartbeat,
            lease=lease,
            failover_timeout=self.failover_timeout,
            peers_decide=self.authority == "pair",
            peer_patience=min(0.5, ack_timeout / 2),
            compatibility=self.compatibility(),
        )
