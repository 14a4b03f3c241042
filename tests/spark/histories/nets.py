"""Histories of a federated net: real pairs under random faults, and a judge that goes id by id.

`python -m tests.spark.histories.nets --first SEED --histories N` makes histories, plants faults of hops in
them, and compares what the Spark job finds with what the judge finds. The judge shares no code with the job.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.ha.federation.net_ledgers import Line, NetWithLedgers, rewrite
from tests.ha.federation.test_random import Chaos
from tests.ha.pair import raw
from tests.spark.histories.pruning import prune_at
from tests.spark.records import remainder
from understudy.ledger.writer import LedgerWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from broker.model.vhost.vhost import VirtualHost

Named = tuple[str, str, int, int]
"""Kind, queue, epoch, id: of the link queue; of a message that was doubled, of the queue there."""
SESSION = re.compile(r"link:([0-9a-f]+):([0-9]+)")


class SmallFiles(NetWithLedgers):
    """So that some can be pruned."""

    rotate_bytes = 8_000


class History(Chaos):
    """A net of three pairs whose brokers and publisher keep ledgers, with a clean end."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.folder = folder
        self.publisher: LedgerWriter | None = None
        self.tags: dict[int, int] = {}
        self.tag = 0
        super().__init__(seed)

    def make_net(self) -> NetWithLedgers:
        net = SmallFiles(self.folder, giver=2, top=2, leaf=2)
        self.publisher = LedgerWriter(
            str(self.folder / "clients"), "p", "producer", incarnation=1, clock=net.now_us,
            rotate_bytes=net.rotate_bytes,
        )  # fmt: skip
        return net

    def send(self, vhost: VirtualHost, key: str, number: int) -> None:
        assert self.publisher is not None
        self.tag += 1
        self.tags[number] = self.tag
        sent = {"first": self.tag, "last": self.tag, "pfirst": number + 1}
        self.publisher.record("sent", prod="p.0/1", name=f"x|{key}", **sent)
        vhost.publish(
            vhost.route("x", key), [raw(chr(48 + number % 10))], persistent=True, channel=1, largest_frame=22,
            producer="p.0/1", first_tag=self.tag,
        )  # fmt: skip

    def told(self, number: int) -> None:
        assert self.publisher is not None
        self.publisher.record("confirmed", prod="p.0/1", first=self.tags[number], last=self.tags[number])

    def run(self) -> None:
        super().run()
        net = self.net
        assert isinstance(net, NetWithLedgers) and self.publisher is not None
        net.until(lambda: net.waiting("top", "leaf") == net.waiting("giver", "leaf") == 0, limit=60.0)
        net.run(2.0)
        self.publisher.close()
        net.end()


# -- the judge


@dataclass
class Judged:
    """By link queue and epoch the ids that it had, and let go of; by session, tag and queue the ids there."""

    given: set[tuple[str, int, int]] = field(default_factory=set)
    gone: set[tuple[str, int, int]] = field(default_factory=set)
    came: dict[tuple[str, int, int], set[tuple[str, int, int]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    nowhere: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    noted: Counter[tuple[str, int, int, int]] = field(default_factory=Counter)
    """The same, by the epoch of the primary that noted it."""
    left: set[tuple[str, int, int]] = field(default_factory=set)
    """Ids with a fate: dequeued, acked or present."""

    def take(self, line: Line) -> None:
        kind = line["kind"]
        session = SESSION.fullmatch(line.get("prod", ""))
        for number in range(line["first"], line["last"] + 1) if "first" in line else ():
            here = line.get("queue", ""), line.get("epoch", 0), number
            if kind in ("dequeue", "backup_dequeue", "acked", "present"):
                self.left.add(here)
            if kind in ("enqueue", "backup_enqueue"):
                self.given.add(here)
            elif kind in ("dequeue", "backup_dequeue") and line["reason"] == "transferred":
                self.gone.add(here)
            if session and kind == "unrouted":
                self.nowhere[session[1], int(session[2]), number] += 1
                self.noted[session[1], int(session[2]), number, line["view"]] += 1
            elif session:
                tag = line["pfirst"] + number - line["first"]
                self.came[session[1], int(session[2]), tag].add(here)

    def found(self) -> Iterator[Named]:
        arrived = set(self.came) | set(self.nowhere)
        yield from (("hop-lost", *each) for each in self.gone - arrived)
        yield from (("hop-unsent", *each) for each in (self.gone | arrived) - self.given)
        for ids in self.came.values():
            for each in ids:
                before = [other for other in ids if other[0] == each[0] and other < each]
                if any(other[1] == each[1] or other in self.left for other in before):
                    yield ("hop-doubled", *each)
        yield from {("hop-doubled", *tag) for (*tag, _), n in self.noted.items() if n > 1}


def lines_of(folder: Path) -> list[Line]:
    return [
        json.loads(line) for path in sorted(folder.rglob("*.ledger.jsonl"))
        for line in path.read_text().splitlines()
    ]  # fmt: skip


def judge(folder: Path) -> Judged:
    judged = Judged()
    for line in lines_of(folder):
        judged.take(line)
    return judged


# -- faults


def _arrival(rng: random.Random, folder: Path) -> Line | None:
    """Some run that came over a link to `leaf`, which nobody takes from."""
    runs = [
        line for line in lines_of(folder / "leaf")
        if line["kind"] == "enqueue" and SESSION.fullmatch(line.get("prod", ""))
    ]  # fmt: skip
    return rng.choice(runs) if runs else None


def lose(rng: random.Random, folder: Path) -> str:
    """A message never came to `leaf`."""
    run = _arrival(rng, folder)
    if run is None:
        return ""
    first = last = rng.randint(run["first"], run["last"])

    def cut(line: Line) -> list[Line]:
        mine = (line.get("queue"), line.get("epoch")) == (run["queue"], run["epoch"]) and "first" in line
        return remainder(line, first, last) if mine and line["first"] <= line["last"] else [line]

    rewrite(folder / "leaf", cut)
    return "hop-lost"


def double(rng: random.Random, folder: Path) -> str:
    """A message came to `leaf` again."""
    run = _arrival(rng, folder)
    if run is None:
        return ""
    again = {**run, "first": 10**6, "last": 10**6 + run["last"] - run["first"]}
    gone = {name: again[name] for name in ("v", "writer", "incarnation", "ts_us", "view", "queue", "epoch")}
    gone |= {"kind": "dequeue", "reason": "purged", "first": again["first"], "last": again["last"]}
    rewrite(folder / "leaf", lambda line: [line, again, gone] if line == run else [line])
    return "hop-doubled"


def invent(rng: random.Random, folder: Path) -> str:
    """A message came to `leaf` that its link queue never had."""
    run = _arrival(rng, folder)
    if run is None:
        return ""
    found = SESSION.fullmatch(run["prod"])
    assert found is not None
    queue, epoch = found[1], int(found[2])

    def cut(line: Line) -> list[Line]:
        mine = (line.get("queue"), line.get("epoch")) == (queue, epoch) and "first" in line
        whole = mine and line["kind"].endswith("enqueue")
        return remainder(line, run["pfirst"], run["pfirst"]) if whole else [line]

    for node in ("top", "giver"):
        rewrite(folder / node, cut)
    return "hop-unsent"


FAULTS: dict[str, Callable[[random.Random, Path], str]] = {
    fault.__name__: fault for fault in (lose, double, invent)
}  # fmt: skip


# -- one trial


def make(seed: int, folder: Path) -> set[str]:
    """Write the ledgers of this seed, with faults in two of three seeds. Returns the kinds to be found."""
    History(seed, folder).run()
    rng = random.Random(seed ^ 0xFA17)
    wanted = rng.sample(sorted(FAULTS), rng.randint(1, 3)) if seed % 3 else []
    return {kind for name in wanted if (kind := FAULTS[name](rng, folder))}


def differences(seed: int, folder: Path, answer: dict[str, Any]) -> list[str]:
    """Between the answer and what the judge finds."""
    judged = judge(folder)
    found = set(judged.found())
    said = {each for f in answer["findings"] if f["kind"].startswith("hop") for each in _ids(f)}
    out = [f"only the judge: {each}" for each in sorted(found - said)]
    out += [f"only Spark: {each}" for each in sorted(said - found)]
    if not found and answer["verdict"] != "proven":
        out.append(f"nothing was spoiled, and Spark says {answer['sentence']}")
    numbers = Counter(queue for queue, _, _ in judged.gone)
    told = Counter({hop["queue"]: hop["transferred"] for hop in answer["hops"]})
    if +numbers != +told:
        out.append(f"transferred: {numbers} by the judge, {told} by Spark")
    return [f"seed {seed}: {text}" for text in out]


def _ids(finding: dict[str, Any]) -> Iterator[Named]:
    session = SESSION.fullmatch(finding["prod"])
    assert session is not None
    queue, epoch = finding["queue"], finding["epoch"]
    where = (queue, epoch) if queue else (session[1], int(session[2]))
    for first, last in finding["ranges"]:
        yield from ((finding["kind"], *where, number) for number in range(first, last + 1))


def trial(session: SparkSession, seed: int, folder: Path) -> list[str]:
    from spark.reconcile.input.read import find_ledgers
    from spark.reconcile.job import reconcile

    planted = make(seed, folder)
    missed = planted - {kind for kind, *_ in judge(folder).found()}
    out = [f"seed {seed}: the judge does not see the planted {kind}" for kind in sorted(missed)]
    out += differences(seed, folder, reconcile(session, find_ledgers([folder])))
    return out if planted else out + pruned(session, seed, folder)


def pruned(session: SparkSession, seed: int, folder: Path) -> list[str]:
    """What remains of ledgers without a fault shows none, either."""
    from spark.reconcile.input.read import find_ledgers
    from spark.reconcile.job import reconcile

    prune_at(folder, seed)
    answer = reconcile(session, find_ledgers([folder]))
    fine = answer["verdict"] == "proven" and {hop["verdict"] for hop in answer["hops"]} <= {"proven"}
    return [] if fine else [f"seed {seed}: pruned, and Spark says {answer['sentence']}"]


def main() -> int:
    from spark.session import open_session

    parser = argparse.ArgumentParser(prog="python -m tests.spark.histories.nets", description=__doc__)
    parser.add_argument("--histories", type=int, default=5)
    parser.add_argument("--first", type=int, help="first seed; by default random, and printed")
    options = parser.parse_args()
    first = random.SystemRandom().randrange(10**6) if options.first is None else options.first
    print(f"{options.histories} histories of nets from seed {first} on", flush=True)
    session = open_session(small=True)
    failed = 0
    for seed in range(first, first + options.histories):
        with tempfile.TemporaryDirectory() as folder:
            found = trial(session, seed, Path(folder))
        failed += bool(found)
        print("\n".join(found) or f"seed {seed}: judge and Spark agree", flush=True)
    session.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
