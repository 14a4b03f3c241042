"""What the engines make of damage, of failing syncs, and of a fault layer: `python -m bench.store.damage`.

A small store is made, closed or killed, and copied for each attempt; one place in the copy is harmed, at
times while it is open; a process of its own opens it, reads everything, and if all seems well goes on using
it and reads everything again. What came back is compared with what had been committed. The tables of
README.md have the counts.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from bench.store import interception
from bench.store.engines import KINDS, Engine, missing, open_engine
from bench.store.pattern import Group, Load
from bench.store.run_index import RunIndex
from bench.table import rewrite

HERE = Path(__file__).parent
BEGIN, END = "<!-- damage -->", "<!-- end of damage -->"
BLOCK = 4096
SECONDS = 20
"""After so long an attempt hangs."""

Content = dict[tuple[bytes, int, int], tuple[bytes, tuple[tuple[int, int], ...]]]
"""Of a store: raw bytes and what is gone, by run."""

STATES = ("closed", "killed", "open")
"""How the store was when it was harmed; an open one is read run by run afterwards, and used."""
PAGES, CUT = "page damage", "truncation"
OUTCOMES = ("unharmed", "sentence", "traceback", "last group lost", "wrong", "signal", "hang")
HEAD = [
    "| harm | engine | store was | attempts | unharmed | a sentence | another error "
    "| silent: of the last group | silent: more lost or altered | signal | hang |",
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
]


INTERCEPTION_HEAD = [
    "| engine | writes and syncs that a preloaded library sees | syncs a commit | mapped for writing "
    "| after a sync that fails (EIO) | after a write that fails (ENOSPC) |",
    "|---|---|---|---|---|---|",
]
UNHARMED, LAST_LOST, WRONG, RAISED = 0, 2, 3, 99
"""Exit codes of an attempt."""
SENTENCES = re.compile(
    r"bench\.store\.engines\.Damaged|lmdb\.|sqlite3\.|builtins\.(OSError|FileNotFoundError|Exception):"
)
"""Errors that an engine or its adapter raises on purpose."""
NOT_DATA = re.compile(r"lock\.mdb|LOCK|LOG.*")


class Subject(NamedTuple):
    title: str
    engine: str
    more: dict[str, bool]


SUBJECTS = [
    Subject("LMDB", "lmdb", {}),
    Subject("LMDB, verified first", "lmdb", {"verify": True}),
    Subject("RocksDB", "rocksdb", {}),
    Subject("SQLite", "sqlite", {}),
    Subject("plain segments", "segments", {}),
]


class Story(NamedTuple):
    """What is committed to every store, and what it must hold: after all of it, before the last group of it,
    and after the use that follows."""

    parts: list[list[Group]]
    """One for each life of the store."""
    after: Content
    before_last: Content
    use: list[Group]
    used: Content


def story(seed: int) -> Story:
    """Four queues are kept; others come and go, and leave free space and runs that are partly consumed."""
    fill, flow = list(Load(~seed, 400, 20, 3).fill(600)), list(Load(seed, 400, 20, 3).steady(30))
    index, bodies = RunIndex(), {}
    states: list[Content] = []
    for runs, gone in (*fill, *flow):
        index.change(runs, gone)
        bodies.update({run[:3]: run.raw for run in runs})
        states.append(
            {k: (bodies[k], tuple(one.gone)) for one in index for k in [(one.queue, one.epoch, one.first)]}
        )
    use = flow[-3:]
    return Story([fill, flow[:-3]], states[-4], states[-5], use, states[-1])


def content(engine: Engine) -> Content:
    return {stored.run[:3]: (stored.run.raw, stored.gone) for stored in engine.recover()}


def lacks_last_only(found: Content, told: Story) -> bool:
    """Whether each run is as after the last group, or as before it."""
    runs = found.keys() | told.after.keys() | told.before_last.keys()
    return all(found.get(run) in (told.after.get(run), told.before_last.get(run)) for run in runs)


def make(subject: Subject, directory: Path, told: Story, *, closed: bool) -> None:
    """In two lives, so that engines which move things at start have done so."""
    directory.mkdir()
    for part in told.parts:

        def life(part: list[Group] = part) -> int:
            engine = open_engine(subject.engine, str(directory))
            content(engine)
            for runs, gone in part:
                engine.commit(runs, gone)
            if not closed and part is told.parts[-1]:
                os.kill(os.getpid(), signal.SIGKILL)  # before anything is tidied up
            engine.close()
            return 0

        code, said = in_child(life)
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"bench.store: {subject.title} could not be written: {said}")


def in_child(work: Callable[[], int]) -> tuple[int, str]:
    """(exit code, error); a negative code is a signal. Nothing is closed at the end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.alarm(SECONDS)
        try:
            code = work()
        except BaseException as error:
            os.write(writer, f"{type(error).__module__}.{interception.describe(error)}".encode())
            code = RAISED
        os._exit(code)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def attempt(subject: Subject, directory: Path, told: Story, meanwhile: Callable[[], str]) -> tuple[str, str]:
    """Open it, read it, `meanwhile`, use it, read it again: (outcome, what was said)."""

    def work() -> int:
        engine = open_engine(subject.engine, str(directory), **subject.more)
        found = content(engine)
        if found != told.after:
            return LAST_LOST if lacks_last_only(found, told) else WRONG
        if meanwhile() and any(engine.read(*run) != told.after[run][0] for run in told.after):
            return WRONG
        for runs, gone in told.use:
            engine.commit(runs, gone)
        engine.close()
        again = open_engine(subject.engine, str(directory), **subject.more)
        return UNHARMED if content(again) == told.used else WRONG

    return judged(*in_child(work))


def judged(code: int, said: str) -> tuple[str, str]:
    """What a child's end means: (outcome, what was said)."""
    if code == -signal.SIGALRM:
        return "hang", ""
    if code < 0:
        return "signal", signal.Signals(-code).name
    if code == RAISED:
        return ("sentence" if SENTENCES.match(said) else "traceback"), said
    return {UNHARMED: "unharmed", LAST_LOST: "last group lost", WRONG: "wrong"}[code], ""


def harm(directory: Path, kind: str, rng: random.Random) -> str:
    """Damage one place of one file, and say which. Half of the places are where an engine keeps its own data:
    in small files, and where blocks begin."""
    files = [p for p in sorted(directory.iterdir()) if p.stat().st_size and not NOT_DATA.match(p.name)]
    (path,) = rng.choices(files, [p.stat().st_size for p in files] if rng.random() < 0.5 else None)
    data = path.read_bytes()
    block, other = rng.randrange(0, len(data), BLOCK), rng.randrange(0, len(data), BLOCK)
    at = rng.randrange(len(data)) if rng.random() < 0.5 else min(block + rng.randrange(64), len(data) - 1)
    how = "cut" if kind == CUT else rng.choice(["bit", "noise", "zeros", "misplaced"])
    with open(path, "r+b") as file:
        if how == "cut":
            file.truncate(at)
        elif how == "bit":
            file.seek(at)
            file.write(bytes([data[at] ^ 1 << rng.randrange(8)]))
        elif how == "noise":
            file.seek(at)
            file.write(rng.randbytes(min(16, len(data) - at)))
        else:
            at, size = block, len(data[block : block + BLOCK])
            file.seek(at)
            file.write(bytes(size) if how == "zeros" else data[other : other + BLOCK][:size])
    return f"{how} in {path.name} of {len(data)} bytes at {at}"


def examine(
    subject: Subject, kind: str, state: str, scratch: Path, options: argparse.Namespace
) -> Counter[str]:
    """All attempts of one row, by outcome; the first of each is told on standard error."""
    told = story(options.seed)
    outcomes: Counter[str] = Counter()
    harmed = "while open"
    later: Callable[[], str]
    image, copy = scratch / "image", scratch / "copy"
    make(subject, image, told, closed=state != "killed")
    if (found := attempt(subject, image.rename(copy), told, lambda: "read it"))[0] != "unharmed":
        raise SystemExit(f"bench.store: {subject.title} is {found} without harm")
    shutil.rmtree(copy)
    make(subject, image, told, closed=state != "killed")
    for number in range(options.attempts if kind == PAGES else options.attempts // 4):
        shutil.copytree(image, copy)
        rng = random.Random(f"{options.seed} {state} {number}")
        if state == "open":
            later = partial(harm, copy, kind, rng)
        else:
            harmed, later = harm(copy, kind, rng), str
        outcome, said = attempt(subject, copy, told, later)
        if not outcomes[outcome]:
            print(f"    {outcome}: {harmed}: {said.replace(str(copy), '')}", file=sys.stderr, flush=True)
        outcomes[outcome] += 1
        shutil.rmtree(copy)
    shutil.rmtree(image)
    print(f"{kind}, {subject.title}, {state}: {dict(outcomes)}", file=sys.stderr, flush=True)
    return outcomes


def damage_rows(engines: list[str], scratch: Path, options: argparse.Namespace) -> Iterator[str]:
    for kind in (PAGES, CUT):
        for subject in SUBJECTS:
            if subject.engine not in engines:
                continue
            import_module(KINDS[subject.engine].module)  # once, not in each child
            for state in STATES:
                outcomes = examine(subject, kind, state, scratch, options)
                counts = [f"{outcomes[outcome]}" for outcome in OUTCOMES]
                cells = [kind, subject.title, state, f"{outcomes.total()}", *counts]
                yield "| " + " | ".join(cells) + " |"


def interception_row(name: str, scratch: Path) -> str:
    found = interception.examine(name, scratch)
    seen, made = found["seen"], found["made"]
    if seen is None:
        calls = syncs = mapped = "not tried: no strace, or no C compiler"
    else:
        calls = f"{min(seen.total(), made.total())} of {made.total()}" + ("" if seen == made else ", NOT ALL")
        syncs = f"{(made['fsync'] + made['fdatasync']) / interception.COMMITS:.1f}"
        if found["synced"]:
            syncs += f", and O_DSYNC writes of {', '.join(found['synced'])}"
        mapped = ", ".join(found["mapped"]) or "none"
    after = [
        f"{interception.without_paths(one['failed'] or '-')}; then it {one['then']}"
        if one
        else "not tried: no C compiler"
        for one in (found["sync_fails"], found["write_fails"])
    ]
    return "| " + " | ".join([KINDS[name].title, calls, syncs, mapped, *after]) + " |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.store.damage", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--attempts", type=int, default=240, help="at page damage, of each row; a quarter of it at truncation"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--quick", action="store_true", help="a tenth of it; writes no file")
    parser.add_argument("--only", nargs="*", choices=list(KINDS), default=list(KINDS), help="writes no file")
    options = parser.parse_args(argv)
    if options.quick:
        options.attempts //= 10
    engines = [name for name in KINDS if name in options.only and not missing(name)]
    for name in set(options.only) - set(engines):
        print(f"bench.store: {missing(name)}", file=sys.stderr)
    print(f"bench.store: seed {options.seed}", file=sys.stderr, flush=True)
    lines = [f"Seed {options.seed}.", "", *HEAD]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        lines += damage_rows(engines, scratch, options)
        lines += ["", *INTERCEPTION_HEAD]
        lines += [interception_row(engine, scratch) for engine in engines]
    print("\n".join(lines))
    if not options.quick and len(engines) == len(KINDS):
        rewrite(HERE / "README.md", "\n".join(lines), BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
