"""Each storage engine of the bench gives back what a model says it was given, also when opened again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.store import segments_engine
from bench.store.engines import KINDS, Damaged, Engine, missing, open_engine
from bench.store.pattern import Load, Range, Run, drain

ENGINES = [
    pytest.param(name, marks=pytest.mark.skipif(bool(missing(name)), reason=f"{name} is not installed"))
    for name in KINDS
]


class Model:
    """All messages that are there, by queue, epoch and number; and the bytes of each run."""

    def __init__(self) -> None:
        self.messages: set[tuple[bytes, int, int]] = set()
        self.runs: dict[tuple[bytes, int, int], Run] = {}

    def apply(self, runs: list[Run], gone: list[Range]) -> None:
        for run in runs:
            self.runs[run[:3]] = run
            self.messages |= {(run.queue, run.epoch, run.first + i) for i in range(run.messages)}
        for queue, epoch, first, last in gone:
            self.messages -= {(queue, epoch, n) for n in range(first, last + 1)}

    def check(self, engine: Engine) -> None:
        """Read everything back."""
        found = set()
        for run, gone in engine.recover():
            assert run == self.runs[run[:3]]
            dead = {n for begin, end in gone for n in range(begin, end + 1)}
            left = [n for n in range(run.first, run.first + run.messages) if n not in dead]
            assert left, "a run with no message left came back"
            found |= {(run.queue, run.epoch, n) for n in left}
        assert found == self.messages

    def some_gone(self, rng: random.Random) -> list[Range]:
        """Ranges anywhere, over the ends of runs, also of what is gone; at times everything of a queue."""
        ranges = []
        for queue, epoch, number in rng.sample(sorted(self.messages), min(3, len(self.messages))):
            if rng.random() < 0.2:
                ranges.append(Range(queue, epoch, 1, number))
            else:
                ranges.append(
                    Range(queue, epoch, max(1, number - rng.randrange(9)), number + rng.randrange(9))
                )
        return ranges


def reopened(name: str, directory: Path, engine: Engine | None, model: Model) -> Engine:
    if engine is not None:
        engine.close()
    directory.mkdir(exist_ok=True)
    engine = open_engine(name, str(directory))
    model.check(engine)
    return engine


@pytest.mark.parametrize("name", ENGINES)
def test_gives_back_what_a_model_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_engine, "SEGMENT_BYTES", 20_000)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, load, model = random.Random(seed), Load(seed, 40, 30, 4), Model()
    engine = reopened(name, tmp_path / "store", None, model)
    for step in range(120):
        runs = [load.run(rng.choice(load.queues)) for _ in range(rng.randrange(4))]
        gone = model.some_gone(rng)
        if runs and rng.random() < 0.1:
            gone.append(Range(*runs[0][:3], runs[0].first + runs[0].messages))
        engine.commit(runs, gone)
        model.apply(runs, gone)
        if step % 40 == 39:
            engine = reopened(name, tmp_path / "store", engine, model)
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
def test_a_drain_reads_each_run_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    load, model = Load(5, 100, 10, 4), Model()
    engine = reopened(name, tmp_path / "store", None, model)
    for runs, gone in load.fill(500):
        engine.commit(runs, gone)
        model.apply(runs, gone)
    seen: dict[tuple[bytes, int, int], bytes] = {}
    for reads, ranges in drain(sorted(model.runs.values()), 4):
        seen |= {where: engine.read(*where) for where in reads}
        engine.commit([], ranges)
        model.apply([], ranges)
    assert seen == {where: run.raw for where, run in model.runs.items()}
    assert not model.messages
    reopened(name, tmp_path / "store", engine, model).close()


@pytest.mark.parametrize("name", ["lmdb", "sqlite", "segments"])
def test_a_damaged_body_is_a_sentence(name: str, tmp_path: Path) -> None:
    if reason := missing(name):
        pytest.skip(reason)
    engine = reopened(name, tmp_path / "store", None, Model())
    body = b"a body of its own" * 100
    engine.commit([Run(b"q" * 16, 7, 1, 1, body)], [])
    engine.close()
    (path,) = (p for p in (tmp_path / "store").iterdir() if body in p.read_bytes())
    path.write_bytes(path.read_bytes().replace(body, b"A" + body[1:]))
    engine = open_engine(name, str(tmp_path / "store"))
    with pytest.raises(Damaged, match=r"checksum|damaged at offset"):
        list(engine.recover())
