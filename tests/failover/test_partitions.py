"""Real nodes in network namespaces of their own, and partitions between them: `make test-cluster-smoke`."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failover.nodes.cluster import PATIENCE
from tests.failover.nodes.namespaces import PORT, Lab, why_not
from tests.failover.soak.faults import NETWORK
from tests.failover.soak.rounds import Options, Rounds

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    if reason := why_not():
        pytest.skip(f"no network namespaces: {reason}")


@pytest.fixture(params=["nft", "ip"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    if request.param == "nft" and shutil.which("nft") is None:
        pytest.skip("there is no `nft` here (package nftables)")
    with Lab("ab", nft=request.param == "nft") as made:
        yield made


def datagrams(lab: Lab, name: str) -> socket.socket:
    with lab.inside(name):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((lab.address(name), PORT))
    made.settimeout(PATIENCE)
    return made


@pytest.mark.smoke
def test_what_a_partition_drops_and_what_it_does_not(lab: Lab) -> None:
    with datagrams(lab, "a") as a, datagrams(lab, "b") as b:
        to_a, to_b = (lab.address("a"), PORT), (lab.address("b"), PORT)
        a.sendto(b"first", to_b)
        assert b.recv(100) == b"first"
        lab.drop("a", "b")
        a.sendto(b"lost", to_b)
        b.sendto(b"the other way", to_a)
        assert a.recv(100) == b"the other way"
        lab.heal()
        a.sendto(b"healed", to_b)
        assert b.recv(100) == b"healed", "what was dropped does not come later"
        lab.isolate("a")
        for each, to in ((a, to_b), (b, to_a)):
            try:
                each.sendto(b"lost", to)
            except PermissionError:  # what a rule for outgoing packets says to the sender
                continue
        lab.heal()
        a.sendto(b"whole", to_b)
        b.sendto(b"whole", to_a)
        assert (a.recv(100), b.recv(100)) == (b"whole", b"whole")


def play(folder: Path, seed: int, nodes: int, faults: list[str]) -> None:
    lines: list[str] = []
    try:
        options = Options(len(faults), seed, tuple(faults), nodes, len(faults), lab=True, folder=folder)
        outcome = Rounds(options, lines.append).run()
    finally:
        print("\n".join(lines))
    assert [each.fault for each in outcome.rounds] == faults
    assert (outcome.missing, outcome.verdicts) == (0, ["proven"])


def test_partitions_of_three_nodes_lose_nothing(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed, 3, list(NETWORK))


@pytest.mark.smoke
def test_partitions_of_a_pair_lose_nothing(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed, 2, ["partition", "deaf-backup", "mute-backup", "severed-primary"])
