"""The interpreter of transcripts: text files of commands and what the nodes then said, did and became.

A file is blocks of commands, a line `----`, and the expected output, ended by an empty line. Lines with `#`
are comments; a comment after the output of one block begins the next. Output, in the order in which it
happened: `a> ...` is what node a logged, `a: ...` what its core decided (saves, what it sent, frames of the
stream by name), `a = status` a change of status, `x: ...` what client x got back. Commands:

  the nodes
    nodes N [key=value ...]      begin, with settings     up N [key=value ...]   the same, as far as: a is
    start NODE...                configure NODE [key=value ...]                  primary, all others are ready
    kill NODE...                 the machine: what was not synced is lost; peers see connections close
    crash NODE...                the process: what was written is not lost
    power NODE...                all of them in one instant; peers see silence
    freeze NODE | thaw NODE      SIGSTOP, SIGCONT         disk NODE stop|go      its syncs do not return
    disk NODE fails|mended|rots|new      its syncs fail; a byte of its store changes; an empty one
    promote NODE [force|fenced[=WHOM]]  demote NODE       an operator; what was answered
    switchover NODE [TO] | switching NODE [TO]            the same; its answer comes meanwhile, as `NODE: ok`
    operators NODE...            as many operators, who promote one each in the same instant
  between them
    silence A B | heal           no byte passes           reset A B     connections break, and both see it
    hold A B [BYTES]             what A says to B stays on its way, after so many bytes; until `heal`
    snapshots NODE BYTES         how much of a snapshot goes out in a tick
    register show|empty | slow SECONDS     the authority, with authority=register
    register cut|mute|heal NODE  it does not hear NODE; hears it, and its answer is lost; all is well again
  the queues, of whoever serves, and then everywhere
    declare|delete|purge NODE QUEUE          publish NODE QUEUE LETTERS [transient]
    consume NODE QUEUE COUNT                 settle NODE QUEUE LETTERS    the same, these, out of order
    flow NODE QUEUE,QUEUE TICKS              a message into each of them, each tick
    spoil NODE QUEUE [[lost-]dequeues|lost]  the next messages (dequeues) cannot be applied, or get lost
    confirmed NODE                           the last publish
    contents|ids|redelivered QUEUE           same | state | records
    quarantine NODE                          what it exported, and was never served
    ledger NODE KIND                         what it noted since the last time
  clients of one node, in confirm mode, or with `tx` transactional
    client X NODE [tx] | send X QUEUE LETTERS [transient] | subscribe X QUEUE WINDOW | ack X TAG
    call X METHOD [QUEUE [FLAG...]]          any other method, for instance queue.declare
  time
    run SECONDS | step [TICKS]               until NODE STATUS | until confirmed NODE
"""

from __future__ import annotations

import json
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from broker.model.history.records import Dequeue, EnqueueRun
from broker.model.values import ORIGIN, Need, Position
from broker.store.errors import StoreError
from ha.core.effects import Effect, SwapRegister
from ha.core.membership import Status
from ha.core.record.in_sync_record import record_from_json
from tests.ha.client import Client
from tests.ha.pair import STEP, Host, Pair
from tests.ha.telling import describe, epoch_text, ids_text, readable, record_line, verdict
from tests.simulation.faults.spoiling import spoil

LIMIT = 30.0
"""Seconds of the clock that an `until` waits."""
LETTERS = ascii_lowercase + ascii_uppercase


def _values(settings: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings:
        key, value = setting.split("=")
        values[key] = float(value) if "." in value else int(value) if value.isdigit() else value
    return values


class Interpreter:
    """One transcript."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.out: list[str] = []
        self.last: Position = ORIGIN
        self.transient = False
        self.clients: dict[str, Client] = {}
        self.changes: set[tuple[Status, Status]] = set()
        """Every change of status that happened, for whoever asks whether all were shown."""
        self._new: dict[str, list[str]] = {}
        self._read: dict[tuple[str, str], int] = {}

    def play(self, text: str) -> str:
        """The same transcript with the output that there really was."""
        written: list[str] = []
        skipping = False
        for line in text.splitlines():
            if skipping:
                skipping = bool(line.strip())
                if skipping:
                    continue
                written.append("")
            elif line == "----":
                written += ["----", *self.out]
                self.out = []
                skipping = True
            else:
                written.append(line)
                if line.strip() and not line.startswith("#"):
                    self.command(line.split())
        return "\n".join(written).rstrip("\n") + "\n"

    def command(self, words: list[str]) -> None:
        name, *args = words
        getattr(self, f"do_{name}")(*args)

    # -- the nodes

    def do_nodes(self, count: str, *settings: str) -> None:
        self.pair = Pair(int(count), **_values(settings))
        self.clients = {}
        for host in self.pair.hosts:
            host.log = Told(self, host.name)

    def do_configure(self, name: str, *settings: str) -> None:
        self._host(name).settings = _values(settings)

    def do_up(self, count: str, *settings: str) -> None:
        self.do_nodes(count, *settings)
        self.do_start()
        self.do_run("0.3")
        self.do_promote("a")
        for host in self.pair.hosts[1:]:
            self.do_until(host.name, "ready")
        self.do_run("0.1")
        self.out = [f"{host.name} = {host.status}" for host in self.pair.hosts]

    def do_start(self, *names: str) -> None:
        for host in self._hosts(names):
            try:
                self.pair.start(host)
            except StoreError as error:
                host.node = None
                host.disk.kill()
                self.out.append(f"{host.name} does not start: {error}")
                continue
            self._watch(host)
        self._moved()

    def do_kill(self, *names: str) -> None:
        for host in self._hosts(names):
            self.pair.kill(host)
        self._moved()

    def do_crash(self, *names: str) -> None:
        for host in self._hosts(names):
            self.pair.kill(host, keep=True)
        self._moved()

    def do_power(self, *names: str) -> None:
        for host in self._hosts(names):
            host.node = None
        for host in self._hosts(names):
            self.pair.kill(host, clean=False)
        self._moved()

    def do_freeze(self, name: str) -> None:
        self._host(name).frozen = True

    def do_thaw(self, name: str) -> None:
        self._host(name).frozen = False
        self._moved()

    def do_disk(self, name: str, what: str) -> None:
        self._host(name).disk_does(what)

    def do_promote(self, name: str, force: str = "") -> None:
        fenced = force == "fenced" or force.removeprefix("fenced=") if force.startswith("fenced") else False
        self._ask(name, "promote", force_lossy=force == "force", fenced=fenced)

    def do_demote(self, name: str) -> None:
        self._ask(name, "demote")

    def do_switchover(self, name: str, to: str = "") -> None:
        self._ask(name, "switchover", to=to or None)

    def do_switching(self, name: str, to: str = "") -> None:
        def answered(answer: dict[str, Any]) -> None:
            self.out.append(f"{name}: {verdict(answer)}")

        self._host(name).running.manage("switchover", {"to": to or None}, answered, self.pair.now)

    def do_operators(self, *names: str) -> None:
        asked = {name: self._asked(name, "promote") for name in names}
        while not all(asked.values()):
            self._tick()
        for name, answers in asked.items():
            self.out.append(f"{name}: {verdict(answers[0])}")

    def _ask(self, name: str, command: str, **args: Any) -> None:
        answers = self._asked(name, command, **args)
        while not answers:
            self._tick()
        self._moved()
        self.out.append(verdict(answers[0]))

    def _asked(self, name: str, command: str, **args: Any) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        self._host(name).running.manage(command, args, answers.append, self.pair.now)
        return answers

    # -- between them

    def do_silence(self, one: str, other: str) -> None:
        self.pair.separate(self._host(one), self._host(other))

    def do_reset(self, one: str, other: str) -> None:
        self.pair.reset(self._host(one), self._host(other))

    def do_hold(self, sender: str, receiver: str, passing: str = "0") -> None:
        self.pair.hold(self._host(sender), self._host(receiver), int(passing))

    def do_heal(self) -> None:
        self.pair.heal()

    def do_snapshots(self, name: str, chunk: str) -> None:
        self.pair.snapshots(self._host(name), int(chunk))

    def do_register(self, what: str, of: str = "") -> None:
        register = self.pair.register
        match what:
            case "show":
                record = record_from_json(register.held) if register.held is not None else None
                self.out.append(f"the register holds {record_line(record) if record else 'nothing'}")
            case "empty":
                register.held = None
            case "slow":
                register.delay = float(of)
            case "cut" | "mute":
                {"cut": register.cut, "mute": register.mute}[what].add(of)
            case _:
                register.cut.discard(of)
                register.mute.discard(of)

    # -- the queues

    def do_spoil(self, name: str, queue: str, how: str = "") -> None:
        """The next messages (or with `dequeues`: dequeues; `lost`: silently) are not applied there."""
        vhost = self._host(name).running.vhost
        kind: Any = Dequeue if "dequeues" in how else EnqueueRun
        spoil(vhost.shared, kind, vhost.queues[queue].uuid, silent="lost" in how)

    def do_declare(self, name: str, queue: str, *arguments: str) -> None:
        """Arguments as `x-max-length=4`."""
        pairs = [argument.split("=") for argument in arguments]
        given = {key: int(value) if value.isdigit() else value for key, value in pairs}
        self.pair.declare(self._host(name), queue, arguments=given)

    def do_delete(self, name: str, queue: str) -> None:
        self._host(name).running.vhost.delete_queue(queue, owner=self.pair)

    def do_purge(self, name: str, queue: str) -> None:
        self._host(name).running.vhost.purge_queue(queue, owner=self.pair)

    def do_publish(self, name: str, queue: str, letters: str, kind: str = "") -> None:
        self.transient = kind == "transient"
        self.last = self.pair.publish(self._host(name), queue, letters, persistent=not self.transient)

    def do_consume(self, name: str, queue: str, count: str) -> None:
        self.out.append(f"got {self.pair.consume(self._host(name), queue, int(count))}")

    def do_settle(self, name: str, queue: str, letters: str) -> None:
        found = self._host(name).running.vhost.queues[queue]
        entries = [e for e in (found.pop(no_ack=False) for _ in range(len(found.ready))) if e is not None]
        wanted = [e for e in entries if chr(e[2][-2]) in letters]
        found.acknowledge(wanted)
        found.requeue([e for e in entries if e not in wanted])

    def do_flow(self, name: str, queues: str, ticks: str) -> None:
        for number in range(int(ticks)):
            for queue in queues.split(","):
                self.do_publish(name, queue, LETTERS[number % len(LETTERS)])
            self._tick()

    def do_confirmed(self, name: str) -> None:
        self.out.append("confirmed" if self._confirmed(name) else "not confirmed")

    def _confirmed(self, name: str) -> bool:
        need = Need.APPLIED if self.transient else Need.DURABLE
        return self.pair.confirmed(self._host(name), self.last, need=need)

    def do_contents(self, queue: str) -> None:
        for host in self._with(queue):
            self.out.append(f"{host.name} has {self.pair.contents(host, queue) or 'nothing'}")

    def do_ids(self, queue: str) -> None:
        for host in self._with(queue):
            self.out.append(f"{host.name} has {ids_text(host.running.vhost.queues[queue].snapshot())}")

    def do_redelivered(self, queue: str) -> None:
        for host in self._with(queue):
            entries = host.running.vhost.queues[queue].held_entries()
            found = "".join(chr(e[2][-2]) for e in entries if e[1].redelivered)
            self.out.append(f"{host.name} flags {found or 'nothing'}")

    def do_same(self) -> None:
        prints = {self.pair.fingerprint(h) for h in self.pair.hosts if h.node is not None}
        self.out.append("equal" if len(prints) == 1 else "different")

    def do_state(self) -> None:
        for host in self.pair.hosts:
            if host.node is not None:
                s = host.node.status()
                self.out.append(
                    f"{host.name} {s['status']} epoch {epoch_text(s['epoch'])} link {s['link']} "
                    f"{'promotable' if s['promotable'] else 'not promotable'}: {readable(s['reason'])}"
                )

    def do_records(self) -> None:
        for host in self.pair.hosts:
            if host.node is not None:
                record = host.node.core.record
                mark = ", copy incomplete" if host.node.core.incomplete else ""
                self.out.append(f"{host.name} knows {record_line(record) if record else 'no record'}{mark}")

    def do_quarantine(self, name: str) -> None:
        disk, directory = self._host(name).disk, f"/{name}/quarantine"
        paths = disk.list(directory) if directory.count("/") and "quarantine" in disk.list(f"/{name}") else []
        lines = [json.loads(x) for p in paths for x in disk.read(f"{directory}/{p}").decode().splitlines()]
        for line in lines:
            place = f"{line['name']} {epoch_text(line['epoch'])}: {line['sequence']}"
            self.out.append(f"quarantined {line['body']} of {place}")
        if not lines:
            self.out.append(f"{name} quarantined nothing")

    def do_ledger(self, name: str, kind: str) -> None:
        notes = self._host(name).ledger.kinds
        for noted, fields in notes[self._read.get((name, kind), 0) :]:
            if noted == kind:
                said = " ".join(
                    f"{key}={epoch_text(value) if key in ('view', 'epoch') else value}"
                    for key, value in fields.items() if key != "queue" and value != ""
                )  # fmt: skip
                self.out.append(f"{name} noted {kind}: {readable(said)}")
        self._read[name, kind] = len(notes)

    # -- clients

    def do_client(
        self, name: str, node: str, mode: str = "confirm", producer: str = "", number: str = "1"
    ) -> None:
        """`producer`: its messages have numbers, from `number` on."""
        claim = {"producer_id": producer, "producer_next": int(number)} if producer else {}
        client = self.clients[name] = Client(name, self._host(node), self.pair.now, told=claim)
        self._tick()
        client.begin(self.pair.now, mode)
        self._tick()

    def do_send(self, name: str, queue: str, letters: str, kind: str = "") -> None:
        self.clients[name].publish(queue, letters, self.pair.now, persistent=kind != "transient")

    def do_subscribe(self, name: str, queue: str, window: str) -> None:
        self.clients[name].consume(queue, int(window), self.pair.now)

    def do_ack(self, name: str, tag: str) -> None:
        self.clients[name].ack(int(tag), self.pair.now)

    def do_reject(self, name: str, tag: str) -> None:
        self.clients[name].call("basic.reject", self.pair.now, delivery_tag=int(tag), requeue=False)

    def do_call(self, name: str, method: str, queue: str = "", *flags: str) -> None:
        more: dict[str, Any] = {"queue": queue} if queue else {}
        if method == "queue.declare":
            level = {"x-replicate": "all"} if "x-replicate" in flags else {}
            more |= {"durable": True, "arguments": level}
            more |= {flag: True for flag in flags if flag != "x-replicate"}
        self.clients[name].call(method, self.pair.now, **more)

    # -- time

    def do_run(self, seconds: str) -> None:
        end = self.pair.now + float(seconds)
        while self.pair.now < end:
            self._tick()

    def do_step(self, ticks: str = "1") -> None:
        for _ in range(int(ticks)):
            self._tick()

    def do_until(self, name: str, what: str) -> None:
        end = self.pair.now + LIMIT
        while not (self._confirmed(what) if name == "confirmed" else self._host(name).status == what):
            if self.pair.now > end:
                self.out.append(f"waited {LIMIT:g} s in vain")
                return
            self._tick()

    # -- watching

    def _tick(self) -> None:
        self.pair.run(STEP)
        self._moved()

    def _watch(self, host: Host) -> None:
        """Hear what its core decides and becomes."""
        runner, membership = host.running._effects, host.running.core.membership
        carry_out, become = runner._one, membership.become
        self._new[host.name] = [membership.status.value]
        asked: list[str | None] = [None]  # the register is asked for the same again and again: told once

        def seen(effect: Effect, now: float) -> None:
            line = describe(effect)
            if isinstance(effect, SwapRegister):
                line, asked[0] = None if line == asked[0] else line, line
            if line is not None:
                self.out.append(f"{host.name}: {line}")
            carry_out(effect, now)

        def became(status: Status) -> None:
            old = membership.status
            become(status)
            if status is not old:
                self.changes.add((old, status))
                self._new[host.name].append(status.value)

        runner._one = seen  # type: ignore[method-assign]
        membership.become = became  # type: ignore[method-assign]

    def _moved(self) -> None:
        """Changes of status, each node's own in one line, and what clients got."""
        for host in self.pair.hosts:
            new, self._new[host.name] = self._new.get(host.name, []), []
            if new and host.node is not None:
                self.out.append(f"{host.name} = {', '.join(new)}")
        for client in self.clients.values():
            self.out += client.pump(self.pair.now)

    def _host(self, name: str) -> Host:
        return next(h for h in self.pair.hosts if h.name == name)

    def _hosts(self, names: tuple[str, ...]) -> list[Host]:
        return [self._host(n) for n in names] or self.pair.hosts

    def _with(self, queue: str) -> list[Host]:
        return [h for h in self.pair.hosts if h.node is not None and queue in h.node.vhost.queues]


class Told(list[str]):
    """A log that goes into the transcript."""

    def __init__(self, interpreter: Interpreter, name: str) -> None:
        super().__init__()
        self._interpreter, self._name = interpreter, name

    def append(self, sentence: str) -> None:
        super().append(sentence)
        self._interpreter.out.append(f"{self._name}> {readable(sentence)}")
