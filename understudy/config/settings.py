"""The settings of a node: sections, keys, their types and defaults.

`load.py` reads them from their sources; `contradictions.py` compares the values of several keys.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from broker.security.authenticator import is_password_hash
from broker.security.identity import HA
from ha.pacemaker.cib import SET_ID
from understudy.config.types import (
    Addresses,
    Duration,
    DurationOrZero,
    Endpoints,
    FilePath,
    HostNames,
    KeyPrefix,
    Members,
    Names,
    OptionalAddress,
    OptionalPublicAddress,
    PublicAddresses,
    ShortName,
    Size,
    SocketPath,
    WitnessNames,
    parse_federation_node,
    parse_node_name,
)
from understudy.shared.addresses import HostPort
from understudy.shared.file_errors import of_file
from understudy.shared.folders import in_the_way

ENVIRONMENT_PREFIX = "UNDERSTUDY_"
WELL_KNOWN = "ha"
"""The default of `ha.password`."""


class ConfigError(Exception):
    """The configuration is invalid. `str()` is one line for a person."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BrokerSection(_Section):
    """The broker itself: its name, its listeners, its data directory and its limits."""

    name: Annotated[str, AfterValidator(parse_node_name)] = Field(default_factory=socket.gethostname)
    """The node's name in `status`, logs and ledgers. It must not begin with `_` or `.`, which would hide its
    ledger. It differs within a pair: a primary takes in no node with its own name, nor with the name of
    another backup. Default: the host's name."""
    listen: Addresses = (HostPort("127.0.0.1", 5672),)
    """One or more addresses for clients, operators and the other node."""
    tls_listen: Addresses = ()
    """The same for clients that use TLS (`amqps`, 1.2 or above). `broker.listen = "off"` leaves only these.
    Needs the section `tls`."""
    data_dir: Path = Path("understudy-data")
    """Identity, in-sync set, store, quarantine and ledger. One process at a time uses it."""
    http: OptionalAddress = None
    """Metrics, health, console and API. Status, health and metrics need no login; all else needs a user with
    a tag of RabbitMQ's management. Idle connections close after 75 s. At most 200 connections: one more
    replaces the one without a login that was silent for longest. Default: `off`."""
    http_tls: bool = False
    """`broker.http` speaks TLS (`https`, 1.2 or above) with the certificate of the section `tls`, which it
    needs. With `tls.client_ca`, browsers and tools show a certificate, too. Without TLS, other machines may
    log in only if `auth.allow_plain_without_tls` is set."""
    http_hosts: HostNames = ()
    """More names by which clients of `broker.http` may address this node, such as that of a proxy or of a
    service. Addresses, loopback and the hosts of the configuration are known; requests for other names get
    421."""
    control: SocketPath = None
    """Absolute path of a Unix socket with the same API without a password. Every process that may open it
    (the node's user and root) is an administrator. `/api/status` there also has `disk`: for how many seconds
    a write in `broker.data_dir` has been under way (`stalled_for`), how long the last one took (`latency`),
    and the error of the disk (`failed`). `/api/promote` there also takes `fenced`, the name of a node that
    certainly no longer runs: the promotion does not wait for its lease. Default: `off`."""
    amqp10: bool = True
    """Clients may use AMQP 1.0 too, at the same listeners, if python-qpid-proton is installed."""
    durable: bool = True
    """False: only the node's identity and in-sync set are on disk, and all messages are in memory only."""
    segment_size: Size = Field(default=32 * 2**20, ge=2**16, le=2**32)
    """The store begins a new file at this size, and frees space by whole files. At least 64 KiB."""
    heartbeat: DurationOrZero = Field(default=60.0, le=65535)
    """The heartbeat interval offered to clients, in whole seconds, at most 65535 s. `0s`: no heartbeats."""
    handshake_timeout: Duration = 10.0
    """Longest time from the accept of a connection to its `connection.open`. A joining node keeps clients
    waiting for this long, and then refuses them."""
    stop_timeout: Duration = 5.0
    """How long a stopping node waits for clients to close. Under Pacemaker the agent sets `1s`, because
    clients were closed at the demotion."""
    frame_max: int = Field(default=131072, ge=4096, le=2**31 - 1)
    """The largest frame offered to clients, in bytes. At least 4096."""
    channel_max: int = Field(default=2047, ge=1, le=65535)
    """Channels of a connection, offered to clients. 1 to 65535."""
    consumer_max_per_channel: int = Field(default=1000, ge=1, le=65535)
    """Consumers of a channel. One more closes its connection with 530. 1 to 65535."""
    consumer_max_per_queue: int = Field(default=10_000, ge=1, le=1_000_000)
    """Consumers of a queue. One more closes its channel with 406. 1 to 1000000."""
    consumer_timeout: DurationOrZero = Field(default=0.0, le=315_360_000)
    """How long a client may keep a message unacknowledged. Then its channel is closed with 406, or its link
    over AMQP 1.0, and its messages are ready again. The argument `x-consumer-timeout` of a queue and
    `consumer-timeout` of a policy, both in milliseconds, come first. RabbitMQ has 30 minutes. `0s`: any
    time."""
    transaction_max: int = Field(default=32_000, ge=1, le=10_000_000)
    """Steps that one commit may take, 1 to 10000000. A larger commit is refused (406). A message takes one
    step for each queue, a dead letter 100, or more if it goes to many queues. Each run of messages with equal
    route, expiration and priority takes 16 more. A commit is not divided: other clients wait some 15 ms for
    32,000 steps."""
    product: str = Field(default="RabbitMQ", min_length=1, max_length=80)
    """The product that clients see in `server_properties`. Celery and kombu set their prefetch for RabbitMQ
    only if the product is RabbitMQ. `understudy_version` and `platform` there name the real broker."""
    product_version: str = Field(default="3.13.7", pattern=r"^[0-9]+(\.[0-9]+){1,3}$")
    """The version that clients see beside `broker.product`."""
    max_connections: int = Field(default=10_000, ge=1, le=60_000)
    """Maximum clients at a time. Peers and operators have a separate reserve. 1 to 60000."""
    max_message_size: Size = Field(default=128 * 2**20, ge=1, le=128 * 2**20)
    """A larger message closes its channel with 311. At most 128 MiB. One connection may hold 17/16
    of this and 1 MiB (at least 64 MiB) of half-received messages, and as much again of uncommitted ones.
    While a message is on its way, the node needs up to six times its size in memory: set a smaller value for
    a small machine."""
    memory_limit: Size | None = None
    """Publishers are paused while the node holds more than this: queued messages, unsent output,
    half-received and uncommitted messages, queues, exchanges, bindings, consumers, connections and channels.
    If unfinished messages alone keep it above the limit for 10 s, the connections that hold most of them are
    closed (506). `0` is the default. Default: 0.6 of the machine's memory."""
    paging_limit: Size | None = None
    """While the process uses more memory than this, messages deep in queues move to files in the data
    directory. A restart discards these files. `0` is the default. Default: 0.4 of the machine's memory."""
    disk_free_limit: Size = Field(default=256 * 2**20, ge=0)
    """Publishers are paused while less than this is free on the disk of `broker.data_dir`, because a full
    disk ends the node; `0`: never."""

    @field_validator("heartbeat")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value != int(value):
            raise ValueError("must be whole seconds, as AMQP sends it")
        return value

    @field_validator("data_dir", mode="before")
    @classmethod
    def _folder(cls, value: object) -> object:
        if isinstance(value, str | Path) and str(value):
            if "\0" in str(value):
                raise ValueError(f"{value!r} is not the path of a directory")
            if (fault := in_the_way(value)) is not None:
                raise ValueError(of_file(fault))
            return value
        raise ValueError("needs the path of a directory")


class TlsSection(_Section):
    """This node's certificate, and the authorities that it trusts. PEM files, read again when they change."""

    certificate: FilePath = None
    """The node's own certificate for its host names, followed by the certificates of issuers in between."""
    key: FilePath = None
    """The key of `tls.certificate`, not encrypted."""
    ca: FilePath = None
    """The authority of the pair's certificates. A peer needs a certificate of this authority."""
    client_ca: FilePath = None
    """The authority of clients' certificates. With it, clients and operators must show a certificate on
    `broker.tls_listen`, in addition to the login."""


class EtcdSection(_Section):
    """Where etcd is, under `ha.authority = "etcd"`."""

    endpoints: Endpoints = ()
    """Client URLs of the members of etcd, version 3.4 or later: `http://HOST:2379` or `https://HOST:2379`.
    Name all of them: the node asks another one when one does not answer."""
    prefix: KeyPrefix = "/understudy/pair"
    """What the keys of this pair begin with. Each pair needs a prefix of its own, the same on all its nodes.
    The node reads and writes PREFIX/record and PREFIX/owner."""
    username: str = ""
    """A user of etcd who may read and write below the prefix; empty for an etcd without users."""
    password: str = ""
    """Its password."""
    ca: FilePath = None
    """The authority of etcd's certificates, for `https`. A PEM file. `off`: those that the machine trusts.
    Default: `off`."""
    certificate: FilePath = None
    """The certificate that this node shows etcd, for an etcd with `--client-cert-auth`. Default: `off`."""
    key: FilePath = None
    """The key of `ha.etcd.certificate`, not encrypted. Default: `off`."""


class PeeringLimitsSection(_Section):
    """Time limits of the connections between the nodes of the pair."""

    handshake_timeout: Duration = Field(default=2.0, ge=0.1, le=60)
    """How long a connection may take to be established, as long again for TLS, and for the login, which takes
    four round trips. 0.1 s to 60 s."""
    heartbeat: Duration = Field(default=5.0, ge=1, le=60)
    """The heartbeat interval of the connection, in whole seconds: a broker that says nothing for twice as
    long counts as gone. Between nodes of a pair, `ha.lease` and `ha.ack_timeout` notice it earlier. 1 s to
    60 s."""
    redial_most: Duration = Field(default=1.0, ge=0.2, le=300)
    """The longest pause between two attempts. The first pauses are shorter: from 0.2 s on they double. 0.2 s
    to 300 s."""

    @field_validator("heartbeat")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value != int(value):
            raise ValueError("must be whole seconds")
        return value


class PeeringSection(PeeringLimitsSection):
    """How this broker logs in at a broker of another site, to mirror its queues: `understudy replicate
    --peering NAME`."""

    handshake_timeout: Duration = Field(default=10.0, ge=0.1, le=60)
    """How long a connection may take to be established, as long again for TLS, and for the login, which takes
    four round trips: 2.4 s over a satellite. 0.1 s to 60 s."""
    username: str = Field(min_length=1, max_length=100)
    """A user of the other broker with the tag `mirror`, who may read the queues."""
    password: str = Field(min_length=1)
    """Its password."""
    vhost: str = Field(default="/", min_length=1, max_length=127)
    """The virtual host of the other broker."""
    tls: bool = False
    """The connection uses TLS, and the other broker's certificate is checked: by `ca`, by `tls.ca`, or by the
    authorities of this machine. With a `tls.certificate`, this node shows it unless `ca` is set."""
    ca: FilePath = None
    """The authorities that the other broker's certificate is checked by. Default: `off`."""


class FederationLoginSection(PeeringLimitsSection):
    """How this broker logs in at an upstream: `understudy federate upstream --login NAME`."""

    handshake_timeout: Duration = Field(default=10.0, ge=0.1, le=60)
    """How long a connection may take to be established, as long again for TLS, and for the login, which takes
    four round trips: 2.4 s over a satellite. 0.1 s to 60 s."""
    username: str = Field(min_length=1, max_length=100)
    """A user of the upstream with the tag `federation`, who may read the exchanges, and configure queues
    whose names begin with `amq.link.`. Of a plain AMQP broker: an ordinary user."""
    password: str = ""
    """Its password, or `password_file`."""
    password_file: FilePath = None
    """A file whose first line is the password. Default: `off`."""
    tls: bool = False
    """The connection uses TLS, and the upstream's certificate is checked: by `ca`, by `tls.ca`, or by the
    authorities of this machine. With a `tls.certificate`, this node shows it unless `ca` is set."""
    ca: FilePath = None
    """The authorities that the upstream's certificate is checked by. Default: `off`."""

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if bool(self.password) == (self.password_file is not None):
            raise ValueError("needs either password or password_file")
        if self.ca is not None and not self.tls:
            raise ValueError("has a ca, which needs tls = true: without it the connection is not encrypted")
        return self


class FederationSection(_Section):
    """The net of brokers that this one belongs to: exchanges here take messages from exchanges there."""

    node: Annotated[str, AfterValidator(parse_federation_node)] = ""
    """The name of this node in the net: the same on both brokers of a pair, and on no other broker. Temporary
    queues have it in their names. Default: none, and this broker is not federated."""
    logins: dict[ShortName, FederationLoginSection] = Field(default_factory=dict)
    """By name, of letters, digits, `-`, `_` and `.`: how this broker logs in at upstreams."""


class HaSection(_Section):
    """The pair: its nodes, its guarantees and its timeouts."""

    brokers: Members = ()
    """Every node of the pair, including this one, the same list on both. A node finds out by itself which one
    it is. A node with an address in each of several networks has them all, at most 4, with `|` between them:
    `"10.0.0.1:5672|192.168.0.1:5672"`. Empty: standalone."""
    replicate: Literal["none", "configuration", "all"] | None = None
    """`none`, `configuration` or `all`, for queues and exchanges without `x-replicate`. Without `ha.brokers`
    it has no effect: queues are `unset`, and get the level of the first pair that the broker serves as its
    primary. Default: `all`."""
    on_backup_loss: Literal["continue", "block"] = "continue"
    """`continue`: confirm alone once the exclusion is recorded. `block`: confirm nothing while no backup is
    in sync, after a loss, a failover, a switchover, a restart and the first promotion; needs two
    `ha.brokers`."""
    min_backups: int = Field(default=0, ge=0)
    """With fewer backups in sync than this, confirms wait, whatever `ha.on_backup_loss` is. Less than the
    number of `ha.brokers`. With `block` it counts as at least 1."""
    confirm: Literal["all-disks", "primary-disk", "all-memory"] = "all-disks"
    """What the confirm of a persistent message on a durable, replicated queue waits for. `all-disks`: the
    disks of the primary and of all backups in sync. `primary-disk`: the disk of the primary and the memory of
    the backups. `all-memory`: the memory of all of them; a primary without a backup in sync waits for its
    disk. The policy key `ha-confirm` sets it for the queues that it matches. The same on all nodes."""
    last_man: Literal["none", "persist"] = "none"
    """`persist`: a primary without a backup in sync also writes transient messages of replicated, durable
    queues to disk, and their confirms wait for that. So a restart of this node alone loses none of them.
    `none`: they stay in its memory only. Each node may have its own."""
    ack_timeout: Duration = 2.0
    """A backup in sync that has not acked for this long is excluded. Under `ha.authority = "pair"` it counts
    as at most two thirds of `ha.failover_timeout`."""
    lease: Duration = 3.0
    """Leadership lease: a primary whose lease is not renewed for this long neither confirms nor delivers. A
    promoted node waits as long, unless it knows that the old primary no longer serves. Set it longer than
    `ha.ack_timeout`, or the loss of a backup stops deliveries for a moment. Under `ha.authority = "pair"` it
    counts as at most `ha.failover_timeout`."""
    backup_timeout: Duration = 5.0
    """After a promotion: how long an expected member may take to come and catch up. Also the silence after
    which a joining node is dropped, and how long the target of a switchover may take to serve."""
    dequeue_lag: DurationOrZero = 0.01
    """How long the primary may hold a consumer's ack, to send it to the backups together with others. `0s`:
    no wait."""
    reconnect_grace: Duration = 10.0
    """After a node starts to serve: how long auto-delete and exclusive queues wait for their clients. A queue
    or exchange that is used by its name within that time stays."""
    authority: Literal["manual", "pair", "pacemaker", "etcd"] = "manual"
    """Who decides which node serves, and where the in-sync set is kept. `manual`: each node has its own copy,
    and an operator promotes. `pair`: the same, and the two nodes decide by themselves, for crashes.
    `etcd`: a key of etcd, for partitions too; a backup promotes itself when the primary is gone.
    `pacemaker`: Pacemaker's CIB, for partitions too. This needs `cibadmin` on the node, and the broker's user
    in the group `haclient`; for a quorum device or three nodes also that user in a `uidgid` section of
    corosync.conf."""
    role: Literal["primary", "backup"] | None = None
    """Under `pair`: `primary` on one node, `backup` on the other. When nobody serves, and both may, the
    primary does. Otherwise the two are alike: a node that comes back joins the one that serves."""
    witness: OptionalPublicAddress = None
    """Under `pair`: a third broker that keeps the in-sync set, as `HOST:PORT` or `amqps://HOST:PORT`. With it
    the pair is safe in a network that is cut in two, and needs no client's vote. Default: `off`."""
    witness_name: ShortName = "pair"
    """The name of this pair at its witness: one of `ha.witness_for` there."""
    witness_password: str = Field(default=WELL_KNOWN, min_length=1)
    """The password of the pairs at their witness, the same on the witness and on both nodes. The default is
    accepted from loopback only."""
    witness_for: WitnessNames = ()
    """On a witness: the names of the pairs for which this broker keeps the in-sync set, such as
    `"orders,billing"`. Each logs in with its name and `ha.witness_password`, and may do nothing else."""
    cib_set: str = "understudy-record"
    """Under `pacemaker`: id of the `cluster_property_set` of the CIB with the in-sync set, one for each pair
    of a cluster. An XML id that no resource or other part of the CIB has, and not `cib-bootstrap-options`."""
    failover_timeout: Duration = Field(default=5.0, ge=1, le=60)
    """Under `etcd`: how long a primary may be silent towards etcd until a backup promotes itself, in whole
    seconds from 2 s. Under `pair`: how long a node may be silent towards the other one, from 1 s. At most
    60 s. If the primary's process dies and its machine lives, a backup does so at once."""
    etcd: EtcdSection = Field(default_factory=EtcdSection)
    peering: PeeringLimitsSection = Field(default_factory=PeeringLimitsSection)
    username: str = Field(default="ha", min_length=1, max_length=100)
    """Name of the pair's own identity, the same on both nodes, and not a user of `auth.users`. It opens the
    link, may manage, and may not publish or consume."""
    password: str = Field(default=WELL_KNOWN, min_length=1)
    """Its password, not empty, the same on both nodes. The default is accepted from loopback only, and not at
    all by a node without `ha.brokers`. With `auth.users` or `auth.default_user`, a pair does not start with
    the default."""
    listen: OptionalAddress = None
    """A listener for the link alone: peers must use it, and others may not. `ha.brokers` are then the
    addresses of these listeners. `off`: the link uses the listeners of clients. Default: `off`."""
    tls: bool = False
    """The link uses TLS, and each end shows a certificate of `tls.ca` for its host in `ha.brokers`. Needs
    `ha.listen` and the section `tls`. On a standalone broker: `understudy replicate` without `--peering`
    uses TLS to its source."""
    public_brokers: PublicAddresses = ()
    """Where clients and operators find the same brokers, in the order of `ha.brokers`, as `HOST:PORT` or
    `amqps://HOST:PORT`. Refusals, `status` and events name these. Needed with `ha.listen`; if not set, the
    addresses are the same."""

    @property
    def routes(self) -> tuple[HostPort, ...]:
        """All addresses of all nodes."""
        return tuple(address for routes in self.brokers for address in routes)

    @property
    def is_well_known(self) -> bool:
        """Whether `password` is the public default."""
        return self.password == WELL_KNOWN

    @field_validator("cib_set")
    @classmethod
    def _xml_id(cls, value: str) -> str:
        if value == "cib-bootstrap-options":
            raise ValueError("must not be Pacemaker's own set")
        if SET_ID.fullmatch(value) is None:
            raise ValueError(
                "must be an XML id of letters, digits, '-', '_' and '.', beginning with a letter or '_'"
            )
        return value


class UserSection(_Section):
    """One user. `password` is an argon2id hash as `understudy passwd` prints it."""

    password: str
    """An argon2id hash; `understudy passwd NAME` prints the lines."""
    tags: Names = ()
    """`administrator`: may ask for the status, promote, demote and switch over. `mirror`: brokers of other
    sites may log in as this user to mirror queues. `ha` is refused: only `ha.username` opens the link."""

    @field_validator("password")
    @classmethod
    def _hashed(cls, value: str) -> str:
        if not is_password_hash(value):
            raise ValueError("must be a hash made by `understudy passwd`, not the password itself")
        return value

    @field_validator("tags")
    @classmethod
    def _no_peer(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if HA in value:
            raise ValueError("'ha' is only for the pair's own identity, ha.username")
        return value


class AuthSection(_Section):
    """The users who may log in. Without any users there is guest/guest, from loopback only."""

    users: dict[str, UserSection] | None = None
    default_user: str | None = Field(default=None, min_length=1)
    """An administrator in place of guest, for containers: `UNDERSTUDY_AUTH__DEFAULT_USER`."""
    default_password: str | None = Field(default=None, min_length=1)
    """The password of `auth.default_user`: `UNDERSTUDY_AUTH__DEFAULT_PASSWORD`."""
    allow_plain_without_tls: bool = False
    """False: without TLS, passwords are accepted from loopback only. True: also on a network that you trust.
    Not needed with TLS. The same rule applies to `ha.password` towards the source of `understudy
    replicate`."""
    external: Literal["off", "distinguished_name", "common_name", "dns", "email", "uri"] = "off"
    """Where the certificate of a client names its user, for SASL EXTERNAL, without a password: the subject,
    its common name, or the only subject alternative name of a kind. Needs `tls.client_ca`."""


class LedgerSection(_Section):
    """The ledger that Spark reads. Without it, nothing can be proven later."""

    enabled: bool = True
    """False: nothing can be proven later."""
    dir: Path | None = None
    """Where the ledger is written. Default: `ledger` below `broker.data_dir`."""
    rotate: Size = Field(default=64 * 2**20, ge=1)
    """Above this size a new file begins. Only `understudy ledger prune` deletes files."""
    rotate_age: DurationOrZero = 86400.0
    """After this time a new file begins; `0s`: never."""
    heartbeat: Duration = 5.0
    """A running node writes at least this often. Longer silence raises an alarm."""

    @field_validator("dir", mode="before")
    @classmethod
    def _folder(cls, value: object) -> object:
        if value == "":
            raise ValueError("needs the path of a directory")
        return value


class ProducersSection(_Section):
    """Producers that number their messages (client property `producer_id`): none is enqueued twice."""

    most: int = Field(default=10_000, ge=1, le=1_000_000)
    """Producers that the node knows. One more takes the place of the one that was not connected for longest;
    if all are connected, it is refused with 406."""
    idle: Duration = 7 * 86400.0
    """A producer that was not connected for so long is forgotten. What it sends again after that may be in
    its queues twice."""


class ConsoleSection(_Section):
    """What the web console shows files of, at `broker.http`."""

    reports: Path | None = None
    """Folder of reports (`*.html`). Default: `reports` below `broker.data_dir`."""
    watch: Path | None = None
    """Checkpoint of `understudy watch`. Default: the ledger's folder with `.watch` behind its name."""


class LogSection(_Section):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`, to standard error."""
    format: Literal["text", "json"] = "text"
    """`text`, or `json`: one object a line with `time` (UTC), `level`, `logger`, `message`, `code` from
    warnings on, and `traceback` after a fault of the program."""


class Settings(BaseSettings):
    """All settings, checked. Built by `load` only."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=False,
    )

    broker: BrokerSection = Field(default_factory=BrokerSection)
    ha: HaSection = Field(default_factory=HaSection)
    peerings: dict[ShortName, PeeringSection] = Field(default_factory=dict)
    """By name, of letters, digits, `-`, `_` and `.`: other sites."""
    federation: FederationSection = Field(default_factory=FederationSection)
    auth: AuthSection = Field(default_factory=AuthSection)
    tls: TlsSection = Field(default_factory=TlsSection)
    ledger: LedgerSection = Field(default_factory=LedgerSection)
    producers: ProducersSection = Field(default_factory=ProducersSection)
    log: LogSection = Field(default_factory=LogSection)
    console: ConsoleSection = Field(default_factory=ConsoleSection)

    @property
    def reports_dir(self) -> Path:
        return self.console.reports or self.broker.data_dir / "reports"

    @property
    def watch_dir(self) -> Path:
        return self.console.watch or self.ledger_dir.with_name(self.ledger_dir.name + ".watch")

    @property
    def ledger_dir(self) -> Path:
        return self.ledger.dir or self.broker.data_dir / "ledger"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the values that `load` merged. `load` reads the file and the environment itself, so that it
        can name the source of an invalid value."""
        return (init_settings,)
