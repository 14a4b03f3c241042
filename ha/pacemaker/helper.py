"""The helper process of the `pacemaker` authority: takes reads and swaps of the CIB, a JSON line each way.

The broker starts it (`driver`), so that no hanging cibadmin, and no fork, holds up the broker. It ends with
its standard input, and with its parent. It never imports the broker.

    {"id": 1, "kind": "read"}
    {"id": 2, "kind": "swap", "expected": [5, 1], "record": {...}}       expected: null: there is none
    -> {"id": 2, "outcome": "done", "record": {...}, "code": "pacemaker-agreed", "reason": "..."}

Each request is answered once, shortly after LIMIT at the latest. Whatever goes wrong is `unknown`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from ha.core.record.in_sync_record import RecordVersion
from ha.pacemaker import codes, commands
from ha.pacemaker.procedure import CibAnswer, Procedure, Register, read, swap
from understudy.shared.codes import Coded

LIMIT = 4.0
"""Seconds for one request, all its commands together."""
MOST = 16
"""Requests at once; the broker has one swap under way, and few reads."""
PR_SET_PDEATHSIG = 1


class Helper:
    """`node`: this node's name in the cluster; "" as long as crm_node has not told it."""

    def __init__(self, set_id: str, node: str) -> None:
        self._set_id = set_id
        self._node = node
        self._busy = threading.Semaphore(MOST)
        self._writing = threading.Lock()

    def serve(self) -> None:
        """Until the end of standard input."""
        for line in sys.stdin.buffer:
            if line.strip():
                self._take(line)

    def _take(self, line: bytes) -> None:
        request = json.loads(line)
        if self._busy.acquire(blocking=False):
            threading.Thread(target=self._work, args=(request,), daemon=True).start()
        else:
            self._answer(request, CibAnswer("unknown", None, codes.HELPER_BUSY.say()))

    def _work(self, request: dict[str, Any]) -> None:
        try:
            answer = self._ask(request)
        except Exception as error:
            answer = CibAnswer("unknown", None, codes.HELPER_FAILED.say(error=" ".join(repr(error).split())))
        finally:
            self._busy.release()
        self._answer(request, answer)

    def _ask(self, request: dict[str, Any]) -> CibAnswer:
        deadline = time.monotonic() + LIMIT
        if (trouble := self._find_node()) is not None:
            return CibAnswer("unknown", None, trouble)
        register = Register(self._node, self._set_id)
        if request["kind"] == "read":
            return carry_out(read(register), deadline)
        expected = request["expected"]
        version = RecordVersion(*expected) if expected is not None else None
        return carry_out(swap(register, version, request["record"]), deadline)

    def _find_node(self) -> Coded | None:
        """Ask for this node's name. Returns why it is not known, or None."""
        if self._node:
            return None
        (result,) = commands.run_words([["crm_node", "--name"]], commands.PATIENCE)
        if result.code != 0 or not result.output.strip():
            return codes.NAME_UNKNOWN.say(cause=result.error or "crm_node says nothing")
        self._node = result.output.strip()
        return None

    def _answer(self, request: dict[str, Any], answer: CibAnswer) -> None:
        document = {
            "id": request["id"], "outcome": answer.outcome, "record": answer.record,
            "code": answer.said.code, "reason": answer.said.sentence,
        }  # fmt: skip
        line = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def carry_out(procedure: Procedure, deadline: float) -> CibAnswer:
    """Run a procedure with the real commands; `unknown` at the deadline."""
    try:
        wanted = next(procedure)
        while (left := deadline - time.monotonic()) > 0:
            wanted = procedure.send(commands.run(wanted, min(left, commands.PATIENCE)))
    except StopIteration as end:
        answer: CibAnswer = end.value
        return answer
    procedure.close()
    return CibAnswer("unknown", None, codes.CIB_SLOW.say(limit=LIMIT))


def _end_with(parent: int) -> None:
    """End with the parent, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ha.pacemaker.helper", description=__doc__)
    parser.add_argument("--set", required=True, help="id of the cluster_property_set")
    parser.add_argument("--parent", type=int, default=0, help="end with this process, which started this one")
    parser.add_argument("--node", default="", help="this node's name in the cluster; default: what it says")
    options = parser.parse_args()
    if options.parent:
        _end_with(options.parent)
    try:
        Helper(options.set, options.node).serve()
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        commands.kill_all()
        os._exit(0)  # threads that still wait for a command are of no use to anybody


if __name__ == "__main__":
    main()
