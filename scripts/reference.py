"""Writes docs/reference/cli.md from click, error-codes.md from the catalogues of codes, commands.md from the
command table, and the tables of configuration.md from pydantic.

`make reference` calls it.

The description of a setting is the docstring below its field.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import broker.codes
import ha.adapter.codes
import ha.adapter.witness.codes
import ha.core.codes
import ha.etcd.codes
import ha.pacemaker.codes
import understudy.codes
import understudy.ledger.codes
from broker.commands import AMQP_0_9_1, AMQP_0_10, AMQP_1_0, OTHERS, Row
from understudy.cli.main import cli
from understudy.config.settings import Settings
from understudy.config.types import parse_size
from understudy.shared.codes import Code

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = 120
CATALOGUES = {
    "Promotions, demotions, switchovers, joins": ha.core.codes,
    "Commands that a node refuses": ha.adapter.codes,
    "Pacemaker as the authority": ha.pacemaker.codes,
    "etcd as the authority": ha.etcd.codes,
    "The witness as the authority": ha.adapter.witness.codes,
    "The broker": broker.codes,
    "Ledgers, of brokers and clients": understudy.ledger.codes,
    "Commands, the configuration, HTTP and the process": understudy.codes,
}


def commands() -> str:
    """docs/reference/cli.md."""
    lines = [
        "# Commands",
        "",
        "This page lists every command and option of `understudy`. `make reference` generates it.",
        "Exit codes are on [their own page](exit-codes.md).",
        "",
        "## Options of commands that ask a node",
        "",
        "Below, *options of a node* stands for these.",
        "",
        *_table(_asked()),
    ]
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        lines += _command(command, f"understudy {name}", "##")
    return "\n".join(lines).rstrip() + "\n"


def _command(command: click.Command, called: str, level: str) -> Iterator[str]:
    context = click.Context(command, info_name=called)
    context.help_option_names = ["-h", "--help"]
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"{level} {called}", "", "```text", f"{called} {usage}".rstrip(), "```", "")
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        elif paragraph:
            yield from (*_wrapped(paragraph), "")
    rows = _options(command, context)
    shared = _asked()
    if set(shared) <= set(rows):
        rows = [*(row for row in rows if row not in shared), ("", "options of a node")]
    yield from _table(rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _command(inner, f"{called} {name}", "###")


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Those with a help text; an argument says all in the usage line."""
    found = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    return [(option, text) for option, text in found if text and not option.endswith("--help")]


def _asked() -> list[tuple[str, str]]:
    """The options of `ping`, which has no others."""
    context = click.Context(cli)
    ping = cli.get_command(context, "ping")
    assert ping is not None
    return _options(ping, click.Context(ping))


def _table(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield from ("| option | |", "|---|---|")
        yield from (f"| `{_cell(option)}` | {_cell(text)} |".replace("`` ", "") for option, text in rows)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _wrapped(paragraph: str) -> list[str]:
    lines = [""]
    for word in paragraph.split():
        if len(lines[-1]) + len(word) >= WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


def entries() -> dict[str, list[Code]]:
    """What each catalogue lists, by its heading, in the order of the names."""
    return {
        heading: sorted(
            (each for each in vars(module).values() if isinstance(each, Code)), key=lambda code: code.name
        )
        for heading, module in CATALOGUES.items()
    }


def error_codes() -> str:
    """docs/reference/error-codes.md."""
    lines = [
        "# Error codes",
        "",
        "This page lists the codes of refusals, errors and log events, and what to do. "
        "`make reference` generates it.",
        "",
        *_wrapped(
            "A code never changes, and no code is used for anything else later. The sentence around it may "
            "change in any release, so scripts and alarms look for the code. You find it:"
        ),
        "",
        "- at the end of a line on standard error or in the log: `understudy: ... (listen-failed)`;",
        '- as `"code"` beside `"reason"` in JSON: answers of HTTP, and commands with `--format json`;',
        '- as `"code"` in the log with `log.format = "json"`.',
        "",
        *_wrapped(
            "A wrong use of the command line has no code: the line names the option, and the "
            "[exit code](exit-codes.md) is 2 or 3. What closes a channel or a connection of a client has the "
            "code of AMQP: [bad input](bad-inputs.md)."
        ),
        "",
    ]
    for heading, codes in entries().items():
        lines += [f"## {heading}", ""]
        for code in codes:
            lines += [f"### `{code.name}`", ""]
            if code.example:
                lines += ["For example:", ""]
            sentence = code.example or re.sub(r"\{[^}]*\}", "…", code.sentence)
            lines += ["```text", sentence, "```", ""]
            lines += [*_wrapped(code.meaning), "", *_wrapped(f"**Do:** {code.action}"), ""]
    return "\n".join(lines).rstrip() + "\n"


def command_table() -> str:
    """docs/reference/commands.md."""
    lines = [
        "# AMQP commands and history",
        "",
        *_wrapped(
            "This page says for each command what of it is replicated, and what its answer waits for. "
            "`make reference` generates it from `broker/commands.py`; tests run the commands that leave "
            "records, "
            "and fail on a row that does not say what they saw. "
            "The [simulation](../contributing/simulation.md) compares each batch of a node that serves, "
            "and the answers of which it knows the batch."
        ),
        "",
        "- **replicated**: its effect is in history, so a promoted node has it.",
        "- **inferred**: a promoted node comes to the same by itself.",
        "- **local**: only this node has it, and a failover forgets it.",
        "- **session**: it is part of its connection, channel or link, and ends with it.",
        "",
        *_wrapped(
            "*Records* are those that a command may leave ([replication](../explanation/replication.md)); "
            "which "
            "nodes have them depends on the queue's replication. *After its batch*: on the disks and in the "
            "memories that the object needs. *At once*: the answer waits for nothing of its own, but never "
            "overtakes an earlier answer of its channel. A reply (`-ok`) is told with its command where it "
            "waits."
        ),
        "",
        *_wrapped(
            "Of the states of a session, there is *connected*: one connection at the primary. There are no "
            "*shadow* sessions on the backup and no *detached* ones that wait for their client: after a "
            "failover "
            "clients open new ones. A producer that [numbers its messages](../how-to/no-duplicates.md) is "
            "connected, or known without a connection (`understudy list producers`): its entry and its marks "
            "are replicated, so its next session goes on where the last one ended."
        ),
        "",
        "## AMQP 0-9-1",
        "",
    ]
    for heading, rows in AMQP_0_9_1.items():
        lines += [f"### {heading}", "", *_command_rows(rows)]
    lines += ["## AMQP 1.0", "", *_command_rows(AMQP_1_0)]
    lines += ["## Without a command of a client", "", *_plain(_command_rows(OTHERS))]
    lines += [
        "## AMQP 0-10",
        "",
        "The broker does not speak AMQP 0-10. This is what stands for its commands.",
        "",
    ]
    for heading, counterparts in AMQP_0_10.items():
        lines += [f"### 0-10: {heading}", "", "| 0-10 | 0-9-1 / 1.0 | here | |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(each)} |".replace("  ", " ") for each in counterparts]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _command_rows(rows: Sequence[Row]) -> Iterator[str]:
    yield from ("| command | | records | answer | | test |", "|---|---|---|---|---|---|")
    for row in rows:
        called = ", ".join(f"`{name}`" for name in row.commands) + (f" ({row.when})" if row.when else "")
        records = ", ".join(f"`{name}`" for name in row.records) or "none"
        test = row.test.partition("::")[2]
        yield f"| {called} | {row.state.value} | {records} | {row.answer.value} | {row.note} | `{test}` |"
    yield ""


def _plain(rows: Iterator[str]) -> Iterator[str]:
    """Their first cells are words, not names."""
    for row in rows:
        yield re.sub(r"^\| `([^`]+)`", lambda found: "| " + found[1].replace("-", " "), row)


def settings() -> str:
    """docs/reference/configuration.md: its prose as it is, the tables between the marks anew."""
    text = (REFERENCE / "configuration.md").read_text()
    for name, field in Settings.model_fields.items():
        section = field.annotation
        named = not (isinstance(section, type) and issubclass(section, BaseModel))
        (section,) = _models(section)
        begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        assert found and closed, f"configuration.md has no place for the section {name}"
        table = "\n".join(
            ["| key | default | |", "|---|---|---|", *_rows(f"{name}.NAME" if named else name, section)]
        )
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def _rows(prefix: str, section: type[BaseModel]) -> Iterator[str]:
    told = _docstrings(section)
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _rows(f"{prefix}.{name}", field.annotation)
            continue
        if inner := list(_models(field.annotation)):
            yield from _rows(f"{prefix}.{name}.NAME", inner[0])
            continue
        description = told.get(name)
        assert description, f"{prefix}.{name} has no docstring"
        text, _, default = description.partition("Default: ")
        default = default.rstrip(".") or _default(field.get_default(), field)
        yield f"| `{prefix}.{name}` | {_cell(default)} | {_cell(text)} |"


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


def _docstrings(section: type[BaseModel]) -> dict[str, str]:
    """Field -> the string that stands right below it, also in the sections that this one extends."""
    found: dict[str, str] = {}
    for base in section.__bases__:
        if issubclass(base, BaseModel) and base.__module__ == section.__module__:
            found |= _docstrings(base)
    (body,) = [node for node in ast.parse(inspect.getsource(section)).body if isinstance(node, ast.ClassDef)]
    for field, behind in zip(body.body, body.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            found[field.target.id] = inspect.cleandoc(str(behind.value.value))
    return found


def _default(value: object, field: FieldInfo) -> str:
    if value is None or value == () or value is PydanticUndefined:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{_in_units(value, (('d', 86400), ('h', 3600), ('m', 60), ('s', 1), ('ms', 0.001)))}`"
    if parse_size in [getattr(each, "func", None) for each in field.metadata] and isinstance(value, int):
        return f"`{_in_units(value, (('MiB', 2**20), ('KiB', 2**10), ('', 1)))}`"
    return "`" + ",".join(map(str, value)) + "`" if isinstance(value, tuple) else f"`{value}`"


def _in_units(value: float, units: Sequence[tuple[str, float]]) -> str:
    """In the largest unit of which it is a whole number, minutes and hours only from two on."""
    for name, size in units:
        count = round(value / size, 6)
        if count >= (2 if name in ("m", "h") else 1) and count == int(count):
            return f"{int(count)}{name}"
    return str(value)


if __name__ == "__main__":
    (REFERENCE / "cli.md").write_text(commands())
    (REFERENCE / "configuration.md").write_text(settings())
    (REFERENCE / "error-codes.md").write_text(error_codes())
    (REFERENCE / "commands.md").write_text(command_table())
