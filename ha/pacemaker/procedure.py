"""How the record is read from the CIB and swapped in it: which commands, in which order. Sans-I/O.

Each procedure is a generator. It yields lists of commands, to be run in parallel, gets the list of their
results in the same order, and returns its CibAnswer. The helper runs it with cibadmin, the simulation with
virtual CIBs:

    procedure = read(register)
    commands = next(procedure)
    ... commands = procedure.send([run(c) for c in commands]) ... StopIteration.value is the CibAnswer

The outcomes: `done` and `conflict` need a copy of the CIB that counted (see `standing`) when it was read;
after a swap the CIB is read once more. `not yet` means that nothing was written, and that the same swap may
be right later. A command that fails, or does not end in time, makes the outcome `unknown`.

A cluster node that is away may come back with an old copy of the CIB. When copies meet, the one with the
highest (admin_epoch, epoch, num_updates) replaces the others. So a swap that is made while a node is away
first raises the admin_epoch, which Pacemaker leaves to administrators, so that the copies of inactive nodes
are outdated ("Pacemaker Explained", CIB properties). A copy that does not count never gets that far.

Every CIB daemon of the ring makes a write on its own copy, also the daemon of a node that is back and has not
got the cluster's copy yet. So the raise is a compare-and-set, too, which an old copy does not match. And no
broker is included before its node has joined: it could be promoted from an old copy, which the raised copies
outrank later.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ha.core.record.in_sync_record import RecordVersion
from ha.pacemaker import codes
from ha.pacemaker.cib import CibError, CibView, read_cib, set_xml
from ha.pacemaker.standing import Standing, Votes, judge, members, wants_votes
from understudy.shared.codes import Coded

TRIES = 4
"""How often copies are looked at, at most, while a change is on its way between them."""
NO_SUCH, EXISTS = 105, 108
"""Exit codes of cibadmin (crm_exit_t): nothing matches the XPath; the object is there already."""


@dataclass(slots=True, frozen=True)
class Register:
    """Where the record is, and from where it is asked."""

    node: str
    """This node's name in the cluster."""
    set_id: str = "understudy"


@dataclass(slots=True, frozen=True)
class QueryCib:
    """A whole CIB as XML: of this node's own CIB daemon (None), or of another node's."""

    node: str | None = None


@dataclass(slots=True, frozen=True)
class CreateSet:
    """Create the set in crm_config; exit code EXISTS if there is one of this id."""

    set_id: str
    xml: str


@dataclass(slots=True, frozen=True)
class ReplaceSet:
    """Replace the set if its version is `expected`; exit code NO_SUCH if it is another, or there is none."""

    set_id: str
    expected: RecordVersion
    xml: str


@dataclass(slots=True, frozen=True)
class RaiseAdminEpoch:
    """Raise the admin_epoch by one in copies like this one: with the same admin_epoch and epoch, the same
    version of the record, and `node` as a member. Exit code NO_SUCH where a copy differs."""

    node: str
    set_id: str
    admin_epoch: int
    epoch: int
    version: RecordVersion | None
    """As they are; None: there is no set."""


@dataclass(slots=True, frozen=True)
class AskQuorum:
    """The votes, as corosync's votequorum counts them here: the result has them in `votes`."""


Outcome = Literal["done", "conflict", "not yet", "unknown"]
Command = QueryCib | CreateSet | ReplaceSet | RaiseAdminEpoch | AskQuorum


@dataclass(slots=True, frozen=True)
class Result:
    """The result of a command."""

    code: int | None
    """Exit code; None: it was not heard of in time, or could not be run."""
    output: str = ""
    error: str = ""
    """One line for people, if `code` is not 0."""
    votes: Votes | None = None


@dataclass(slots=True, frozen=True)
class CibAnswer:
    """The outcome as `Node.authority_answered` takes it, and how it comes about."""

    outcome: Outcome
    record: dict[str, Any] | None
    said: Coded


Procedure = Generator[list[Command], list[Result], CibAnswer]
_Looking = Generator[list[Command], list[Result], tuple[CibView, Standing]]


def read(register: Register) -> Procedure:
    """Read the register: `done` with the record, or with None if there is none."""
    view, standing = yield from _look(register)
    if not standing.ok:
        return _unknown(standing.said)
    return CibAnswer("done", view.document, standing.said)


def swap(register: Register, expected: RecordVersion | None, record: Mapping[str, Any]) -> Procedure:
    """Have `record` replace the one of version `expected` (None: there is none). A `conflict` has the record
    that is held; it may be this very record, from an earlier swap whose answer was lost."""
    view, standing = yield from _look(register)
    if not standing.ok:
        return _unknown(standing.said + "; nothing was written")
    if view.document == record:
        answer = yield from _there(register, view, standing, record, ())
        return answer if answer.outcome != "done" else _conflict(view)
    if early := _included_early(view, standing, record):
        return CibAnswer("not yet", None, codes.NODE_JOINING.say(nodes=early))
    if standing.without and view.version == expected:
        view, standing = yield from _outrank(register, view)
        if not standing.ok:
            return _unknown(standing.said + "; nothing was written")
    if view.version != expected:
        return _conflict(view)
    away = [name for name in standing.without if not _hears(view, name)]
    (written,) = yield [_write(register, expected, record)]
    if written.code not in (0, NO_SUCH, EXISTS):
        return _unknown(codes.WRITE_UNSURE.say(cause=_said(written)))
    view, standing = yield from _look(register)
    if not standing.ok:
        return _unknown(standing.said.about("the CIB may have the new record or not"))
    if view.document == record:
        answer = yield from _there(register, view, standing, record, away)
        return answer if written.code == 0 or answer.outcome != "done" else _conflict(view)
    if view.version == expected:
        return _unknown(codes.WRITE_UNDONE.say())
    return _conflict(view)


def _there(
    register: Register, view: CibView, standing: Standing, record: Mapping[str, Any], away: Sequence[str]
) -> Procedure:
    """The record is held. A node that is gone, and was not `away` when the record was written, may lack it,
    and must not bring back an older one."""
    if set(standing.without) - set(away):
        view, standing = yield from _outrank(register, view)
        if not standing.ok:
            return _unknown(standing.said.about("the CIB has the new record, but may lose it"))
        if view.document != record:
            return _conflict(view)
    return CibAnswer("done", view.document, standing.said)


def _write(register: Register, expected: RecordVersion | None, record: Mapping[str, Any]) -> Command:
    version = RecordVersion(record["epoch"], record["revision"])
    xml = set_xml(register.set_id, version, record)
    if expected is None:
        return CreateSet(register.set_id, xml)
    return ReplaceSet(register.set_id, expected, xml)


def _included_early(view: CibView, standing: Standing, record: Mapping[str, Any]) -> str:
    """A cluster node hears the writes and still has a CIB of its own, and a broker that may run on it would
    be included. Which node a broker runs on is known only where the two have the same name."""
    held = view.document["in_sync"] if view.document is not None else []
    names = {record["names"].get(node, "") for node, life in record["in_sync"] if [node, life] not in held}
    early = [name for name in standing.without if _hears(view, name)]
    if names <= view.nodes.keys():
        early = [name for name in early if name in names]
    return ", ".join(early)


def _hears(view: CibView, name: str) -> bool:
    """May a node that is no member have made this side's writes on its own copy?"""
    state = view.nodes.get(name)
    return state is not None and state.in_ccm


def _outrank(register: Register, view: CibView) -> _Looking:
    """Have this side's copy outrank those of all nodes that are away. Not done if the record has changed
    meanwhile: the caller sees that."""
    aim, version = view.admin_epoch + 1, view.version
    for _ in range(TRIES):
        here = (register.node, register.set_id, view.admin_epoch, view.epoch, version)
        (raised,) = yield [RaiseAdminEpoch(*here)]
        if raised.code not in (0, NO_SUCH):
            return CibView(), Standing(False, codes.ADMIN_EPOCH_STUCK.say(cause=_said(raised)))
        view, standing = yield from _look(register)
        if not standing.ok or view.admin_epoch >= aim or view.version != version:
            return view, standing
    stays = f"it is {view.admin_epoch}, not {aim}"
    return view, Standing(False, codes.ADMIN_EPOCH_STUCK.say(cause=stays))


def _look(register: Register) -> _Looking:
    """Read this node's copy, and judge it. Once more, while a change is on its way between the copies."""
    for left in reversed(range(TRIES)):
        view, standing = yield from _look_once(register)
        if standing.ok or not standing.again or not left:
            break
    if standing.ok and view.damage:
        standing = Standing(False, codes.RECORD_DAMAGED.say(damage=view.damage))
    return view, standing


def _look_once(register: Register) -> _Looking:
    (local,) = yield [QueryCib()]
    view = _view(local, register)
    if isinstance(view, str):
        return CibView(), Standing(False, codes.UNREADABLE.say(cause=view))
    others = members(view, register.node)
    commands: list[Command] = [QueryCib(name) for name in others]
    if asks := wants_votes(view, register.node):
        commands.append(AskQuorum())
    results = (yield commands) if commands else []
    copies = {name: _view(result, register) for name, result in zip(others, results, strict=False)}
    votes: Votes | str | None = (results[-1].votes or _said(results[-1])) if asks else None
    return view, judge(view, register.node, copies, votes)


def _view(result: Result, register: Register) -> CibView | str:
    if result.code != 0:
        return _said(result)
    try:
        return read_cib(result.output, register.set_id)
    except CibError as error:
        return str(error)


def _said(result: Result) -> str:
    return result.error or f"exit code {result.code}"


def _conflict(view: CibView) -> CibAnswer:
    held = f"version {view.version.epoch}.{view.version.revision}" if view.version else "no record"
    return CibAnswer("conflict", view.document, codes.CONFLICT.say(held=held))


def _unknown(said: Coded) -> CibAnswer:
    return CibAnswer("unknown", None, said)
