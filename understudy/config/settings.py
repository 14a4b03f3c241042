"""The settings of a node: sections, keys, their types and defaults.

`load.py` reads them from their sources; `contradictions.py` compares the values of several keys.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
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
    FilePath,
    HostNames,
    HostPort,
    Names,
    OptionalAddress,
    PublicAddresses,
    Size,
    SocketPath,
    parse_node_name,
)
from understudy.shared.file_errors import of_file
from understudy.shared.folders import in_the_way

ENVIRONMENT_PREFIX = "UNDERSTUDY_"
WELL_KNOWN = "ha"
"""The default of `ha.password`."""


class ConfigError(Exception):
    """Something in the configuration is wrong; `str()` is one line for a person."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BrokerSection(_Section):
    """The broker itself: what it is called, where it listens, where it keeps things, how much it takes."""

    name: Annotated[str, AfterValidator(parse_node_name)] = Field(default_factory=socket.gethostname)
    listen: Addresses = (HostPort("127.0.0.1", 5672),)
    tls_listen: Addresses = ()
    """The same for clients that speak TLS from the first octet on (amqps); needs the section `tls`."""
    data_dir: Path = Path("understudy-data")
    http: OptionalAddress = None
    http_hosts: HostNames = ()
    """Names under which clients of `http` find this node, besides those that it knows by itself."""
    control: SocketPath = None
    """A Unix socket with the same API, for what manages the node on its own machine; no password."""
    amqp10: bool = True
    """Clients may speak AMQP 1.0 as well, at the same listeners, where its engine is installed."""
    durable: bool = True
    """False: nothing is written to disk but the node's identity; messages live in memory only."""
    segment_size: Size = Field(default=32 * 2**20, ge=2**16, le=2**32)
    """The store begins a new file after so much; it gives back whole files."""
    heartbeat: DurationOrZero = Field(default=60.0, le=65535)
    """The wire has 16 bits for it."""
    handshake_timeout: Duration = 10.0
    stop_timeout: Duration = 5.0
    frame_max: int = Field(default=131072, ge=4096, le=2**31 - 1)
    channel_max: int = Field(default=2047, ge=1, le=65535)
    consumer_max_per_channel: int = Field(default=1000, ge=1, le=65535)
    consumer_max_per_queue: int = Field(default=10_000, ge=1, le=1_000_000)
    transaction_max: int = Field(default=100_000, ge=1, le=10_000_000)
    product: str = Field(default="RabbitMQ", min_length=1, max_length=80)
    """What clients are told that this broker is: libraries go by it."""
    product_version: str = Field(default="3.13.7", pattern=r"^[0-9]+(\.[0-9]+){1,3}$")
    max_connections: int = Field(default=10_000, ge=1, le=60_000)
    """Clients at a time. Peers and operators have places of their own."""
    max_message_size: Size = Field(default=128 * 2**20, ge=1, le=128 * 2**20)
    memory_limit: Size | None = None
    """Publishers are paused above this; default: 0.6 of the machine's memory."""
    paging_limit: Size | None = None
    """Above this much memory of the process, messages deep in queues leave it for the disk; default: 0.4 of
    the machine's memory."""
    disk_free_limit: Size = Field(default=256 * 2**20, ge=0)
    """Publishers are paused while less is free on the disk of `data_dir`; a full disk would end the node."""

    @field_validator("heartbeat")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value != int(value):
            raise ValueError("must be whole seconds: so it is on the wire")
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
    """This node's certificate and whom it trusts; PEM files, read again when they change."""

    certificate: FilePath = None
    """Its own, for its host names, and those of the issuers between it and the authority."""
    key: FilePath = None
    ca: FilePath = None
    """The authority of the pair's certificates."""
    client_ca: FilePath = None
    """The authority of clients' certificates; with it, a client has to show one."""


class HaSection(_Section):
    """The pair: who belongs to it and how long each may keep the others waiting."""

    brokers: Addresses = ()
    replicate: Literal["none", "configuration", "all"] | None = None
    on_backup_loss: Literal["continue", "block"] = "continue"
    min_backups: int = Field(default=0, ge=0)
    ack_timeout: Duration = 2.0
    lease: Duration = 3.0
    backup_timeout: Duration = 5.0
    dequeue_lag: DurationOrZero = 0.01
    reconnect_grace: Duration = 10.0
    authority: Literal["manual", "pacemaker"] = "manual"
    cib_set: str = "understudy-record"
    """Id of the cluster_property_set of the CIB that holds the pair's record, under `pacemaker`."""
    username: str = Field(default="ha", min_length=1, max_length=100)
    password: str = Field(default=WELL_KNOWN, min_length=1)
    """Empty, anybody could open the link."""
    listen: OptionalAddress = None
    """A listener of the link's own: peers are let in there and nowhere else, and nobody else is there."""
    tls: bool = False
    """The link speaks TLS, and each end shows a certificate of `tls.ca`."""
    public_brokers: PublicAddresses = ()
    """Where clients find the brokers, in the order of `brokers`; not given: at the same addresses. After
    Qpid's `ha-public-url`."""

    @property
    def is_well_known(self) -> bool:
        """Whether `password` is the one that everybody knows."""
        return self.password == WELL_KNOWN

    @field_validator("cib_set")
    @classmethod
    def _xml_id(cls, value: str) -> str:
        if value == "cib-bootstrap-options":
            raise ValueError("must not be the set that is Pacemaker's own")
        if SET_ID.fullmatch(value) is None:
            raise ValueError("must be an XML id of letters, digits, '-', '_' and '.', a letter or '_' first")
        return value


class UserSection(_Section):
    """One user. `password` is an argon2id hash as `understudy passwd` prints it."""

    password: str
    tags: Names = ()

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
            raise ValueError("'ha' is for the pair's own identity, which ha.username and ha.password are")
        return value


class AuthSection(_Section):
    """Who may log in. With no users at all there is guest/guest, from loopback only."""

    users: dict[str, UserSection] | None = None
    default_user: str | None = Field(default=None, min_length=1)
    """An administrator, with the password of the next key: for containers, by the environment. Then there is
    no guest."""
    default_password: str | None = Field(default=None, min_length=1)
    allow_plain_without_tls: bool = False


class LedgerSection(_Section):
    """The books that Spark reads. Off, nothing can be proven later."""

    enabled: bool = True
    dir: Path | None = None
    """Default: `ledger` below `broker.data_dir`."""
    rotate: Size = Field(default=64 * 2**20, ge=1)
    rotate_age: DurationOrZero = 86400.0
    """A new file is begun at the latest after this; 0: never."""
    heartbeat: Duration = 5.0
    """Silence of a ledger for longer than this means that its node is silent too."""

    @field_validator("dir", mode="before")
    @classmethod
    def _folder(cls, value: object) -> object:
        if value == "":
            raise ValueError("needs the path of a directory")
        return value


class LogSection(_Section):
    """What goes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Settings(BaseSettings):
    """All of it, checked. Built by `load` only."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=False,
    )

    broker: BrokerSection = Field(default_factory=BrokerSection)
    ha: HaSection = Field(default_factory=HaSection)
    auth: AuthSection = Field(default_factory=AuthSection)
    tls: TlsSection = Field(default_factory=TlsSection)
    ledger: LedgerSection = Field(default_factory=LedgerSection)
    log: LogSection = Field(default_factory=LogSection)

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
        """Only what `load` merged: it reads file and environment itself, so that it can say where a fault
        is.
        """
        return (init_settings,)
