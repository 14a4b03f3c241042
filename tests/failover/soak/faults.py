"""What goes wrong in a round, played on real processes, and what an operator then does about it.

A fault is a function of the `Stage`; it returns who was promoted, or "". It raises AssertionError when
something is as it must not be. The set is whole when it begins, and the runner makes it whole again
afterwards; only the link cut and the partitions clean up after themselves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tests.failover.nodes.bare import CLOSE, Bare
from tests.failover.nodes.cluster import SERVING, Cluster, kinds, read_ledgers
from tests.failover.nodes.etcd import EtcdCluster
from tests.failover.nodes.namespaces import Lab
from tests.failover.nodes.proxy import LinkProxy
from tests.failover.soak.traffic import Traffic

GOES_ON = 20
"""Confirms of every publisher by which the service counts as going on."""
CUTS = 8
"""Links cut in one round, each at another byte."""
STORED = 60
"""Messages that a backup lacks, at the least, when its snapshot is cut."""
LINK_BYTES = 2_000 + 240 * STORED
"""About what goes to such a backup before live history: the handshake, the definitions, the snapshot."""
_GOLDEN = 0.6180339887498949
"""The step that never comes close to where it was before."""


@dataclass(slots=True)
class Stage:
    """What a fault is played on. Owner: a leg."""

    cluster: Cluster
    traffic: Traffic
    rng: random.Random
    lab: Lab | None = None
    proxy_host: str = "127.0.0.1"
    cuts: list[int] = field(default_factory=list)
    """After how many bytes links were cut, so far."""
    authority: str = "manual"
    etcd: EtcdCluster | None = None
    """Under `etcd`."""

    @property
    def automatic(self) -> bool:
        """Nodes promote themselves."""
        return self.authority != "manual"

    # -- who is what

    def primary(self) -> str:
        serving = [name for name in self.cluster.brokers if self.cluster.status(name) in SERVING]
        assert len(serving) == 1, f"one primary, not {serving}"
        return serving[0]

    def backups(self) -> list[str]:
        """All others, in the order in which fate meets them."""
        primary = self.primary()
        names = [name for name in self.cluster.brokers if name != primary]
        self.rng.shuffle(names)
        return names

    # -- what an operator does

    def promote(self, names: Sequence[str], *, force: bool = False) -> str:
        """The first that may be; "" if all are refused. Each is asked twice: it may not have heard yet what
        has befallen the primary.
        """
        for name in (*names, *names):
            if self.cluster.ask(name, "promote", force_lossy=force)["ok"]:
                return name
        return ""

    def takes_over(self, *names: str) -> str:
        """Wait until one of these has promoted itself."""
        self.until(
            lambda: any(self.cluster.status(name) in SERVING for name in names),
            f"one of {', '.join(names)} to promote itself",
        )
        return next(name for name in names if self.cluster.status(name) in SERVING)

    def refused(self, name: str) -> str:
        """An unforced promotion that must not be granted: the reason."""
        answer = self.cluster.ask(name, "promote")
        assert not answer["ok"], f"{name} was promoted: {answer['reason']}"
        return str(answer["reason"])

    # -- what is waited for

    def goes_on(self, confirms: int = GOES_ON, *, plain: bool = True) -> None:
        """Every publisher is served; `plain`: so is the one that leaves a silent broker late."""
        publishers = self.traffic.publishers if plain else self.traffic.kit
        goals = [(each, each.confirms + confirms) for each in publishers]
        self.until(lambda: all(each.confirms >= goal for each, goal in goals), "confirms for every publisher")

    def in_sync(self, name: str) -> set[str]:
        """The others that the primary `name` counts on."""
        members = self.cluster.answer(name).get("members", [])
        return {line["name"] for line in members if line["in_sync"] and not line["self"]}

    def excluded(self, primary: str, *names: str) -> None:
        self.until(lambda: not self.in_sync(primary) & set(names), f"{primary} to exclude {', '.join(names)}")

    def whole(self) -> None:
        """One primary, and everybody else a ready backup that it counts on."""
        self.until(self._is_whole, "the set to be whole")

    def _is_whole(self) -> bool:
        answers: dict[str, dict[str, Any]] = {
            name: self.cluster.answer(name) for name in self.cluster.brokers
        }
        active = [name for name, found in answers.items() if found.get("status") == "active"]
        ready = {name for name, found in answers.items() if found.get("status") == "ready"}
        return len(active) == 1 and {*active, *ready} == set(answers) and self.in_sync(active[0]) == ready

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def checked() -> bool:
            self.traffic.check()
            return condition()

        self.cluster.until(checked, what)


# -- processes ---------------------------------------------------------------------------------------------


def kill_primary(stage: Stage) -> str:
    """SIGKILL, and a backup is promoted, unforced. A backup that this busy machine had let fall out of the
    record is rightly refused; then the old primary is started and promoted again, as it has everything.
    """
    primary, backups = stage.primary(), stage.backups()
    stage.cluster.kill(primary)
    promoted = stage.takes_over(*backups) if stage.automatic else stage.promote(backups)
    if promoted:
        stage.goes_on()
        stage.cluster.start(primary)
        return promoted
    stage.cluster.start(primary)
    stage.until(lambda: bool(stage.promote([primary])), f"{primary} to be promoted again")
    return primary


def kill_backup(stage: Stage) -> str:
    victim = stage.backups()[0]
    stage.cluster.kill(victim)
    stage.goes_on()
    stage.cluster.start(victim)
    return ""


def freeze_primary(stage: Stage) -> str:
    """SIGSTOP until a backup has been promoted, its lease waited out, then SIGCONT (8, 28)."""
    cluster, zombie, backups = stage.cluster, stage.primary(), stage.backups()
    witness = Bare(cluster.addresses[zombie], cluster.login)
    witness.settle_down("witness")
    cluster.freeze(zombie)
    try:
        ready = [name for name in backups if cluster.status(name) == "ready"]
        assert ready, "a backup that is in the record"
        if not stage.automatic:
            stage.refused(ready[0])
        witness.ask_for_more("witness")
        promoted = stage.takes_over(*ready) if stage.automatic else stage.promote(ready, force=True)
        assert promoted, "an operator who forces is obeyed"
        stage.goes_on(plain=False)
        witness.ask_for_more("witness")
        before = len(cluster.ledger(zombie))
    finally:
        cluster.thaw(zombie)
    heard = witness.read_until(CLOSE)
    witness.close()
    assert heard == [CLOSE], f"{zombie} woke and said {heard}"
    stage.whole()
    _check_zombie(cluster.ledger(zombie)[before:], read_ledgers(cluster.folder / "clients"))
    return promoted


def _check_zombie(woken: list[dict[str, Any]], clients: list[dict[str, Any]]) -> None:
    """By its ledgers once it is awake, and the clients': it served nobody. It may have read what had lain in
    its sockets, acknowledgements of before included; none of that was confirmed or seen by a consumer, and it
    excluded nobody in order to go on alone.
    """
    assert "demote" in kinds(woken), "the zombie has not stepped down"
    alone = [record for record in woken if record["kind"] in ("promote", "insync")]
    assert not alone, f"the zombie's ledgers after it woke: {alone[:5]}"
    for read in woken:
        if read["kind"] == "enqueue":
            told = [record for record in clients if _is_of(record, read)]
            assert not told, f"the zombie served {read}: {told[:5]}"


def _is_of(record: dict[str, Any], enqueue: dict[str, Any]) -> bool:
    """Whether a client was given, or had confirmed, any message of a run that was enqueued."""
    same: tuple[str, ...] = ("queue", "epoch")
    first = int(enqueue["first"])
    if record["kind"] == "confirmed" and "prod" in enqueue:
        same, first = ("prod",), int(enqueue["pfirst"])
    elif record["kind"] != "received":
        return False
    last = first + int(enqueue["last"]) - int(enqueue["first"])
    overlap = int(record["first"]) <= last and first <= int(record["last"])
    return overlap and all(record[key] == enqueue[key] for key in same)


def freeze_backup(stage: Stage) -> str:
    """SIGSTOP until the primary has excluded it, then SIGCONT (26)."""
    primary, victim = stage.primary(), stage.backups()[0]
    stage.cluster.freeze(victim)
    try:
        stage.excluded(primary, victim)
        stage.goes_on()
    finally:
        stage.cluster.thaw(victim)
    return ""


def switchover(stage: Stage) -> str:
    primary, heir = stage.primary(), stage.backups()[0]
    answer = stage.cluster.ask(primary, "switchover", to=heir)
    assert answer["ok"], answer["reason"]
    stage.goes_on()
    return heir


# -- the link ----------------------------------------------------------------------------------------------


def cut_link(stage: Stage) -> str:
    """A backup comes back through a proxy that cuts its link at another byte each time, RST or FIN (19)."""
    cluster, primary, victim = stage.cluster, stage.primary(), stage.backups()[0]
    at = stage.rng.random()
    cluster.kill(victim)
    with ExitStack() as stack:
        proxies = {
            name: stack.enter_context(LinkProxy(cluster.addresses[name], stage.proxy_host))
            for name in cluster.addresses
            if name != victim
        }
        told = ",".join([str(cluster.addresses[victim]), *(str(each.address) for each in proxies.values())])
        link = proxies[primary]
        store = stack.enter_context(stage.traffic.depot())
        for cut in range(CUTS):
            store(STORED)
            after = 1 + int((at + cut * _GOLDEN) % 1 * LINK_BYTES)
            link.arm(after, stage.rng.choice(("RST", "FIN")))
            if not cut:
                cluster.start(victim, brokers=told)
            stage.until(link.was_cut.is_set, f"{after} bytes over the link")
            stage.cuts.append(after)
        store(STORED)
        link.disarm()
        stage.until(lambda: victim in stage.in_sync(primary), f"{victim} to be in sync")
        stage.whole()
        cluster.kill(victim)  # and back without proxies
        cluster.start(victim)
    return ""


# -- partitions --------------------------------------------------------------------------------------------


def _partition(stage: Stage, *, out: bool, back: bool) -> str:
    """Between the primary and one backup; clients reach both. The backup is excluded, and not promotable."""
    assert stage.lab is not None
    primary, victim = stage.primary(), stage.backups()[0]
    if out:
        stage.lab.drop(primary, victim)
    if back:
        stage.lab.drop(victim, primary)
    stage.excluded(primary, victim)
    stage.refused(victim)
    stage.goes_on()
    assert stage.cluster.status(primary) == "active"
    stage.lab.heal()
    return ""


def partition(stage: Stage) -> str:
    return _partition(stage, out=True, back=True)


def deaf_backup(stage: Stage) -> str:
    """What the primary sends gets lost; the other way goes through."""
    return _partition(stage, out=True, back=False)


def mute_backup(stage: Stage) -> str:
    """What the backup sends gets lost."""
    return _partition(stage, out=False, back=True)


def parted_backups(stage: Stage) -> str:
    """Two backups that cannot reach each other concern nobody: both stay in sync."""
    assert stage.lab is not None
    primary, (one, other) = stage.primary(), stage.backups()
    stage.lab.drop(one, other)
    stage.lab.drop(other, one)
    stage.goes_on(10 * GOES_ON)
    assert stage.in_sync(primary) == {one, other}
    stage.lab.heal()
    return ""


def isolated_primary(stage: Stage) -> str:
    """Cut off from everybody, clients too. Silence promotes nobody; the operator fences it first. No client
    is left on it when the network heals: of what it may have confirmed alone, nobody has heard.
    """
    assert stage.lab is not None
    primary, backups = stage.primary(), stage.backups()
    stage.lab.isolate(primary)
    ready = [name for name in backups if stage.cluster.status(name) == "ready"]
    assert ready, "a backup that is in the record"
    if stage.automatic:
        promoted = stage.takes_over(*ready)
        stage.goes_on()
        stage.lab.heal()
        return promoted
    stage.refused(ready[0])
    stage.cluster.kill(primary)
    promoted = stage.promote(ready, force=True)
    assert promoted, "an operator who forces is obeyed"
    stage.goes_on()
    stage.lab.heal()
    stage.cluster.start(primary)
    return promoted


def severed_primary(stage: Stage) -> str:
    """Cut off from its backups, while clients reach it, and killed before it has excluded them: what it could
    not replicate it has not confirmed (2, 3). Should this busy machine have been too slow, it has confirmed
    alone by right, and is the one to be promoted again.
    """
    assert stage.lab is not None
    primary, backups = stage.primary(), stage.backups()
    before = _exclusions(stage, primary)
    for backup in backups:
        stage.lab.drop(primary, backup)
        stage.lab.drop(backup, primary)
    goals = [(each, each.published + GOES_ON) for each in stage.traffic.kit]
    stage.until(
        lambda: all(each.published >= goal for each, goal in goals), "messages that cannot be replicated"
    )
    stage.cluster.kill(primary)
    if stage.automatic:
        stage.lab.heal()
        stage.cluster.start(primary)
        promoted = stage.takes_over(primary, *backups)
        stage.goes_on()
        return promoted
    if _exclusions(stage, primary) > before:
        stage.lab.heal()
        stage.cluster.start(primary)
        stage.until(lambda: bool(stage.promote([primary])), f"{primary} to be promoted again")
        return primary
    promoted = stage.promote(backups, force=True)
    assert promoted, "an operator who forces is obeyed"
    stage.goes_on()
    stage.lab.heal()
    stage.cluster.start(primary)
    return promoted


def _exclusions(stage: Stage, name: str) -> int:
    """How many a node has recorded so far."""
    records = stage.cluster.ledger(name)
    return sum(record["kind"] == "insync" and record["reason"] == "excluded" for record in records)


# -- etcd ------------------------------------------------------------------------------------------------


def kill_member(stage: Stage) -> str:
    """A member of etcd is killed, and the primary, too."""
    assert stage.etcd is not None
    number = stage.rng.randrange(len(stage.etcd.endpoints))
    stage.etcd.kill(number)
    promoted = kill_primary(stage)
    stage.etcd.start(number)
    stage.etcd.until_it_commits()
    return promoted


def freeze_member(stage: Stage) -> str:
    """A member of etcd hangs, perhaps the one that the nodes ask."""
    assert stage.etcd is not None
    number = stage.rng.randrange(len(stage.etcd.endpoints))
    stage.etcd.freeze(number)
    try:
        stage.goes_on(10 * GOES_ON)
    finally:
        stage.etcd.thaw(number)
    return ""


def stop_etcd(stage: Stage) -> str:
    """All members are killed, and the set goes on. A primary that dies meanwhile is followed when etcd is
    back."""
    assert stage.etcd is not None
    members = range(len(stage.etcd.endpoints))
    stage.etcd.kill(*members)
    stage.goes_on(10 * GOES_ON)
    primary, backups = stage.primary(), stage.backups()
    if stage.rng.random() < 0.5:
        stage.etcd.start(*members)
        stage.etcd.until_it_commits()
        return ""
    stage.cluster.kill(primary)
    stage.etcd.start(*members)
    promoted = stage.takes_over(*backups)
    stage.goes_on()
    stage.cluster.start(primary)
    return promoted


Fault = Callable[[Stage], str]
PROCESS: dict[str, Fault] = {
    "kill-primary": kill_primary,
    "kill-backup": kill_backup,
    "freeze-primary": freeze_primary,
    "freeze-backup": freeze_backup,
    "switchover": switchover,
    "cut-link": cut_link,
}
NETWORK: dict[str, Fault] = {
    "partition": partition,
    "deaf-backup": deaf_backup,
    "mute-backup": mute_backup,
    "parted-backups": parted_backups,
    "isolated-primary": isolated_primary,
    "severed-primary": severed_primary,
}
"""These need a `Lab`."""
ETCD: dict[str, Fault] = {
    "kill-member": kill_member,
    "freeze-member": freeze_member,
    "stop-etcd": stop_etcd,
}
"""These need an etcd."""
THREE_NODES = {"parted-backups"}
FAULTS = PROCESS | NETWORK | ETCD
