"""`understudy definitions export|import`: RabbitMQ's definitions JSON, to and from a running pair.

Exit codes: 2 if the file is invalid, or under --strict has something unsupported, and nothing was changed; 1
if something was refused or failed, and the output says how much was done.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.progress import MofNCompleteColumn

from understudy import codes
from understudy.cli.exit_codes import FAILED
from understudy.cli.node import primary_of, question, status_of
from understudy.cli.options import Failed, Wrong, broker_options, leave, node_options, progress_bar
from understudy.definitions.apply import (
    DECLARED,
    KINDS,
    ImportOutcome,
    carry_out,
    expected,
    summary_of,
)
from understudy.definitions.entries import NOUNS
from understudy.definitions.export import COMMAND, Listing, ListingRefused, document_of, text_of
from understudy.definitions.parse import Definitions, answered, read_definitions
from understudy.definitions.plan import ImportPlan, check_vhost, plan_of
from understudy.definitions.strict_json import DefinitionsError
from understudy.definitions.unsupported import counted
from understudy.management import SERVING
from understudy.shared.addresses import HostPort


@click.group()
def definitions() -> None:
    """Export and import virtual hosts, users, permissions, policies, queues, exchanges, bindings, and the
    upstreams and agents of federation, in the JSON of RabbitMQ's definitions.

    Export yours from RabbitMQ with `rabbitmqctl export_definitions FILE` or `rabbitmqadmin export FILE`.
    """


@definitions.command("export")
@click.argument("file", required=False, default="-", type=click.Path(path_type=Path, dir_okay=False))
@node_options
def export(file: Path, address: HostPort, user: str, password: str, timeout: float) -> None:
    """Write the definitions of the node, or of its primary, to FILE or to standard output.

    Two exports of the same definitions are identical, byte for byte.
    """
    _, found = _listing(address, user, password, timeout)
    pieces = text_of(document_of(found))
    if str(file) == "-":
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    try:
        _write(file, pieces)
    except OSError as error:
        fault = f"cannot write {file}: {error.strerror or error}"
        raise Failed(codes.FILE_FAILED.say(fault=fault)) from None


@definitions.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@broker_options
@click.option(
    "--quorum-as-classic",
    is_flag=True,
    help="Import quorum queues as durable queues, which the pair replicates.",
)
@click.option("--vhost", help="Virtual host for an export of a single virtual host.")
@click.option(
    "--strict", is_flag=True, help="Change nothing if FILE has anything that this broker does not support."
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def import_(
    file: Path, address: HostPort, user: str, password: str, timeout: float, form: str,
    quorum_as_classic: bool, vhost: str | None, strict: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Declare the definitions in FILE, on the node or on its primary; "-" is standard input.

    Nothing is deleted, and the import may be repeated. Existing queues and exchanges stay as they are.
    Virtual hosts, users with their passwords, permissions, policies, upstreams and agents are changed to what
    FILE has. The output names what this broker does not support.
    """
    wanted = _read(file, vhost)
    address, found = _listing(address, user, password, timeout)
    try:
        there = _there(found, address)
        if vhost is not None:
            check_vhost(vhost, wanted, there)
        plan = plan_of(wanted, there, quorum_as_classic=quorum_as_classic)
    except DefinitionsError as error:
        raise Wrong(codes.DEFINITIONS_INVALID.say(fault=f"{file}: {error}")) from None
    _tell_left_out(plan)
    if strict and (missed := sum(left.matters for left in plan.left_out)):
        fault = f"{file}: {counted(missed, 'kind')} of things that Understudy does not support"
        raise Wrong(codes.DEFINITIONS_UNSUPPORTED.say(fault=fault))
    if dry_run:
        outcome = expected(plan)
    else:
        with progress_bar("declaring", len(plan.items), MofNCompleteColumn()) as progress:
            outcome = carry_out(plan, address, user, password, timeout, progress)
    _tell(plan, outcome, address, form, dry_run=dry_run)


# -- the node


def _listing(
    address: HostPort, user: str, password: str, timeout: float
) -> tuple[HostPort, dict[str, list[dict[str, Any]]]]:
    """The address of the node that answered, and its definitions: the node at `address`, or the primary that
    it names."""
    found = status_of(question(address, "status", user, password, timeout))
    if found["status"] not in SERVING:
        address = primary_of(found) or address
    listing = Listing()
    try:
        while not listing.take(question(address, COMMAND, user, password, timeout, listing.question())):
            pass
    except ListingRefused as error:
        raise Failed(error.said.about(f"{address}")) from None
    return address, listing.found


def _there(found: dict[str, list[dict[str, Any]]], address: HostPort) -> Definitions:
    try:
        return answered(dict(found))
    except DefinitionsError as error:
        raise Failed(codes.BAD_ANSWER.say(fault=f"{address}: a definition is invalid: {error}")) from None


# -- files


def _read(file: Path, vhost: str | None) -> Definitions:
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        fault = f"cannot read {file}: {error.strerror or error}"
        raise Wrong(codes.FILE_FAILED.say(fault=fault)) from None
    try:
        return read_definitions(raw, vhost=vhost)
    except DefinitionsError as error:
        raise Wrong(codes.DEFINITIONS_INVALID.say(fault=f"{file}: {error}")) from None


def _write(file: Path, pieces: Iterable[bytes]) -> None:
    """Write the whole file or nothing, unless it is a pipe or a device. Raises OSError."""
    if file.exists() and not stat.S_ISREG(file.stat().st_mode):
        with file.open("wb") as stream:
            stream.writelines(pieces)
        return
    target = Path(os.path.realpath(file))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    with tempfile.NamedTemporaryFile(
        "wb", dir=target.parent, prefix=f".{target.name}.", delete=False
    ) as made:
        try:
            made.writelines(pieces)
            made.flush()
            os.fsync(made.fileno())
            os.chmod(made.name, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            os.replace(made.name, target)
        except BaseException:
            os.unlink(made.name)
            raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# -- the outcome


def _tell_left_out(plan: ImportPlan) -> None:
    for left in plan.left_out:
        click.echo(f"understudy: not supported: {left.text}", err=True)


def _tell(plan: ImportPlan, outcome: ImportOutcome, address: HostPort, form: str, *, dry_run: bool) -> None:
    if form == "json":
        click.echo(json.dumps(summary_of(plan, outcome, dry_run=dry_run)))
    else:
        would = "would be " if dry_run else ""
        counts = plan.counts()
        for kind in KINDS:
            new, changed = outcome.new[kind], outcome.changed[kind]
            others = f", {changed:,} {would}changed" if changed else ""
            line = f"{counted(new, NOUNS[kind])} {would}declared{others}, there already: "
            if counts[kind] or kind in DECLARED:
                click.echo(f"{address}: {line}{outcome.there[kind]:,}")
    for line in outcome.refused:
        click.echo(f"understudy: {'would be refused' if dry_run else 'refused'}: {line}", err=True)
    if outcome.why:
        raise Failed(
            codes.DEFINITIONS_STOPPED.say(
                address=address, done=outcome.done, all=len(plan.items), cause=outcome.why
            )
        )
    if outcome.refused:
        leave(FAILED)
