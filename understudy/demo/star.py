"""The demo of federation: a pair in the centre and three brokers around it, over long lines, under load.

Everything is as a user would run it: brokers are `understudy serve` processes, the net is made by entries of
the directory, and clients know the addresses of their own node only. Between the nodes are lines with a delay
(`understudy.demo.line`). One is cut and mended; then the centre's primary is killed. Each message has a
number, so what is lost, or comes twice, is known one by one.

`run` performs the steps in order.
"""

from __future__ import annotations

import json
import math
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.security.authenticator import hash_password
from understudy.demo.line import Line
from understudy.demo.plain_client import plain_connection
from understudy.demo.progress import Progress, Tally
from understudy.demo.stage import Client, DemoFailed, Stage, Verdict
from understudy.demo.star_worker import Task, exchange_of, queue_of
from understudy.management import Unreachable, ask, refusal_of

PAIR = ("centre1", "centre2")
LEAVES = ("berlin", "madrid", "oslo")
CENTRE = "centre"
PRICES, ORDERS, SERVICES = "prices", "orders", "services"
"""Exchanges: prices go from the centre to the leaves, orders from the leaves to the centre, and requests from
one leaf to a service at another one."""
ASKER, SERVER = "berlin", "oslo"
KEYS = ["eu.rate", "us.rate", "asia.rate"]
WANTS = {"berlin": ["eu.rate"], "madrid": ["eu.rate", "us.rate"], "oslo": KEYS}
"""Which prices each leaf is bound for."""
CUT_OFF = "madrid"
SHARE_OF_ORDERS, SHARE_OF_REQUESTS = 0.2, 0.01
CUT_AT, MEND_AT, KILL_AT = 0.15, 0.3, 0.5
"""Shares of the prices that are confirmed before that happens."""
LOGIN, PASSWORD = "leaf", "a word of the demo"
PATIENCE = 60.0


@dataclass(slots=True, frozen=True)
class StarOptions:
    """`delay`: seconds, one way, of each line. `rate`: prices a second."""

    messages: int
    rate: float
    folder: Path
    delay: float = 0.05
    spark: bool = True


@dataclass(slots=True, frozen=True)
class Flow:
    """What came to one queue, in messages."""

    what: str
    due: int
    received: int
    lost: int
    twice: int
    disordered: int
    p50_ms: float | None
    worst_ms: float | None

    @property
    def good(self) -> bool:
        return not self.lost and not self.twice and not self.disordered


@dataclass(slots=True)
class StarOutcome:
    flows: list[Flow]
    map: Path
    """The picture of the net while a leaf is cut off."""
    waited: int
    """Messages that waited for the leaf that was cut off."""
    caught_up_s: float
    promote_ms: float
    linked_ms: float
    """From the end of the promotion until all links run again."""
    octets: float
    """On the line to the leaf that wants everything, both ways, for each message on it."""
    seconds: float
    verdict: Verdict
    resent: int = 0

    @property
    def good(self) -> bool:
        return not self.verdict.code and all(flow.good for flow in self.flows)


class Star(Stage):
    """One run. Call `run` once."""

    def __init__(self, options: StarOptions, progress: Progress) -> None:
        super().__init__(options.folder, (*PAIR, *LEAVES), progress)
        self._options = options
        self._centre = [self._addresses[name] for name in PAIR]
        self._list = ",".join(map(str, self._centre))
        self._first, self._second = PAIR
        self._lines: dict[str, Line] = {}
        self._tasks: dict[str, Task] = {}
        self._octets = 0.0
        self._caught_up_at = 0.0

    def run(self) -> StarOutcome:
        """Run all steps. No child process is left when it returns or raises DemoFailed."""
        began = time.monotonic()
        with ExitStack() as stack:
            for leaf in LEAVES:
                self._lines[leaf] = stack.enter_context(Line(self._centre, self._options.delay))
            stack.enter_context(self._children)
            self._start_brokers()
            self._federate()
            self._start_clients()
            waited, mended_at = self._cut_and_mend()
            promote_ms, linked_ms = self._fail_over()
            caught_up = self._catch_up() - mended_at
            flows = self._finish()
            self._stop_brokers()
            verdict = self._reconcile() if self._options.spark else Verdict()
        resent = sum(int(client.counts.get("resent", 0)) for client in self._clients.values())
        return StarOutcome(
            flows, self._picture, waited, caught_up, promote_ms, linked_ms, self._octets,
            time.monotonic() - began, verdict, resent,
        )  # fmt: skip

    @property
    def _picture(self) -> Path:
        return self._folder / "map.svg"

    # -- the net

    def _start_brokers(self) -> None:
        for name in PAIR:
            self._start_centre(name)
        for leaf in LEAVES:
            login = f"federation.logins.{CENTRE}"
            self._serve(
                leaf,
                [f"federation.node={leaf}", f"{login}.username={LOGIN}", f"{login}.password={PASSWORD}"],
            )
        for name in self._addresses:
            self._progress.event(f"started broker {name} at {self._addresses[name]}")
        self._until(lambda: all(self._is(name, "joining") for name in PAIR), PATIENCE, "the pair to answer")
        self._promote(self._first)
        self._until(
            lambda: self._whole(self._first, self._second)
            and all(self._is(leaf, "standalone") for leaf in LEAVES),
            PATIENCE, "all brokers to be ready",
        )  # fmt: skip

    def _start_centre(self, name: str) -> None:
        self._serve(name, [f"ha.brokers={self._list}", "ha.replicate=all", f"federation.node={CENTRE}"])

    def _federate(self) -> None:
        """Only the leaves are configured; the centre has a user for them."""
        rights = {
            "configure": r"^amq\.link\.",
            "write": f"^({ORDERS}|{SERVICES}|amq.nodes)$",
            "read": f"^({PRICES}|{SERVICES}|amq.nodes)$",
        }
        user = {"password_hash": hash_password(PASSWORD), "tags": ["federation"]}
        self._define(self._first, _put("user", LOGIN, user, vhost=""), _put("permission", LOGIN, rights))
        self._declare(self._list, queue_of(ORDERS, ORDERS, ["#"]), queue_of(PRICES, PRICES, ["#"]))
        for leaf, wants in WANTS.items():
            self._declare(str(self._addresses[leaf]), queue_of(PRICES, PRICES, wants))
            self._declare(str(self._addresses[leaf]), exchange_of(ORDERS))
            upstream = {
                "addresses": list(map(str, self._lines[leaf].addresses)),
                "login": CENTRE,
                "vhost": "/",
            }
            self._define(
                leaf,
                _put("federation-upstream", CENTRE, upstream),
                _agent(PRICES, {"consume-mode": "all"}),
                _agent(ORDERS, {"consume-mode": "none", "forward-mode": "all"}),
            )
        self._let_ask()
        self._until(self._all_run, PATIENCE, "all links to run")
        ms = 1000 * self._options.delay
        self._progress.event(
            f"{len(LEAVES)} leaves take {PRICES} from the centre and give {ORDERS}, over lines of {ms:g} ms"
        )

    def _let_ask(self) -> None:
        """Requests that the one leaf has no service for go to the centre, and from there to the other one."""
        for addresses in (self._list, *(str(self._addresses[leaf]) for leaf in (ASKER, SERVER))):
            self._declare(addresses, exchange_of(SERVICES))
        self._define(ASKER, _agent(SERVICES, {"consume-mode": "none", "forward-mode": "unmatched"}))
        self._define(SERVER, _agent(SERVICES, {"consume-mode": "all"}))

    def _declare(self, addresses: str, *entities: Any) -> None:
        with plain_connection(addresses) as connection:
            connection.ensure_connection(max_retries=20)
            for entity in entities:
                entity(connection.default_channel).declare()

    def _define(self, name: str, *changes: dict[str, Any]) -> None:
        answer = ask(self._addresses[name], "define", {"changes": list(changes)})
        if not answer.get("ok"):
            raise DemoFailed(f"{name} refused: {refusal_of(answer)}")

    def _all_run(self) -> bool:
        """And each leaf knows the way to the others, for replies."""
        return all(self._runs(leaf) for leaf in LEAVES)

    def _runs(self, leaf: str) -> bool:
        try:
            found = ask(self._addresses[leaf], "status", timeout=5)["status"]["federation"]
        except (Unreachable, KeyError):
            return False
        known = {route["node"] for route in found["routes"] if route["state"] == "running"}
        others = {CENTRE, *LEAVES} - {leaf}
        return known >= others and all(agent["state"] == "running" for agent in found["agents"])

    # -- the load

    def _start_clients(self) -> None:
        prices, orders = self._options.messages, int(self._options.messages * SHARE_OF_ORDERS)
        requests = self._requests
        rate, ledgers = self._options.rate, str(self._client_ledgers)
        own = {leaf: str(self._addresses[leaf]) for leaf in LEAVES}
        tasks = [
            *(
                Task("consumer", leaf, own[leaf], PRICES, ledgers, KEYS, queue=PRICES, wants=WANTS[leaf],
                     publishers={"ticker": prices})
                for leaf in LEAVES
            ),
            Task("consumer", "desk", self._list, PRICES, ledgers, KEYS, queue=PRICES, wants=KEYS,
                 publishers={"ticker": prices}),
            Task("consumer", "book", self._list, ORDERS, ledgers, ["order"], queue=ORDERS, wants=["order"],
                 publishers={f"shop-{leaf}": orders for leaf in LEAVES}),
            Task("service", "server", own[SERVER], SERVICES, ledgers, [], queue="quotes", wants=["quote"]),
            Task("asker", "asker", own[ASKER], SERVICES, ledgers, ["quote"], requests,
                 rate * SHARE_OF_REQUESTS, queue="replies", wants=["quote"], publishers={"asker": requests}),
            Task("publisher", "ticker", self._list, PRICES, ledgers, KEYS, prices, rate),
            *(
                Task("publisher", f"shop-{leaf}", own[leaf], ORDERS, ledgers, ["order"], orders,
                     rate * SHARE_OF_ORDERS)
                for leaf in LEAVES
            ),
        ]  # fmt: skip
        for task in tasks:
            self._tasks[task.name] = task
            arguments = ["understudy.demo.star_worker", json.dumps(task.as_dict())]
            child = self._children.start(f"{task.role}-{task.name}", arguments, events=True)
            self._clients[task.name] = Client(task.role, child)
        self._until(
            lambda: all(client.ready for client in self._clients.values()), PATIENCE, "clients to connect"
        )
        for client in self._clients.values():
            client.child.say("go")
        self._progress.event(
            f"{prices:,} prices, {len(LEAVES)} times {orders:,} orders, and {requests:,} requests of {ASKER} "
            f"to a service at {SERVER}"
        )

    def _cut_and_mend(self) -> tuple[int, float]:
        """Cut one leaf off under load. Returns how many messages waited for it, and when that was over."""
        line = self._lines[CUT_OFF]
        self._reach(CUT_AT)
        line.cut()
        self._progress.event(f"cut the line of {CUT_OFF}, while publishing goes on")
        self._reach(MEND_AT)
        waited = self._map()
        self._progress.event(
            f"{waited:,} messages wait for {CUT_OFF} at the centre; understudy federate map: {self._picture}"
        )
        line.mend()
        self._progress.event(f"mended the line of {CUT_OFF}")
        return waited, time.monotonic()

    def _catch_up(self, share: float = 1.0) -> float:
        """Wait until the leaf that was cut off has what waited for it, or until that share of the prices is
        confirmed. Returns when it had it, or 0.0."""
        if self._caught_up_at:
            return self._caught_up_at
        target = share * self._options.messages if share < 1 else math.inf
        self._until(
            lambda: self._behind(CUT_OFF) <= self._usual or self._confirmed >= target,
            self._limit, f"{CUT_OFF} to catch up",
        )  # fmt: skip
        if self._behind(CUT_OFF) <= self._usual:
            self._caught_up_at = time.monotonic()
            self._progress.event(f"{CUT_OFF} has all that waited for it, beside live traffic")
        return self._caught_up_at

    def _reach(self, share: float) -> None:
        target = share * self._options.messages
        self._until(
            lambda: self._confirmed >= target, self._limit, "enough prices to be confirmed",
        )  # fmt: skip

    @property
    def _confirmed(self) -> int:
        """Prices."""
        return int(self._clients["ticker"].counts.get("confirmed", 0))

    @property
    def _usual(self) -> int:
        """How far behind a leaf may be, whose messages are on their way or just counted."""
        return int(self._options.rate * 1.5) + 200

    def _behind(self, leaf: str) -> int:
        due = self._confirmed * len(WANTS[leaf]) / len(KEYS)
        return int(due) - int(self._clients[leaf].counts.get("received", 0))

    def _map(self) -> int:
        """Draw the net, by the command. Returns how many messages wait for the leaf that is cut off."""
        arguments = ["understudy", "federate", "map", "-b", str(self._addresses[self._first])]
        for leaf in LEAVES:
            arguments += ["-b", str(self._addresses[leaf])]
        arguments += ["--svg", str(self._picture), "--format", "json", "--timeout", "10s"]
        code, text = self._children.run("map", arguments, PATIENCE, meanwhile=self._watch)
        if code != 0:
            raise DemoFailed(f"understudy federate map ended with exit code {code}: {text}")
        links = json.loads(text)["links"]
        away = [link for link in links if link["to"] == CUT_OFF and link["state"] != "running"]
        return sum(int(link["waiting"] or 0) for link in away)

    def _fail_over(self) -> tuple[float, float]:
        """Kill the centre's primary under load, and promote its backup. Returns how long the promotion took,
        and until all links ran again, in ms."""
        self._catch_up(KILL_AT)
        self._reach(KILL_AT)
        self._brokers[self._first].signal(signal.SIGKILL)
        self._brokers[self._first].wait(5)
        loaded = ", while publishing goes on" if not self._clients["ticker"].done else ""
        self._progress.event(f"kill -9 {self._first}, the centre's primary{loaded}")
        promote_ms = self._promote(self._second)
        began = time.monotonic()
        self._until(self._all_run, PATIENCE, "all links to run again")
        linked_ms = (time.monotonic() - began) * 1000
        self._progress.event(f"all links run again, with {self._second}, after {linked_ms:,.0f} ms")
        self._start_centre(self._first)
        self._until(lambda: self._is(self._first, "ready"), PATIENCE, "the old primary to rejoin")
        self._progress.event(f"{self._first} rejoined, and is the ready backup")
        return promote_ms, linked_ms

    # -- the end

    def _finish(self) -> list[Flow]:
        publishers = [client for client in self._clients.values() if client.role == "publisher"]
        consumers = {
            name: client for name, client in self._clients.items() if client.role in ("consumer", "asker")
        }
        self._until(lambda: all(client.done for client in publishers), self._limit, "publishers to finish")
        self._progress.event(f"all {self._sum('published'):,} published and confirmed")
        due = {name: self._tasks[name].due() for name in consumers}
        deadline = time.monotonic() + PATIENCE

        def whole() -> bool:
            """Everything is there. What is lost is not waited for longer than that."""
            had = {name: int(client.counts.get("received", 0)) for name, client in consumers.items()}
            return had == due or time.monotonic() > deadline

        self._until(whole, 2 * PATIENCE, "consumers to have everything")
        line = self._lines["oslo"]
        self._octets = (line.there + line.back) / max(1, due["oslo"] + due["book"] // len(LEAVES))
        for client in (*consumers.values(), self._clients["server"]):
            client.child.say("stop")
        self._until(lambda: all(client.done for client in consumers.values()), PATIENCE, "consumers to stop")
        return [self._flow(name, client, due[name]) for name, client in consumers.items()]

    def _flow(self, name: str, client: Client, due: int) -> Flow:
        counts, task = client.counts, self._tasks[name]
        where = {"desk": CENTRE, "book": CENTRE, "asker": ASKER}.get(name, name)
        what = "replies" if name == "asker" else task.exchange
        return Flow(
            f"{what} at {where}", due, counts["received"], sum(map(len, counts["lost"].values())),
            sum(map(len, counts["twice"].values())), counts["disordered"], counts["p50_ms"],
            counts["worst_ms"],
        )  # fmt: skip

    def _stop_brokers(self) -> None:
        """The backup first, so that it ends in sync."""
        for name in (*LEAVES, self._first, self._second):
            self._stop(name)
        self._progress.event("all brokers stopped; their ledgers are sealed")

    def _tally(self) -> Tally:
        return Tally(
            messages=self._options.messages + len(LEAVES) * int(self._options.messages * SHARE_OF_ORDERS),
            published=self._sum("published"), confirmed=self._sum("confirmed"),
            received=self._sum("received"), statuses=dict(self._statuses),
        )  # fmt: skip

    @property
    def _requests(self) -> int:
        return max(1, int(self._options.messages * SHARE_OF_REQUESTS))

    @property
    def _limit(self) -> float:
        """Seconds that the whole traffic may take. Generous, because a slow machine is not a failure."""
        return 60 + 3 * self._options.messages / self._options.rate


def _put(kind: str, name: str, value: dict[str, Any], vhost: str = "/") -> dict[str, Any]:
    return {"action": "put", "kind": kind, "vhost": vhost, "name": name, "value": value}


def _agent(exchange: str, modes: dict[str, Any]) -> dict[str, Any]:
    value = {"exchange": exchange, "upstream": CENTRE, **modes}
    return _put("federation-agent", f"{exchange}@{CENTRE}", value)
