"""Pacemaker's CIB as this authority reads it: the members of the cluster, the state of each, and the record.

Pure: takes XML and gives a CibView, and makes the XML of a property set. Called by the procedure. The record
is one `cluster_property_set` of crm_config: it belongs to the whole cluster, and lasts. SAPHanaSR keeps its
own data in the same way. For the meaning of the attributes of a `node_state` see the comments of Pacemaker's
`lib/pengine/unpack.c`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from ha.core.errors import HaError, LinkError
from ha.core.record.in_sync_record import RecordVersion, record_from_json

VERSION = "understudy-version"
"""EPOCH.REVISION of the record: what a swap compares."""
RECORD = "understudy-record"
"""The record, as JSON."""
SET_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
"""What `ha.cib_set` may be: an XML id that needs no quoting in an XPath."""

_VERSION = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})")
_TRUE = ("true", "online", "member", "1")
_DOWN, _MEMBER = "down", "member"


class CibError(HaError):
    """The output of cibadmin is no CIB."""


@dataclass(slots=True, frozen=True)
class NodeState:
    """One cluster node's `node_state`, as the DC wrote it."""

    in_ccm: bool = False
    """Corosync has it as a member."""
    crmd: bool = False
    """Its controller is there."""
    join: str = ""
    """`member` once it has joined, that is, has the cluster's CIB; else `down`."""
    expected: str = ""
    """`member` from joining on; `down` once it was shut down or fenced. One that is merely lost is still
    expected to be a member; empty: not seen since the cluster started."""

    @property
    def up(self) -> bool:
        return self.in_ccm and self.crmd

    @property
    def joined(self) -> bool:
        return self.up and self.join == _MEMBER

    @property
    def down(self) -> bool:
        """Shut down or fenced, and not back yet: it may be starting, but has not joined."""
        return self.join == _DOWN and self.expected == _DOWN

    @property
    def lost(self) -> bool:
        """It had joined, and is gone without having been shut down or fenced."""
        return not self.up and self.expected == _MEMBER


@dataclass(slots=True, frozen=True)
class CibView:
    """One node's copy of the CIB."""

    nodes: Mapping[str, NodeState | None] = field(default_factory=dict)
    """Every cluster node by name; None: it has no state, because it was not seen since the cluster started.
    Pacemaker Remote nodes have no CIB, and are not among them."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """By name: the node's number in corosync, as text."""
    fencing: bool = True
    """`stonith-enabled`."""
    admin_epoch: int = 0
    """Of two copies that meet, the one in which this is higher becomes everybody's."""
    epoch: int = 0
    """The configuration's: decides where `admin_epoch` does not."""
    content: tuple[tuple[str, str], ...] | None = None
    """The nvpairs of the set as they are; None: there is no set. Equal content is the same record."""
    version: RecordVersion | None = None
    document: dict[str, Any] | None = None
    """The record, as JSON, if it can be read."""
    damage: str = ""
    """What keeps the set from being read: a sentence that names set and attribute."""


def read_cib(xml: str, set_id: str) -> CibView:
    """A whole CIB, as `cibadmin --query` gives it. CibError if it is anything else."""
    try:
        root = ElementTree.fromstring(xml)
    except (ElementTree.ParseError, ValueError) as error:
        raise CibError(f"not XML: {error}") from None
    if root.tag != "cib" or root.find("configuration") is None:
        raise CibError(f"no <cib> with a configuration, but <{_printable(root.tag)}>")
    options = root.findall("configuration/crm_config/cluster_property_set")
    pairs = [p for s in options for p in s.iter("nvpair") if p.get("name") == "stonith-enabled"]
    fencing = all(p.get("value", "").lower() in ("true", "yes", "on", "y", "1") for p in pairs)
    ours = [s for s in options if s.get("id") == set_id]
    nodes, ids = _nodes(root)
    view = CibView(nodes, ids, fencing, _number(root, "admin_epoch"), _number(root, "epoch"))
    return _with_set(view, ours[0], set_id) if ours else view


def set_xml(set_id: str, version: RecordVersion, document: Mapping[str, Any]) -> str:
    """The set that holds this record. `set_id` matches SET_ID."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    pairs = ((VERSION, f"{version.epoch}.{version.revision}"), (RECORD, text))
    inner = "".join(
        f"<nvpair id={quoteattr(f'{set_id}-{name}')} name={quoteattr(name)} value={quoteattr(value)}/>"
        for name, value in pairs
    )
    return f"<cluster_property_set id={quoteattr(set_id)}>{inner}</cluster_property_set>"


def _number(root: ElementTree.Element, name: str) -> int:
    text = root.get(name, "")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0


def _nodes(root: ElementTree.Element) -> tuple[dict[str, NodeState | None], dict[str, str]]:
    """The nodes of the configuration, which has all of corosync's node list, and any others of the status."""
    nodes: dict[str, NodeState | None] = {}
    ids: dict[str, str] = {}
    for node in root.iterfind("configuration/nodes/node"):
        if node.get("type") not in ("remote", "ping"):
            name = node.get("uname", "") or node.get("id", "")
            nodes[name], ids[name] = None, node.get("id", "")
    names = {ident: name for name, ident in ids.items()}
    for state in root.iterfind("status/node_state"):
        if state.get("remote_node", "").lower() in _TRUE:
            continue
        ident = state.get("id", "")
        uname = state.get("uname", "") or names.get(ident, ident)
        ids.setdefault(uname, ident)
        nodes[uname] = NodeState(
            _holds(state.get("in_ccm", "")), _holds(state.get("crmd", "")),
            state.get("join", ""), state.get("expected", ""),
        )  # fmt: skip
    return nodes, ids


def _holds(word: str) -> bool:
    """True for `true` and `online`, and from Pacemaker 2.1.7 on for a time since when, other than 0. False
    for anything else."""
    if word.isascii() and word.isdigit():
        return word.strip("0") != ""
    return word.lower() in _TRUE


def _with_set(view: CibView, found: ElementTree.Element, set_id: str) -> CibView:
    content = tuple(sorted((p.get("name", ""), p.get("value", "")) for p in found.iter("nvpair")))
    version, document, damage = _record(dict(content), f"the CIB's cluster_property_set {set_id!r}")
    if not damage and len(dict(content)) != len(content):
        damage = f"the CIB's cluster_property_set {set_id!r} has an attribute twice"
    if damage:
        version, document = None, None
    return replace(view, content=content, version=version, document=document, damage=damage)


def _record(values: Mapping[str, str], where: str) -> tuple[RecordVersion | None, dict[str, Any] | None, str]:
    for name in (VERSION, RECORD):
        if name not in values:
            return None, None, f"{where} has no attribute {name}"
    match = _VERSION.fullmatch(values[VERSION])
    if match is None:
        return None, None, f"{where}: attribute {VERSION} is {_short(values[VERSION])}, not EPOCH.REVISION"
    version = RecordVersion(int(match[1]), int(match[2]))
    try:
        document = json.loads(values[RECORD])
        record = record_from_json(document)
    except json.JSONDecodeError as error:
        return None, None, f"{where}: attribute {RECORD} is not JSON: {_printable(str(error))}"
    except (ValueError, RecursionError):
        return None, None, f"{where}: attribute {RECORD} is not JSON: a number too long, or nested too deep"
    except LinkError as error:
        return None, None, f"{where}: attribute {RECORD} is {_printable(str(error))}"
    if record.version != version:
        other = f"{record.epoch}.{record.revision}"
        return None, None, f"{where}: attribute {VERSION} is {values[VERSION]}, that of {RECORD} {other}"
    return version, document, ""


def _short(value: str) -> str:
    return _printable(repr(value[:40]))


def _printable(text: str) -> str:
    return " ".join(text.split())[:200]
