"""Rounds of faults on real nodes under load: `python -m tests.failover.soak.rounds [--rounds N] [--seed S]`.

Publishers and consumers run throughout. Each round draws a fault from its seed (`faults.py`), plays it, and
makes the set whole again before the next. Every so many rounds (a *leg*, on a fresh set of two or three
nodes) everything is stopped cleanly; then each confirmed body must have come to a consumer, and Spark must
prove from the ledgers that nothing confirmed was lost. The seed of a round is printed; `--seed THAT --rounds
1` draws the same fault again.

With root and network namespaces the nodes live in their own, and partitions are among the faults.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from tests.failover.nodes import namespaces
from tests.failover.nodes.cluster import Cluster, Login, Place, local_places, understudy
from tests.failover.nodes.etcd import EtcdCluster
from tests.failover.nodes.namespaces import Lab
from tests.failover.soak.faults import ETCD, FAULTS, NETWORK, PROCESS, THREE_NODES, Stage
from tests.failover.soak.traffic import Traffic
from tests.ports import free_ports
from understudy.shared.addresses import HostPort

Judge = Callable[[Path], dict[str, Any]]
"""Spark's answer on the ledgers of a leg."""


class RoundsFailed(Exception):
    """One line, and where the remains are."""


ROLES = ("primary", "backup")
"""`ha.role` of the nodes of a pair."""


@dataclass(slots=True, frozen=True)
class Options:
    rounds: int = 100
    seed: int = 1
    """Of the first round; each further one adds one."""
    faults: tuple[str, ...] = ()
    """Played in this order, over and over; empty: drawn."""
    nodes: int = 0
    """0: two or three, drawn."""
    every: int = 20
    """Rounds of a leg."""
    rate: float = 150.0
    """Messages a second of each publisher of the kit."""
    ack_timeout: float = 1.0
    lease: float = 1.5
    failover_timeout: float = 2.0
    lab: bool = False
    """Each node in a network namespace of its own."""
    spark: bool = True
    authority: str = "manual"
    """`manual`: the runner promotes. `pair`: two nodes promote themselves. `witness`: so do they, with one.
    `etcd`: so do they, with three members of it."""

    @property
    def roles(self) -> bool:
        """Two nodes, each with its `ha.role`."""
        return self.authority in ("pair", "witness")

    folder: Path | None = None
    """Where everything is kept; None: a temporary folder, kept only if something is wrong."""


@dataclass(slots=True, frozen=True)
class Round:
    number: int
    seed: int
    fault: str
    promoted: str
    outage: float
    """Seconds: the longest time that any publisher of the kit was without a confirm."""
    plain: float
    """The same of the plain one."""
    seconds: float
    confirmed: int
    """Messages, in all legs so far."""


@dataclass(slots=True)
class Outcome:
    """What all rounds have come to. `confirmed` and `missing` are the clients' own counts."""

    rounds: list[Round] = field(default_factory=list)
    legs: int = 0
    confirmed: int = 0
    missing: int = 0
    resent: int = 0
    verdicts: list[str] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.missing and all(verdict == "proven" for verdict in self.verdicts)


def reconcile(folder: Path) -> dict[str, Any]:
    """Spark's answer, by the command."""
    code, out, err = understudy("reconcile", str(folder), "--format", "json")
    if code > 2:
        raise AssertionError(f"reconcile ended with {code}: {err.strip()}")
    answer = json.loads(out)
    assert isinstance(answer, dict)
    return answer


class Rounds:
    """One run. `say` gets a line for each round and each leg."""

    def __init__(self, options: Options, say: Callable[[str], None], judge: Judge = reconcile) -> None:
        self._o = options
        self._say = say
        self._judge = judge
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """All rounds. Raises RoundsFailed; no process, namespace or thread is left either way."""
        root = self._o.folder or Path(tempfile.mkdtemp(prefix="understudy-rounds-"))
        first = 1
        while first <= self._o.rounds:
            last = min(first + self._o.every - 1, self._o.rounds)
            folder = root / f"leg-{self.outcome.legs + 1}"
            try:
                self._leg(folder, first, last)
            except KeyboardInterrupt:
                if self._o.folder is None:
                    shutil.rmtree(root)
                raise
            except Exception as error:  # whatever it is, its seed is said, and its remains are kept
                raise RoundsFailed(f"{error}; what is left of it: {folder}") from error
            if not self.outcome.good:
                raise RoundsFailed(f"messages were lost, or the ledgers do not prove that none was: {folder}")
            if self._o.folder is None:
                shutil.rmtree(folder)
            first = last + 1
        if self._o.folder is None:
            shutil.rmtree(root)
        return self.outcome

    # -- a leg

    def _leg(self, folder: Path, first: int, last: int) -> None:
        seed = self._seed(first)
        two = 2 if self._o.roles else 0
        names = "abc"[: two or self._o.nodes or random.Random(f"nodes {seed}").choice((2, 3, 3))]
        began = time.monotonic()
        with self._stage(folder, names) as stage:
            stage.cluster.start(*names)
            assert stage.automatic or stage.promote([names[0]]), "a fresh set takes any primary"
            stage.whole()
            stage.traffic.start()
            stage.goes_on()
            for number in range(first, last + 1):
                self._round(stage, number)
            missing = stage.traffic.finish()
            _stop(stage)
        self.outcome.legs += 1
        self.outcome.confirmed += stage.traffic.confirmed
        self.outcome.resent += stage.traffic.resent
        self.outcome.missing += sum(missing.values())
        self.outcome.cuts += stage.cuts
        verdict = self._verdict(folder)
        lost = ", ".join(f"{count} of {queue}" for queue, count in missing.items() if count) or "none"
        self._say(
            f"rounds {first}-{last} on {len(names)} nodes: {stage.traffic.confirmed:,} messages confirmed,"
            f" {stage.traffic.resent:,} of them sent again, {lost} missing; {verdict};"
            f" {time.monotonic() - began:.0f} s"
        )

    @contextmanager
    def _stage(self, folder: Path, names: str) -> Iterator[Stage]:
        """The set and its clients, neither of them started yet."""
        o = self._o
        settings = [f"ha.ack_timeout={o.ack_timeout:g}s", f"ha.lease={o.lease:g}s"]
        settings += [f"ha.backup_timeout={2 * o.ack_timeout:g}s"]
        with ExitStack() as stack:
            places, login, host, lab = local_places(names), Login(), "127.0.0.1", None
            etcd: EtcdCluster | None = None
            if o.lab:
                lab = stack.enter_context(Lab(names))
                stack.enter_context(lab.inside())
                places, login, host = lab.places(), namespaces.LOGIN, namespaces.HUB_ADDRESS
                settings += namespaces.SETTINGS
            if o.authority != "manual":
                settings.append(f"ha.failover_timeout={o.failover_timeout:g}s")
            if o.roles:
                settings.append("ha.authority=pair")
            if o.authority == "witness":
                at = HostPort(host, free_ports(1)[0])
                witness = Cluster(
                    folder / "witness", {"w": Place(at)}, "ha.witness_for=pair", "ha.witness_password=w",
                    *(namespaces.SETTINGS if o.lab else ()), login=login,
                )  # fmt: skip
                stack.enter_context(witness).start("w", brokers="")
                settings += [f"ha.witness={at}", "ha.witness_password=w"]
            if o.authority == "etcd":
                etcd = stack.enter_context(EtcdCluster(folder, host=host))
                settings += [
                    "ha.authority=etcd",
                    f"ha.etcd.endpoints={etcd.listed}",
                ]
            addresses = ",".join(str(place.address) for place in places.values())
            traffic = stack.enter_context(Traffic(addresses, login, folder / "clients", o.rate))
            cluster = stack.enter_context(Cluster(folder, places, *settings, login=login))
            if o.roles:
                cluster.own = {
                    name: (f"ha.role={role}",) for name, role in zip(names, ROLES, strict=True)
                }  # fmt: skip
            yield Stage(cluster, traffic, random.Random(), lab, host, authority=o.authority, etcd=etcd)

    def _verdict(self, folder: Path) -> str:
        """Spark's, on all ledgers of a leg; "" when it is not asked."""
        if not self._o.spark:
            return "not reconciled"
        answer = self._judge(folder)
        (folder / "verdict.json").write_text(json.dumps(answer, indent=1))
        self.outcome.verdicts.append(answer["verdict"])
        return f"{answer['verdict']}: {answer['sentence']}"

    # -- a round

    def _seed(self, number: int) -> int:
        return self._o.seed + number - 1

    def _round(self, stage: Stage, number: int) -> None:
        seed = self._seed(number)
        stage.rng = random.Random(seed)
        fault = self._draw(stage, number)
        began = time.monotonic()
        stage.traffic.longest_gaps()
        try:
            promoted = FAULTS[fault](stage)
            stage.whole()
            stage.goes_on()
        except Exception as error:
            words = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"round {number}, seed {seed}, {fault}: {words}") from error
        done = Round(
            number, seed, fault, promoted, *stage.traffic.longest_gaps(), time.monotonic() - began,
            self.outcome.confirmed + stage.traffic.confirmed,
        )  # fmt: skip
        self.outcome.rounds.append(done)
        who = f"{promoted} promoted" if promoted else "nobody promoted"
        self._say(
            f"{number:4}  seed {seed}  {fault:<16}  {who:<15}  outage {1000 * done.outage:6,.0f} ms"
            f"  confirmed {done.confirmed:9,}  {done.seconds:4.1f} s"
        )

    def _draw(self, stage: Stage, number: int) -> str:
        if self._o.faults:
            return self._o.faults[(number - 1) % len(self._o.faults)]
        names = [*PROCESS, *(NETWORK if stage.lab is not None else ()), *(ETCD if stage.etcd else ())]
        if len(stage.cluster.addresses) < 3:
            names = [name for name in names if name not in THREE_NODES]
        return stage.rng.choice(names)


def _stop(stage: Stage) -> None:
    """The backups first, so that they end as full copies; then the primary."""
    primary = stage.primary()
    for name in (*(name for name in stage.cluster.brokers if name != primary), primary):
        code = stage.cluster.stop(name)
        assert code == 0, f"{name} ended with {code}: {stage.cluster.brokers[name].last_words()}"


def table(outcome: Outcome) -> Iterator[str]:
    """Outages by fault, of the client kit and of the plain client, in ms."""
    yield f"{'fault':<16}  rounds   outage: median  longest   plain: median  longest"
    for fault in FAULTS:
        played = [each for each in outcome.rounds if each.fault == fault]
        if played:
            kit, plain = [1000 * each.outage for each in played], [1000 * each.plain for each in played]
            yield (
                f"{fault:<16}  {len(played):6}  {median(kit):15,.0f}  {max(kit):7,.0f}"
                f"  {median(plain):14,.0f}  {max(plain):7,.0f}"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.failover.soak.rounds", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, help="of the first round; drawn if not said")
    parser.add_argument("--faults", default="", help=f"in turn, instead of drawn ones: {','.join(FAULTS)}")
    parser.add_argument(
        "--nodes", type=int, choices=(2, 3), default=0, help="two or three are drawn for each leg"
    )
    parser.add_argument("--every", type=int, default=20, help="rounds of a leg (20)")
    parser.add_argument("--rate", type=float, default=150.0, help="messages a second of each publisher (150)")
    parser.add_argument("--ack-timeout", type=float, default=1.0, help="seconds (1)")
    parser.add_argument("--lease", type=float, default=1.5, help="seconds (1.5)")
    parser.add_argument("--failover-timeout", type=float, default=2.0, help="seconds (2); not of manual")
    parser.add_argument("--authority", choices=("manual", "pair", "witness", "etcd"), default="manual")
    parser.add_argument("--namespaces", choices=("auto", "yes", "no"), default="auto")
    parser.add_argument("--no-spark", action="store_true", help="only the clients' own counts")
    parser.add_argument("--folder", type=Path, help="keep everything there")
    told = parser.parse_args(arguments)
    faults = tuple(name for name in told.faults.split(",") if name)
    if unknown := set(faults) - set(FAULTS):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    if told.authority != "etcd" and set(faults) & set(ETCD):
        parser.error("faults of etcd need --authority etcd")
    lab = _wants_lab(told.namespaces, faults)
    options = Options(
        told.rounds, secrets.randbelow(2**31) if told.seed is None else told.seed, faults, told.nodes,
        told.every, told.rate, told.ack_timeout, told.lease, told.failover_timeout, lab, not told.no_spark,
        told.authority, told.folder,
    )  # fmt: skip
    return _run(options)


def _wants_lab(wish: str, faults: Sequence[str]) -> bool:
    """Whether to use namespaces; says why, where they are wished for and cannot be had."""
    reason = "not wanted" if wish == "no" else namespaces.why_not()
    if reason and (wish == "yes" or set(faults) & set(NETWORK)):
        sys.exit(f"rounds: no network namespaces: {reason}")
    if reason:
        print(f"no partitions in these rounds: {reason}", flush=True)
    return not reason


def _run(options: Options) -> int:
    print(f"{options.rounds} rounds, seed {options.seed}", flush=True)
    runner = Rounds(options, lambda line: print(line, flush=True))
    began, failure = time.monotonic(), ""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        runner.run()
    except RoundsFailed as error:
        failure = str(error)
    except KeyboardInterrupt:
        failure = "interrupted"
    outcome = runner.outcome
    for line in table(outcome):
        print(line)
    print(
        f"{len(outcome.rounds)} of {options.rounds} rounds in {time.monotonic() - began:.0f} s:"
        f" {outcome.confirmed:,} messages confirmed, {outcome.missing} missing;"
        f" {len(outcome.cuts)} links cut after {len(set(outcome.cuts))} different numbers of bytes;"
        f" {outcome.legs} legs, {outcome.verdicts.count('proven')} proven",
        flush=True,
    )
    if failure:
        print(f"rounds: {failure}", file=sys.stderr)
    return 1 if failure or not outcome.good else 0


if __name__ == "__main__":
    sys.exit(main())
