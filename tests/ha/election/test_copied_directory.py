"""Two processes on copies of one data directory: by image, by `cp -r`, by a restore on the wrong machine."""

from __future__ import annotations

from ha.core import codes
from tests.ha.pair import Host, Pair
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

WHAT_TO_DO = "one of the two data directories is a copy of the other; give one of the two nodes an empty one"


def copy(source: Host, to: Host) -> None:
    to.disk = VirtualDisk()
    for path, data in source.disk.contents().items():
        if not path.endswith("/lock"):
            to.disk.place(path.replace(f"/{source.name}", f"/{to.name}", 1), data)
    to.number = source.number
    to.ids = 1 << 64  # what it draws at random is its own


def two_of_three() -> tuple[Pair, Host, Host, Host]:
    """The first is the primary, the second its ready backup, the third was never started."""
    pair = Pair(3)
    a, b, c = pair.hosts
    pair.start(a, b)
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    pair.until(lambda: b.status == "ready")
    return pair, a, b, c


def has_the_identity(pair: Pair, host: Host, whose: str) -> str:
    return f"127.0.0.1:{host.port} {codes.IDENTITY_COPIED.say(other=whose, way=WHAT_TO_DO).sentence}"


def test_two_copies_of_a_new_node_are_not_promoted_both() -> None:
    pair = Pair()
    a, b = pair.hosts
    pair.start(a)
    pair.run(0.1)
    pair.kill(a)
    copy(a, b)
    pair.start(a, b)
    pair.run(0.5)
    for host, other in ((a, b), (b, a)):
        sentence = has_the_identity(pair, other, "this very node")
        answer = pair.ask(host, "promote")
        assert (answer["ok"], sentence in answer["reason"]) == (False, True), answer
        assert sentence in host.running.status()["reason"]
        pair.run(5)
        assert len(host.told(codes.IDENTITY_COPIED)) == 1


def test_a_copy_of_the_primary_is_not_promoted_beside_it() -> None:
    pair = Pair()
    a, b = pair.hosts
    pair.up()
    pair.declare(a, "q")
    pair.kill(b)
    pair.until(lambda: a.running.status()["reason"].startswith("serving alone"))
    copy(a, b)
    pair.start(b)
    pair.run(1)
    answer = pair.ask(b, "promote")
    assert (answer["ok"], WHAT_TO_DO in answer["reason"]) == (False, True), answer
    assert a.status == "active"
    assert WHAT_TO_DO in a.running.status()["reason"]
    pair.kill(b)
    b.disk, b.number = VirtualDisk(), 2
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert "identity" not in a.running.status()["reason"]


def test_answers_of_a_copy_of_the_primary_prove_nothing_of_the_primary() -> None:
    """It answers and does not serve; the primary is frozen, and may serve on."""
    pair, a, b, c = two_of_three()
    copy(a, c)
    pair.start(c)
    pair.run(1)
    sentence = has_the_identity(pair, c, f"the node at 127.0.0.1:{a.port}")
    assert len(b.told(codes.IDENTITY_COPIED)) == 1
    assert sentence in b.running.status()["reason"]
    a.frozen = True
    for _ in range(3):
        pair.run(10)  # also once its connections are given up
        answer = pair.ask(b, "promote")
        assert not answer["ok"] and "answers and does not serve" not in answer["reason"], answer
    assert len(b.told(codes.IDENTITY_COPIED)) == 1


def test_a_copy_of_a_backup_is_not_taken_in_beside_it() -> None:
    pair, a, b, c = two_of_three()
    pair.kill(b)
    copy(b, c)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    before = len(a.said)
    pair.start(c)
    pair.run(5)
    assert (b.status, c.status) == ("ready", "joining")
    assert WHAT_TO_DO in c.running.status()["reason"]
    assert not any(said.code == codes.QUEUE_SENT_AGAIN.name for said in a.said[before:])


def test_a_node_that_restarts_is_no_copy_of_itself() -> None:
    """Not even where its old connections are not seen to break."""
    pair = Pair(3)
    a, b, c = pair.hosts
    pair.start()
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    pair.until(lambda: (b.status, c.status) == ("ready", "ready"))
    pair.kill(b, clean=False)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert not any(host.told(codes.IDENTITY_COPIED) for host in pair.hosts)
