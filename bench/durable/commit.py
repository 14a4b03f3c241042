"""bench.durable commit: what it costs to confirm what is on disk, alone and on both nodes of a pair."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench import brokers, run
from bench.durable.nodes import Written, bare_sync_ms
from bench.durable.report import Figure, Findings

RATE, CPU_US = 60_000, 6.0
"""Messages a second at least, and CPU us a message of each broker at most."""


@dataclass(slots=True, frozen=True)
class Commit(run.Case):
    """Persistent messages to a durable queue; `publish`: nobody consumes, `deliver`: somebody does."""

    def options(self, seconds: float) -> list[str]:
        found = run.Case.options(self, seconds)
        return [*found, "--durable", "--persistent"]


CASES = [Commit(mode, load, 1000) for mode in run.MODES for load in ("publish", "deliver")]
WORDS = {"publish": "publish, confirm", "deliver": "publish, confirm, deliver, ack"}


def commit(options: argparse.Namespace) -> Findings:
    runs: dict[Commit, list[dict[str, Any]]] = {case: [] for case in CASES}
    for _ in range(options.repeats):
        for mode, make in run.MODES.items():
            with make(under=options.data) as cluster:
                for case in CASES:
                    if case.mode == mode:
                        runs[case].append(_run(cluster, case, options))
    columns = ["brokers, load", "messages/s", "CPU us (alone, primary)", "CPU us (backup)", "generator us"]
    columns += [
        "confirm p50 us",
        "confirm p99 us",
        "messages a sync",
        "bytes written a message",
        "by the backup",
    ]
    findings = Findings(
        "commit", "persistent messages of 256 bytes to a durable queue, window 1000, confirmed", columns
    )
    findings.rows = [[f"{case.mode}: {WORDS[case.load]}", *_row(runs[case])] for case in CASES]
    (half, most), (half_of_two, _) = (bare_sync_ms(options.data, writers) for writers in (1, 2))
    findings.notes = [
        f"Targets: {RATE:,}/s at least, {CPU_US:g} us at most. Median of {options.repeats}. The disk alone, "
        f"128 KiB and fdatasync: {half:.1f} ms (p99 {most:.1f} ms), {half_of_two:.1f} ms while another "
        "does the same. A message may wait for two of these."
    ]
    return findings


def _run(cluster: brokers.Cluster, case: Commit, options: argparse.Namespace) -> dict[str, Any]:
    before = [Written.of(broker) for broker in cluster.brokers]
    limits = argparse.Namespace(seconds=options.seconds, engine="auto")
    [result] = run.loads(cluster, [case], limits)
    after = [Written.of(broker) for broker in cluster.brokers]
    wrote = [now.since(then) for now, then in zip(after, before, strict=True)]
    sent = result["messages"] + result["warmup"]
    result["a sync"] = sent / max(1, wrote[0].syncs)
    result["bytes"] = [node.bytes / sent for node in wrote]
    return result


def _row(runs: list[dict[str, Any]]) -> list[Figure | str]:
    def middle(read: Any) -> float:
        return float(median(read(one) for one in runs))

    def own(one: dict[str, Any], at: int) -> Any:
        return list(one["cpu_us_per_message"].values())[at]

    pair = len(runs[0]["cpu_us_per_message"]) > 1
    return [
        Figure(middle(lambda one: one["rate"]), least=RATE),
        Figure(middle(lambda one: own(one, 0)), 2, most=CPU_US),
        Figure(middle(lambda one: own(one, 1)), 2, most=CPU_US) if pair else "-",
        Figure(middle(lambda one: one["generator_cpu_us_per_message"]), 2),
        Figure(middle(lambda one: one["confirm_us"]["p50"])),
        Figure(middle(lambda one: one["confirm_us"]["p99"])),
        Figure(middle(lambda one: one["a sync"])),
        Figure(middle(lambda one: one["bytes"][0])),
        Figure(middle(lambda one: one["bytes"][1])) if pair else "-",
    ]
