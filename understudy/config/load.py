"""Reads the configuration: one TOML file, the environment, and `--set`. Later ones win.

Every key `section.key` of the file is also the environment variable `UNDERSTUDY_SECTION__KEY` and the option
`--set section.key=value`. The command line calls `load` before anything else runs. An error becomes one
`ConfigError`, whose text is a single line that names the key, the value or the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from understudy.config.contradictions import contradictions
from understudy.config.settings import ENVIRONMENT_PREFIX, ConfigError, Settings


def load(
    path: Path | None, overrides: Sequence[str] = (), flags: Mapping[str, str | None] | None = None
) -> Settings:
    """Read and check the configuration.

    `overrides` are `section.key=value` texts, which win over everything else. `flags` maps `section.key` to
    the value of a command line option, or None if it was not given. Raises ConfigError.
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
        raise ConfigError(f"{path}: a number has too many digits") from None


class _Environment(EnvSettingsSource):
    """Accepts lists as in `--set`, `H:P,H:P`, and also JSON."""

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
    """`; did you mean ...?` if a key or section has a similar name; else empty."""
    model: Any = Settings
    for part in parts[:-1]:
        model = model.model_fields[part].annotation if part in getattr(model, "model_fields", {}) else None
    like = get_close_matches(parts[-1], list(getattr(model, "model_fields", ())), 1)
    return f"; did you mean {'.'.join([*parts[:-1], like[0]])}?" if like else ""


def _one_line(error: ValidationError, origins: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    parts = [str(part) for part in first["loc"] if part != "[key]"]
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
            text = f"must be a section, [{name}], not a value"
        case _:
            text = first["msg"]
            secret = parts[-1].endswith("password") or parts[:2] == ["auth", "users"]
            if not secret and not isinstance(first["input"], dict | list):
                text += f", not {first['input']!r}"
    where = f" ({origin})" if origin else ""
    return " ".join(f"{name}{where}: {text}".split())
