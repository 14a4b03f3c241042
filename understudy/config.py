"""Configuration: one TOML file, the environment, and `--set`, in rising order of strength.

Every key `section.key` of the file is also the environment variable `UNDERSTUDY_SECTION__KEY` and the option
`--set section.key=value`. `load` is called by the command line before anything else runs; whatever is wrong
ends as one `ConfigError` whose text is a single line naming the key, the value or the file.
"""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
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
from ha.pacemaker.cib import SET_ID
from understudy.config_contradictions import contradictions
from understudy.config_types import (
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


def _meant(parts: Sequence[str]) -> str:
    """`; did you mean ...?`, if there is a key, or a section, much like that."""
    model: Any = Settings
    for part in parts[:-1]:
        model = model.model_fields[part].annotation if part in getattr(model, "model_fields", {}) else None
    like = get_close_matches(parts[-1], list(getattr(model, "model_fields", ())), 1)
    return f"; did you mean {'.'.join([*parts[:-1], like[0]])}?" if like else ""


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
            text = f"there is no such {'key' if len(parts) > 1 else 'section'}{_meant(parts)}"
        case "value_error":
            text = str(first["ctx"]["error"])
        case "missing":
            text = "is missing"
        case "model_type" | "dict_type":
            text = f"is a table of keys, [{name}], and no value"
        case _:
            text = first["msg"]
            secret = parts[-1].endswith("password") or parts[:2] == ["auth", "users"]
            if not secret and not isinstance(first["input"], dict | list):
                text += f", not {first['input']!r}"
    where = f" ({origin})" if origin else ""
    return " ".join(f"{name}{where}: {text}".split())
