"""Errors of the core, by how far the damage goes. Called by every module here; the node catches them.

`LinkError`: the other side misbehaved, the link is closed and tried again. `NodeFatal`: this node must stop.
"""

from __future__ import annotations


class HaError(Exception):
    """Root of the tree; the text is one sentence for people."""


class LinkError(HaError):
    """Remote misbehaviour: what came down a link cannot be right. Costs that link."""

    code = 501


class NodeFatal(HaError):
    """Local: to go on could lose or fork data. The node stops."""


class IllegalTransition(NodeFatal):
    """A status change that the table does not know."""


class Broken(NodeFatal):
    """An invariant that is asserted where it is used does not hold."""
