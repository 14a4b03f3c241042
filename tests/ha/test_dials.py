"""What a node says of brokers that it cannot join."""

from __future__ import annotations

from tests.ha.pair import Pair


def test_a_link_that_is_refused_is_logged_once_and_without_the_password() -> None:
    """Two nodes with different `ha.password`: an operator must not be left with `does not answer`."""
    pair = Pair()
    a, b = pair.hosts
    pair.settings["password"] = "one-word"
    pair.start(a)
    pair.settings["password"] = "other-word"
    pair.start(b)
    pair.run(3)
    for host, other in ((a, b), (b, a)):
        refused = [line for line in host.log if line.startswith(f"link to 127.0.0.1:{other.port} refused:")]
        assert len(refused) == 1
        assert "403 ACCESS_REFUSED" in refused[0]
        assert not [line for line in host.log if "-word" in line]
        assert sum("login refused" in line for line in host.log) < 10


def test_a_refusal_is_said_again_after_nobody_was_there() -> None:
    pair = Pair()
    a, b = pair.hosts
    pair.start(a)
    pair.settings["password"] = "other-word"
    pair.start(b)
    pair.run(1)
    pair.kill(a)
    pair.run(3)
    pair.settings["password"] = "ha"
    pair.start(a)
    pair.run(3)
    assert sum(f"link to 127.0.0.1:{a.port} refused: 403" in line for line in b.log) == 2
