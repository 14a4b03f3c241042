"""The interpreter of transcripts: text files of commands and what the nodes then said, did and became.

A file is blocks of commands, a line `----`, and the expected output, ended by an empty line. Lines with `#`
are comments. Output, in the order in which it happened: `a> ...` is what node a logged, `a: ...` what its
core decided (saves, what it sent, frames of the stream by name), `a = status` a change of status. Commands:

    nodes N [key=value ...]         begin, with settings        start|kill|freeze|thaw NODE...
    promote|demote NODE [force]     as an operator              silence NODE... | heal
    declare NODE QUEUE              publish NODE QUEUE LETTERS [transient]
    consume NODE QUEUE COUNT        contents QUEUE              confirmed NODE   (the last publish)
    disk NODE stop|go               run SECONDS                 state            same
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.model.values import ORIGIN, Position
from ha.core.effects import ClosePeer, Effect, SaveRecord, SendMethod, SendStream, StartServing, StopServing
from ha.core.link import Frame, Method
from tests.ha.pair import Host, Pair

QUIET = frozenset({Method.HELLO, Method.HELLO_OK, Method.HEARTBEAT, Method.ACK, Method.MANAGE_OK})


class Interpreter:
    """One transcript."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.out: list[str] = []
        self.statuses: dict[str, str] = {}
        self.last: Position = ORIGIN
        self.transient = False

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

    # -- commands

    def do_nodes(self, count: str, *settings: str) -> None:
        values: dict[str, Any] = {}
        for setting in settings:
            key, value = setting.split("=")
            values[key] = float(value) if "." in value else int(value) if value.isdigit() else value
        self.pair = Pair(int(count), **values)
        for host in self.pair.hosts:
            host.log = Told(self, host.name)

    def do_start(self, *names: str) -> None:
        for host in self._hosts(names):
            self.pair.start(host)
            self._watch(host)
        self._moved()

    def do_kill(self, *names: str) -> None:
        for host in self._hosts(names):
            self.pair.kill(host)
            self.statuses.pop(host.name, None)

    def do_freeze(self, name: str) -> None:
        self._host(name).frozen = True

    def do_thaw(self, name: str) -> None:
        self._host(name).frozen = False

    def do_silence(self, one: str, other: str) -> None:
        self.pair.separate(self._host(one), self._host(other))

    def do_heal(self) -> None:
        self.pair.heal()

    def do_promote(self, name: str, force: str = "") -> None:
        self._ask(name, "promote", force_lossy=force == "force")

    def do_demote(self, name: str) -> None:
        self._ask(name, "demote")

    def do_declare(self, name: str, queue: str) -> None:
        self.pair.declare(self._host(name), queue)

    def do_publish(self, name: str, queue: str, letters: str, kind: str = "") -> None:
        self.transient = kind == "transient"
        self.last = self.pair.publish(self._host(name), queue, letters, persistent=not self.transient)

    def do_consume(self, name: str, queue: str, count: str) -> None:
        self.out.append(f"got {self.pair.consume(self._host(name), queue, int(count))}")

    def do_contents(self, queue: str) -> None:
        for host in self.pair.hosts:
            if host.node is not None and queue in host.node.vhost.queues:
                self.out.append(f"{host.name} has {self.pair.contents(host, queue) or 'nothing'}")

    def do_confirmed(self, name: str) -> None:
        yes = self.pair.confirmed(self._host(name), self.last, durable=not self.transient)
        self.out.append("confirmed" if yes else "not confirmed")

    def do_disk(self, name: str, what: str) -> None:
        self._host(name).syncing = what == "go"

    def do_run(self, seconds: str) -> None:
        end = self.pair.now + float(seconds)
        while self.pair.now < end:
            self.pair.run(0.005)
            self._moved()

    def do_state(self) -> None:
        for host in self.pair.hosts:
            if host.node is not None:
                s = host.node.status()
                self.out.append(
                    f"{host.name} {s['status']} epoch {_epoch(s['epoch'])} link {s['link']} "
                    f"{'promotable' if s['promotable'] else 'not promotable'}: {s['reason']}"
                )

    def do_same(self) -> None:
        prints = {self.pair.fingerprint(h) for h in self.pair.hosts if h.node is not None}
        self.out.append("equal" if len(prints) == 1 else "different")

    # -- watching

    def _ask(self, name: str, command: str, **args: Any) -> None:
        answers: list[dict[str, Any]] = []
        self._host(name).running.manage(command, args, answers.append, self.pair.now)
        while not answers:
            self.do_run("0.005")
        self._moved()
        self.out.append(f"{'ok' if answers[0]['ok'] else 'refused'}: {_short(answers[0]['reason'])}")

    def _watch(self, host: Host) -> None:
        runner = host.running._effects
        carry_out = runner._one

        def seen(effect: Effect, now: float) -> None:
            line = describe(effect)
            if line is not None:
                self.out.append(f"{host.name}: {line}")
            carry_out(effect, now)

        runner._one = seen  # type: ignore[method-assign]

    def _moved(self) -> None:
        for host in self.pair.hosts:
            if host.node is not None and self.statuses.get(host.name) != host.status:
                self.statuses[host.name] = host.status
                self.out.append(f"{host.name} = {host.status}")

    def _host(self, name: str) -> Host:
        return next(h for h in self.pair.hosts if h.name == name)

    def _hosts(self, names: tuple[str, ...]) -> list[Host]:
        return [self._host(n) for n in names] or self.pair.hosts


class Told(list[str]):
    """A log that goes into the transcript."""

    def __init__(self, interpreter: Interpreter, name: str) -> None:
        super().__init__()
        self._interpreter, self._name = interpreter, name

    def append(self, sentence: str) -> None:
        super().append(sentence)
        self._interpreter.out.append(f"{self._name}> {_short(sentence)}")


def describe(effect: Effect) -> str | None:
    """One line, or None for what is said all the time."""
    match effect:
        case SendMethod(method=method):
            return None if method in QUIET else f"send {Method(method).name.lower()}"
        case SendStream(parts=parts):
            return f"stream {', '.join(_frames(b''.join(parts)))}"
        case SaveRecord(record=record, incomplete=incomplete):
            names = ", ".join(sorted(record.names.get(i.node_id, "?") for i in record.in_sync)) or "nobody"
            owner = record.names.get(record.owner.node_id, "?")
            mark = ", copy incomplete" if incomplete else ""
            return f"save record {_epoch(record.epoch)}.{record.revision} of {owner}, in sync: {names}{mark}"
        case StartServing(epoch=epoch):
            return f"serve in epoch {_epoch(epoch)}"
        case StopServing():
            return "stop serving"
        case ClosePeer(text=text):
            return None if text == "this is myself" else f"close: {_short(text)}"
        case _:
            return None


def _frames(stream: bytes) -> list[str]:
    found = []
    at = 0
    while at < len(stream):
        found.append(Frame(stream[at + 4]).name.lower())
        at += 5 + int.from_bytes(stream[at : at + 4], "big")
    return found


def _epoch(epoch: int) -> str:
    """Counter and node number."""
    return f"{epoch >> 16}/{epoch & 0xFFFF}"


def _short(text: str) -> str:
    """Epochs as counter/number, so that a transcript can be read."""
    words = []
    for word in text.split(" "):
        digits = word.strip("(),:;")
        words.append(
            word.replace(digits, _epoch(int(digits))) if digits.isdigit() and int(digits) > 0xFFFF else word
        )
    return " ".join(words)


def transcripts() -> list[Path]:
    return sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
