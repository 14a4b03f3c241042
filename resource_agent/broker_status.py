"""The broker's `/api/status` in the words of the decision table. Pure."""

from __future__ import annotations

from typing import Any

from resource_agent.decision import State

_SERVING = ("active", "recovering")


def read_status(status: Any, disk_timeout: float) -> tuple[State, str]:
    """The state, and the broker's own sentence on it. `disk_timeout`: seconds that one write may take."""
    word = status.get("status") if isinstance(status, dict) else None
    if not isinstance(word, str) or not word:
        return State.SILENT, "what it answers is no status"
    fault = _disk_fault(status.get("disk"), disk_timeout)
    if fault:
        return State.STALLED, fault
    reason = str(status.get("reason") or word)
    if word == "standalone":
        return State.STANDALONE, reason
    if word in _SERVING:
        return _serving(status), reason
    return _following(status), reason


def _disk_fault(disk: Any, timeout: float) -> str:
    if not isinstance(disk, dict):
        return ""
    stalled = disk.get("stalled_for")
    if isinstance(stalled, (int, float)) and stalled > timeout:
        return f"a write in its data directory has been under way for {stalled:.1f} s"
    return str(disk.get("failed") or "")


def _serving(status: dict[str, Any]) -> State:
    if status.get("withheld"):
        return State.RENEWING if _authority_answers(status) else State.LEASE_EXPIRED
    in_sync = [member for member in _members(status) if member.get("in_sync") and not member.get("self")]
    return State.ACTIVE if in_sync else State.ALONE


def _following(status: dict[str, Any]) -> State:
    if status.get("promoting") is True:
        return State.PROMOTING
    if status.get("promotable") is not True:
        well = _authority_answers(status) and not status.get("alarms")
        return State.BEHIND if well else State.TROUBLED
    if status["status"] == "ready":  # it hears a primary, which may be waiting for its lease
        return State.READY if _authority_answers(status) else State.DOUBTFUL
    if any(m.get("self") and m.get("in_sync") for m in _members(status)):
        return State.READY
    owner = status.get("owner")
    return State.FORMER_OWNER if owner and owner == status.get("name") else State.BEST_COPY


def _authority_answers(status: dict[str, Any]) -> bool:
    authority = status.get("authority")
    return not isinstance(authority, dict) or authority.get("ok") is not False


def _members(status: dict[str, Any]) -> list[dict[str, Any]]:
    found = status.get("members")
    return [member for member in found if isinstance(member, dict)] if isinstance(found, list) else []


def is_manual(status: Any) -> bool:
    """Does the broker keep the record itself, and not the cluster?"""
    authority = status.get("authority") if isinstance(status, dict) else None
    return isinstance(authority, dict) and authority.get("kind") == "manual"


def member_names(status: Any) -> set[str]:
    """The names of the other brokers that it knows."""
    members = _members(status) if isinstance(status, dict) else []
    return {str(member.get("name")) for member in members if not member.get("self")}
