"""Whether a fault layer sees each write and sync of an engine, and what the engine does when a sync fails.

A small C library (`shim.c`) that is preloaded writes down each call that it sees; strace, which nothing
escapes, writes down each system call; the two must agree. Shared writable mappings of the store's files are
named too: what is written through them, no layer sees. `python -m bench.store.interception` prints all that.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.brokers import ROOT
from bench.native import compiled
from bench.store.engines import KINDS, missing, open_engine
from bench.store.pattern import Load

SHIM = Path(__file__).with_name("shim.c")
COMMITS = 60
CALLS = (
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "ftruncate",
    "fallocate",
    "msync",
    "copy_file_range",
    "sendfile",
)
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((?:\d+|-?\w+)<([^>]*)>")
_MAP = re.compile(r"^(?:\d+ +)?mmap\(.*PROT_WRITE.*MAP_SHARED.*, \d+<([^>]*)>")
_OPEN = re.compile(r'^(?:\d+ +)?openat\(.*"([^"]*)", [^)]*O_D?SYNC')


def workload(engine: str, directory: str) -> None:
    """The child: some commits. Prints which error one ended with, and whether the next one worked."""
    store = open_engine(engine, directory)
    _ = list(store.recover())
    failed = None
    for runs, gone in Load(1, 256, 100, 4).steady(COMMITS):
        try:
            store.commit(runs, gone)
        except Exception as error:
            if failed:
                print(json.dumps({"failed": failed, "then": "refuses"}), flush=True)
                os._exit(0)
            failed = describe(error)
        else:
            if failed:
                print(json.dumps({"failed": failed, "then": "goes on"}), flush=True)
                os._exit(0)
    store.close()
    print(json.dumps({"failed": failed, "then": None}), flush=True)


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:400]


def without_paths(said: str) -> str:
    """For a table: no directories, and not long."""
    return re.sub(r"\s*(in )?'?/[^\s:]+/[^\s:]*", "", said).replace("|", "/")[:120]


def child(
    engine: str, directory: Path, environment: dict[str, str], wrap: Sequence[str] = ()
) -> dict[str, Any]:
    """Run the workload on an empty store."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    # The interpreter itself, so that nothing but the workload is counted.
    command = [*wrap, sys.executable, "-m", "bench.store.interception", "--workload", engine, str(directory)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode < 0:
        return {"failed": None, "then": f"ends by signal {-done.returncode}"}
    if done.returncode:
        raise SystemExit(f"bench.store: {engine}: {done.stderr.strip()[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def library() -> Path | None:
    """The compiled shim."""
    built = compiled(SHIM)
    return Path(built._name) if built is not None else None


def traced(trace: str, directory: Path) -> tuple[Counter[str], list[str], list[str]]:
    """From strace's lines: calls on the store's files, its files that are mapped for writing, and those that
    are opened so that each write is a sync."""
    calls: Counter[str] = Counter()
    mapped, synced = set(), set()
    for line in trace.splitlines():
        if (found := _MAP.match(line)) and found[1].startswith(f"{directory}/"):
            mapped.add(Path(found[1]).name)
        elif (found := _OPEN.match(line)) and found[1].startswith(f"{directory}/"):
            synced.add(Path(found[1]).name)
        elif (found := _CALL.match(line)) and found[2].startswith(f"{directory}/") and found[1] in CALLS:
            calls[found[1]] += 1
    return calls, sorted(mapped), sorted(synced)


def examine(engine: str, scratch: Path) -> dict[str, Any]:
    """All that is found out about one engine; what cannot be, for want of a tool, is None."""
    shim, strace = library(), shutil.which("strace")
    directory, log, trace = scratch / engine, scratch / f"{engine}.log", scratch / f"{engine}.trace"
    environment = {"SHIM_DIRECTORY": f"{directory}/"}
    result: dict[str, Any] = dict.fromkeys(("seen", "made", "mapped", "synced", "sync_fails", "write_fails"))
    if shim is not None:
        environment["LD_PRELOAD"] = str(shim)
        for key, variable in (("sync_fails", "SHIM_FAIL"), ("write_fails", "SHIM_FAIL_WRITE")):
            result[key] = child(engine, directory, {**environment, variable: "40"})
    if shim is not None and strace is not None:
        watched = ",".join((*CALLS, "mmap", "openat"))
        command = [strace, "-f", "-y", "-qq", "-s", "0", "-e", "signal=none", "-e", f"trace={watched}"]
        child(engine, directory, {**environment, "SHIM_LOG": str(log)}, [*command, "-o", str(trace)])
        result["seen"] = Counter(log.read_text().split())
        result["made"], result["mapped"], result["synced"] = traced(trace.read_text(), directory)
    return result


def main() -> int:
    if sys.argv[1:2] == ["--workload"]:
        workload(*sys.argv[2:4])
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        for engine in KINDS:
            print(engine, missing(engine) or json.dumps(examine(engine, Path(scratch)), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
