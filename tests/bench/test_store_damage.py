"""The bench of damage tells its outcomes apart: what came back, what was refused, what was silently lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from bench.store import damage
from bench.store.interception import traced

SEGMENTS = next(subject for subject in damage.SUBJECTS if subject.engine == "segments")
TOLD = damage.story(3)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    damage.make(SEGMENTS, tmp_path / "store", TOLD, closed=False)
    return tmp_path / "store"


def newest(store: Path) -> Path:
    return max(store.glob("*.segment"))


def test_a_store_that_is_whole_is_unharmed(store: Path) -> None:
    assert damage.attempt(SEGMENTS, store, TOLD, str) == ("unharmed", "")


def test_a_flipped_bit_is_answered_with_a_sentence(store: Path) -> None:
    data = bytearray(newest(store).read_bytes())
    data[len(data) // 2] ^= 1
    newest(store).write_bytes(data)
    outcome, said = damage.attempt(SEGMENTS, store, TOLD, str)
    assert outcome == "sentence"
    assert f"{newest(store).name} is damaged at offset" in said


def test_a_lost_last_group_is_told_from_more(store: Path) -> None:
    other = store.with_name("other")
    shutil.copytree(store, other)
    os.truncate(newest(store), newest(store).stat().st_size - 1)
    os.truncate(newest(other), newest(other).stat().st_size // 2)
    assert damage.attempt(SEGMENTS, store, TOLD, str) == ("last group lost", "")
    assert damage.attempt(SEGMENTS, other, TOLD, str) == ("wrong", "")


def test_a_signal_and_an_error_that_says_nothing_are_what_they_are(store: Path) -> None:
    def killed() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    def lost() -> str:
        raise KeyError(5)

    assert damage.attempt(SEGMENTS, store, TOLD, killed) == ("signal", "SIGKILL")
    assert damage.attempt(SEGMENTS, store, TOLD, lost) == ("traceback", "builtins.KeyError: 5")


@pytest.mark.parametrize("kind", [damage.PAGES, damage.CUT])
def test_harm_is_done_to_one_file_and_is_the_same_for_a_seed(tmp_path: Path, kind: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    body = random.Random(seed).randbytes(20_000)
    told = []
    for number in range(2):
        directory = tmp_path / str(number)
        directory.mkdir()
        for name in ("a", "b", "LOCK"):
            (directory / name).write_bytes(body)
        said = damage.harm(directory, kind, random.Random(seed))
        changed = [name for name in ("a", "b", "LOCK") if (directory / name).read_bytes() != body]
        assert changed in ([], [said.split()[2]]), said  # a block may have been put where it was
        told.append((said, [(directory / name).read_bytes() for name in ("a", "b")]))
    assert told[0] == told[1]


def test_calls_and_mappings_are_read_from_a_trace() -> None:
    trace = """\
7 openat(AT_FDCWD, "/data/s/data.mdb", O_WRONLY|O_DSYNC|O_CLOEXEC) = 6
7 openat(AT_FDCWD, "/data/s/lock.mdb", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 4
7 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 4</data/s/lock.mdb>, 0) = 0x7f
7 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 5</data/s/data.mdb>, 0) = 0x7f
7 pwrite64(5</data/s/data.mdb>, ""..., 4096, 8192) = 4096
8 fdatasync(5</data/s/data.mdb>) = 0
7 write(3</data/s.log>, ""..., 9) = 9
"""
    calls, mapped, synced = traced(trace, Path("/data/s"))
    assert calls == Counter(pwrite64=1, fdatasync=1)
    assert (mapped, synced) == (["lock.mdb"], ["data.mdb"])
