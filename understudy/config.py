"""Configuration: one TOML file, the environment, and `--set`, in rising order of strength.

Every key `section.key` of the file is also the environment variable `UNDERSTUDY_SECTION__KEY` and the option
`--set section.key=value`. `load` is called by the command line before anything else runs; whatever is wrong
ends as one `ConfigError` whose text is a single line naming the key, the value or the file.
"""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from broker.security.authenticator import is_password_hash
from broker.security.identity import HA
from broker.store.errors import of_file
from broker.store.folders import in_the_way
from ha.pacemaker.cib import SET_ID
from understudy.config_types import (
    Addresses,
    Duration,
    DurationOrZero,
    FilePath,
    HostPort,
    Names,
    OptionalAddress,
    PublicAddresses,
    Size,
    SocketPath,
    parse_node_name,
)

ENVIRONMENT_PREFIX = "UNDERSTUDY_"


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
    max_message_size: Size = Field(default=16 * 2**20, ge=1)
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
    password: str = Field(default="ha", min_length=1)
    """Empty, anybody could open the link."""
    listen: OptionalAddress = None
    """A listener of the link's own: peers are let in there and nowhere else, and nobody else is there."""
    tls: bool = False
    """The link speaks TLS, and each end shows a certificate of `tls.ca`."""
    public_brokers: PublicAddresses = ()
    """Where clients find the brokers, in the order of `brokers`; not given: at the same addresses. After
    Qpid's `ha-public-url`."""

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


def load(
    path: Path | None, overrides: Sequence[str] = (), flags: Mapping[str, str | None] | None = None
) -> Settings:
    """Read and check everything.

    `overrides` are `section.key=value` texts, the strongest; `flags` maps `section.key` to the value of a
    command line option, or None when it was not given. Raises ConfigError.
    """
    origins: dict[str, str] = {}
    merged: dict[str, Any] = {}
    if path is not None:
        _merge(merged, _read_file(path), str(path), origins)
    _merge(merged, _read_environment(), "environment", origins)
    given = [(key, value, "command line") for key, value in (flags or {}).items() if value is not None]
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or "." not in key:
            raise ConfigError(f"--set {text}: not of the form section.key=value")
        given.append((key.strip(), value, "--set"))
    for key, value, origin in given:
        _merge(merged, _nested(key.split("."), value), origin, origins)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise ConfigError(_one_line(error, origins)) from None
    for key, fault in contradictions(settings):
        where = f" ({origins[key]})" if key in origins else ""
        raise ConfigError(f"{key}{where}: {fault}")
    return settings


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: nested too deep") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {' '.join(str(error).split())}") from None
    except ValueError:
        raise ConfigError(f"{path}: a number of too many digits") from None


class _Environment(EnvSettingsSource):
    """Lists may be written as in `--set`, `H:P,H:P`; JSON is understood as well."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def _read_environment() -> dict[str, Any]:
    """`UNDERSTUDY_SECTION__KEY`; names without a double underscore (such as UNDERSTUDY_USER) are not
    settings.
    """
    sections = {name.lower() for name in Settings.model_fields}
    for name in os.environ:
        upper = name.upper()
        if upper.startswith(ENVIRONMENT_PREFIX) and "__" in upper:
            section = upper[len(ENVIRONMENT_PREFIX) :].partition("__")[0].lower()
            if section not in sections:
                raise ConfigError(f"environment variable {name}: there is no section {section!r}")
    source = _Environment(Settings)
    found: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        values = source.explode_env_vars(name, field, source.env_vars)
        if values:
            found[name] = values
    return found


def _nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def _merge(
    into: dict[str, Any], new: Mapping[str, Any], origin: str, origins: dict[str, str], at: str = ""
) -> None:
    for key, value in new.items():
        name = f"{at}.{key}" if at else str(key)
        if isinstance(value, dict):
            below = into.setdefault(key, {})
            if not isinstance(below, dict):
                raise ConfigError(f"{name} ({origins[name]}): must be a section, not a value")
            origins.setdefault(name, origin)
            _merge(below, value, origin, origins, name)
        else:
            into[key] = value
            origins[name] = origin


def contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """What is right key by key, and wrong together: which key is to be changed, and why."""
    broker, ha, users = settings.broker, settings.ha, settings.auth.users
    if ha.username in ("guest",) if users is None else ha.username in users:
        yield "ha.username", f"{ha.username!r} is an application's user; the pair's identity is nobody else's"
    if not broker.listen and not broker.tls_listen:
        yield "broker.listen", "needs at least one address HOST:PORT, unless broker.tls_listen has one"
    if ha.listen is not None and ha.listen.port and ha.listen in (*broker.listen, *broker.tls_listen):
        yield "ha.listen", f"{ha.listen} is for clients already, by broker.listen or broker.tls_listen"
    taken: dict[HostPort, str] = {}
    for key, addresses in (("broker.listen", broker.listen), ("broker.tls_listen", broker.tls_listen)):
        for at in addresses:
            if at.port and at in taken:
                yield key, f"{at} is listened at already, by {taken[at]}"
            taken[at] = key
    if ha.authority == "pacemaker" and not ha.brokers:
        yield "ha.brokers", "is needed for ha.authority = 'pacemaker'"
    if twice := [address for number, address in enumerate(ha.brokers) if address in ha.brokers[:number]]:
        yield "ha.brokers", f"has {twice[0]} twice; it names each node of the pair once"
    if ha.min_backups and ha.min_backups >= len(ha.brokers):
        yield (
            "ha.min_backups",
            f"{ha.min_backups} needs more brokers than the {len(ha.brokers)} of ha.brokers",
        )
    if ha.on_backup_loss == "block" and len(ha.brokers) < 2:
        yield (
            "ha.on_backup_loss",
            f"'block' needs more brokers than the {len(ha.brokers)} of ha.brokers, to confirm anything",
        )
    if ha.public_brokers and len(ha.public_brokers) != len(ha.brokers):
        yield (
            "ha.public_brokers",
            f"needs one address for each of the {len(ha.brokers)} of ha.brokers, in their order",
        )
    if ha.listen is not None and ha.brokers and not ha.public_brokers:
        yield (
            "ha.public_brokers",
            "is needed with ha.listen: where clients find each of ha.brokers, in their order",
        )
    yield from _tls_contradictions(settings)


def _tls_contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    tls, ha = settings.tls, settings.ha
    user = "ha.tls" if ha.tls else "broker.tls_listen" if settings.broker.tls_listen else ""
    if user and tls.certificate is None:
        yield "tls.certificate", f"is needed for {user}"
    if tls.certificate is not None and tls.key is None:
        yield "tls.key", "is needed with tls.certificate"
    if tls.certificate is None and (tls.key or tls.ca or tls.client_ca):
        yield "tls.certificate", "is needed with the other files of the section"
    if ha.tls and tls.ca is None:
        yield "tls.ca", "is needed for ha.tls: each end of the link shows a certificate of it"
    if ha.tls and ha.brokers and ha.listen is None:
        yield "ha.listen", "is needed for ha.tls: the link gets a listener of its own"


def _one_line(error: ValidationError, origins: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    parts = [str(part) for part in first["loc"]]
    name = ".".join(parts)
    origin = next(
        (origins[known] for end in range(len(parts), 0, -1) if (known := ".".join(parts[:end])) in origins),
        "",
    )
    match first["type"]:
        case "extra_forbidden":
            text = "there is no such key" if len(parts) > 1 else "there is no such section"
        case "value_error":
            text = str(first["ctx"]["error"])
        case "missing":
            text = "is missing"
        case "model_type" | "dict_type":
            text = f"is a table of keys, [{name}], and no value"
        case _:
            text = first["msg"]
            secret = parts[-1] == "password" or parts[:2] == ["auth", "users"]
            if not secret and not isinstance(first["input"], dict | list):
                text += f", not {first['input']!r}"
    where = f" ({origin})" if origin else ""
    return " ".join(f"{name}{where}: {text}".split())
