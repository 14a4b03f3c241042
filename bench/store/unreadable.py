"""What the engines make of a sector that cannot be read: `python -m bench.store.unreadable`, as root.

A small store is made on a file system of its own, on a loop device, mounted again so that nothing is cached,
then the file behind the device is cut: whatever lay beyond is an I/O error, as of a disk. The cut is in the
store's largest file, at several places. *At rest*: before the store is opened. *In use*: after it was
opened and read, when the page cache has dropped it, as it does with a backlog larger than memory.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.store import damage
from bench.store.damage import SUBJECTS, Story, Subject
from bench.store.engines import missing, open_engine
from bench.store.interception import without_paths
from bench.table import rewrite

HERE = Path(__file__).parent
BEGIN, END = "<!-- unreadable -->", "<!-- end of unreadable -->"
HEAD = [
    "| engine | store was | attempts | unharmed | a sentence | signal | for example |",
    "|---|---|--:|--:|--:|--:|---|",
]
IMAGE_BYTES = 64 << 20
BLOCK = 4096
_EXTENT = re.compile(r"\s*\d+:\s+\d+\.\.\s*\d+:\s+(\d+)\.\.\s*(\d+)")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def mounted(image: Path, point: Path) -> Iterator[Path]:
    """Raises CalledProcessError where this is not allowed."""
    point.mkdir(exist_ok=True)
    run("mount", "-o", "loop", str(image), str(point))
    try:
        yield point / "store"
    finally:
        run("umount", "--lazy", str(point))


def blocks(path: Path) -> list[int]:
    """Where the file is on its file system."""
    found: list[int] = []
    for line in run("filefrag", "-v", f"-b{BLOCK}", str(path)).splitlines():
        if extent := _EXTENT.match(line):
            found += range(int(extent[1]), int(extent[2]) + 1)
    return sorted(found)


def in_use(subject: Subject, store: Path, told: Story, image: Path, size: int) -> tuple[str, str]:
    """Read all runs by an instance that has nothing cached but the index."""

    def work() -> int:
        engine = open_engine(subject.engine, str(store), **subject.more)
        damage.content(engine)
        engine.close()
        fresh = open_engine(subject.engine, str(store), **subject.more)
        fresh.index = engine.index
        for path in store.iterdir():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.truncate(image, size)
        return damage.UNHARMED if all(fresh.read(*key) == told.after[key][0] for key in told.after) else 1

    return damage.judged(*damage.in_child(work))


def attempt(subject: Subject, told: Story, scratch: Path, part: float, *, at_rest: bool) -> tuple[str, str]:
    """Cut behind that part of the largest file: (outcome, what was said)."""
    image, point = scratch / "disk", scratch / "mounted"
    image.write_bytes(b"")
    os.truncate(image, IMAGE_BYTES)
    run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image))
    with mounted(image, point) as store:
        damage.make(subject, store, told, closed=True)
    with mounted(image, point) as store:
        data = [path for path in store.iterdir() if not damage.NOT_DATA.match(path.name)]
        there = blocks(max(data, key=lambda path: path.stat().st_size))
        size = BLOCK * there[int(part * len(there))]
        if not at_rest:
            return in_use(subject, store, told, image, size)
        os.truncate(image, size)
        return damage.attempt(subject, store, told, str)


def rows(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    told = damage.story(options.seed)
    for subject in SUBJECTS:
        if reason := missing(subject.engine):
            print(f"bench.store: {reason}", file=sys.stderr)
            continue
        for at_rest in (True, False):
            outcomes: Counter[str] = Counter()
            examples: dict[str, str] = {}
            for number in range(options.attempts):
                part = (number + 1) / (options.attempts + 2)
                outcome, said = attempt(subject, told, scratch, part, at_rest=at_rest)
                outcomes[outcome] += 1
                examples[outcome] = without_paths(said)
            counts = [f"{outcomes[name]}" for name in ("unharmed", "sentence", "signal")]
            example = examples.get("signal") or examples.get("sentence", "")
            stopped = "at rest" if at_rest else "in use"
            if outcomes.total() != sum(map(int, counts)):
                print(f"bench.store: {subject.title}, {stopped}: {dict(outcomes)}", file=sys.stderr)
            yield f"| {' | '.join([subject.title, stopped, f'{outcomes.total()}', *counts, example])} |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.store.unreadable")
    parser.add_argument("--attempts", type=int, default=8, help="of each row")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--no-table", action="store_true", help="write no file")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        try:
            lines = [*HEAD, *rows(options, Path(name))]
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            said = getattr(error, "stderr", "") or ""
            print(f"bench.store: needs root, loop devices and e2fsprogs: {error} {said}", file=sys.stderr)
            return 1
    print("\n".join(lines))
    if not options.no_table:
        rewrite(HERE / "README.md", "\n".join(lines), BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
