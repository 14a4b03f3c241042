"""Runs the procedure's commands: cibadmin, crm_node and corosync-quorumtool, each in bounded time.

Called by the helper, on any of its threads. Every command gives a Result. A command that hangs, or that
writes more than a CIB may have, is killed with all processes that it started.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO

from ha.core.record.in_sync_record import RecordVersion
from ha.pacemaker.procedure import (
    AskQuorum,
    Command,
    CreateSet,
    QueryCib,
    RaiseAdminEpoch,
    ReplaceSet,
    Result,
)
from ha.pacemaker.standing import Votes

PATIENCE = 1.5
"""Seconds that a command may take: it takes 0.02, and up to one on a machine that is overloaded."""
MOST = 16 << 20
"""Bytes of output."""
CIBADMIN = "cibadmin"
_LOCAL_TIMEOUT = ("--timeout", "2")
"""Whole seconds, for the case that nobody is left to kill it."""
_LONGEST = 300
_GLANCE = 0.001
_GRACE = 1.0
"""Seconds that the end waits for a command that is being started or reaped."""
_running: set[subprocess.Popen[bytes]] = set()
_over = threading.Event()
_lock = threading.Lock()


def argv_of(command: Command) -> list[str]:
    """The command line of a command. That of a swap is the compare-and-set on which the whole authority
    rests."""
    match command:
        case QueryCib(None):
            return [CIBADMIN, "--query", "--local", *_LOCAL_TIMEOUT]
        case QueryCib(node):
            return [CIBADMIN, "--query", f"--node={node}", *_LOCAL_TIMEOUT]
        case CreateSet(_, xml):
            return [CIBADMIN, "--create", "--scope", "crm_config", "--xml-text", xml, *_LOCAL_TIMEOUT]
        case ReplaceSet(set_id, version, xml):
            path = f"//{_set_with(set_id, version)}"
            return [CIBADMIN, "--replace", "--xpath", path, "--xml-text", xml, *_LOCAL_TIMEOUT]
        case RaiseAdminEpoch():
            higher = f'<cib admin_epoch="{command.admin_epoch + 1}"/>'
            return [CIBADMIN, "--modify", "--xpath", _as_here(command), "--xml-text", higher, *_LOCAL_TIMEOUT]
        case AskQuorum():
            return ["corosync-quorumtool", "-s", "-i"]


def _set_with(set_id: str, version: RecordVersion) -> str:
    held = f"nvpair[@name='understudy-version' and @value='{version.epoch}.{version.revision}']"
    return f"cluster_property_set[@id='{set_id}' and {held}]"


def _as_here(command: RaiseAdminEpoch) -> str:
    """The XPath that matches a CIB like the one from which the command was made."""
    quote = '"' if "'" in command.node else "'"
    member = (
        f"status/node_state[@uname={quote}{command.node}{quote} and @join='member' and @expected='member']"
    )
    held = f"not(configuration/crm_config/cluster_property_set[@id='{command.set_id}'])"
    if command.version is not None:
        held = f"configuration/crm_config/{_set_with(command.set_id, command.version)}"
    numbers = f"@admin_epoch='{command.admin_epoch}' and @epoch='{command.epoch}'"
    return f"/cib[{numbers} and {member} and {held}]"


def run(commands: Sequence[Command], patience: float = PATIENCE) -> list[Result]:
    """All of them at once, for at most `patience` seconds."""
    results = run_words([argv_of(command) for command in commands], patience)
    return [
        _with_votes(result) if isinstance(command, AskQuorum) else result
        for command, result in zip(commands, results, strict=True)
    ]


def run_words(all_words: Sequence[Sequence[str]], patience: float) -> list[Result]:
    """The same for any program."""
    deadline = time.monotonic() + patience
    runs = [_Run(words) for words in all_words]
    with selectors.DefaultSelector() as selector:
        for each in runs:
            each.register(selector)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                key.data(key.fileobj, selector)
    return [each.end(deadline) for each in runs]


def kill_all() -> None:
    """Before the helper ends: kill all running commands, and start none from now on."""
    _over.set()
    held = _lock.acquire(timeout=_GRACE)
    for process in _running.copy():
        _kill(process)
    if held:
        _lock.release()


def parse_votes(text: str) -> Votes | None:
    """Parse the output of `corosync-quorumtool -s`; None if it is not whole."""
    head, _, listed = text.partition("Membership information")
    fields = dict(re.findall(r"^([A-Z][A-Za-z ]*):[ \t]*(.*?)[ \t]*$", head, re.MULTILINE))
    nodes = frozenset(str(int(n)) for n in re.findall(r"^[ \t]*([0-9]{1,10})[ \t]", listed, re.MULTILINE))
    expected = fields.get("Expected votes", "")
    if fields.get("Quorate") not in ("Yes", "No") or not re.fullmatch("[0-9]{1,9}", expected):
        return None
    if "Flags" not in fields or not nodes - {"0"}:
        return None
    return Votes(
        fields["Quorate"] == "Yes", int(expected), "2Node" in fields["Flags"].split(), nodes - {"0"}
    )  # fmt: skip


def _with_votes(result: Result) -> Result:
    """Both its exit code and its output say whether there is quorum."""
    votes = parse_votes(result.output) if result.code is not None else None
    said = result.error or "corosync-quorumtool says nothing of votes"
    return Result(result.code, error="" if votes else said, votes=votes)


class _Run:
    """One process, and its output so far."""

    def __init__(self, words: Sequence[str]) -> None:
        self._name = words[0]
        self._out, self._err = bytearray(), bytearray()
        self._too_much = False
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""
        try:
            self._process = self._start(words)
        except (OSError, ValueError) as error:
            what = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            self._failure = f"cannot run {self._name}: {what}"

    def _start(self, words: Sequence[str]) -> subprocess.Popen[bytes] | None:
        """Started and recorded in one step: an end between the two would leave the process over."""
        with _lock:
            if _over.is_set():
                self._failure = f"{self._name} is not run: the helper ends"
                return None
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
            _running.add(process)
        return process

    def register(self, selector: selectors.BaseSelector) -> None:
        if self._process is not None:
            for stream in (self._process.stdout, self._process.stderr):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, self._more)

    def _more(self, stream: IO[bytes], selector: selectors.BaseSelector) -> None:
        data = os.read(stream.fileno(), 1 << 16)
        process = self._process
        assert process is not None
        into = self._out if stream is process.stdout else self._err
        into += data
        if len(into) > MOST:
            self._too_much = True
            _kill(process)
        if not data or self._too_much:
            selector.unregister(stream)

    def end(self, deadline: float) -> Result:
        process = self._process
        if process is None:
            return Result(None, error=self._failure)
        late = not self._too_much and not _ended(process, deadline)
        with _lock:
            # What it may have left behind, too; while it is not reaped, its number is nobody else's.
            _kill(process)
            code = process.wait()
            _running.discard(process)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
        if late:
            return Result(None, error=f"{self._name} did not end in time")
        if self._too_much:
            return Result(None, error=f"{self._name} says more than any CIB has")
        if code < 0:
            return Result(None, error=f"{self._name} was killed by {signal.Signals(-code).name}")
        said = self._err or (self._out if code else b"")
        return Result(code, self._out.decode("utf-8", "replace"), _line(self._name, code, bytes(said)))


def _line(name: str, code: int, said: bytes) -> str:
    if code == 0:
        return ""
    text = " ".join(said.decode("utf-8", "replace").split())[:_LONGEST]
    return f"{name}: {text or 'no word'} (exit code {code})"


def _ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Has it ended by then? It is not reaped: once its output is closed, it is about to end."""
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_GLANCE)
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill it and its children, which form a session of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
