"""deploy/keepalived: keepalived takes the file, and the address is where the primary is, in real networks."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.deploy.tools import PATH, PATIENCE, fill, require, run
from tests.failover.nodes.cluster import Cluster
from tests.failover.nodes.namespaces import LOGIN, PORT, SETTINGS, Lab
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort

pytestmark = pytest.mark.tools
FILE = "keepalived/keepalived.conf"
VIP = "198.51.100.80"
HTTP = 15672


@pytest.fixture
def lab() -> Iterator[Lab]:
    require("keepalived", "curl", "ip", "nsenter", "setsid", root=True)
    with Lab("ab") as made:
        yield made


def configuration() -> str:
    return fill(FILE, VIP=VIP, VIP_PREFIX="24", VIP_INTERFACE="eth0", HTTP_PORT=str(HTTP))


def complaints(config: Path) -> str:
    """What `keepalived --config-test` says. It ends by a signal to its process group, whatever it found."""
    done = run("setsid", "--wait", "keepalived", "--config-test", "--use-file", config)
    return done.stdout + done.stderr


def test_keepalived_takes_the_file(lab: Lab, tmp_path: Path) -> None:
    config = tmp_path / "keepalived.conf"
    with lab.inside("a"):
        config.write_text(configuration())
        assert complaints(config) == ""
        config.write_text(configuration().replace("track_script", "trakc_script"))
        assert "trakc_script" in complaints(config)


def test_the_address_is_where_the_primary_is(lab: Lab, tmp_path: Path) -> None:
    config = tmp_path / "keepalived.conf"
    config.write_text(configuration())
    settings = (*SETTINGS, f"broker.listen=0.0.0.0:{PORT}", f"broker.http=127.0.0.1:{HTTP}")
    with ExitStack() as stack:
        stack.enter_context(lab.inside())
        pair = stack.enter_context(Cluster(tmp_path / "pair", lab.places(), *settings, login=LOGIN))
        pair.start("a", "b")
        for name in "ab":
            stack.enter_context(keepalived(lab, name, config, tmp_path))
        login = ("--user", LOGIN.user, "--password", LOGIN.password)
        assert pair.command("promote", "a", *login)[0] == 0
        pair.wait_for("b", "ready")
        pair.until(lambda: who_answers() == "a", "the address to be on a")
        pair.kill("a")
        pair.until(lambda: not has_address(lab, "a"), "a to give the address up")
        assert not has_address(lab, "b"), "nobody has been promoted"
        assert pair.command("promote", "b", *login)[0] == 0
        pair.until(lambda: who_answers() == "b", "the address to be on b")


def who_answers() -> str | None:
    """The name of the broker at the virtual address."""
    try:
        found = ask(HostPort(VIP, PORT), "status", {}, user=LOGIN.user, password=LOGIN.password, timeout=2)
    except Unreachable:
        return None
    return str(found["status"]["name"])


def has_address(lab: Lab, name: str) -> bool:
    with lab.inside(name):
        return f" {VIP}/" in run("ip", "-4", "address", "show", "dev", "eth0").stdout


@contextmanager
def keepalived(lab: Lab, name: str, config: Path, folder: Path) -> Iterator[None]:
    own = [f"--{kind}={folder / f'{name}-{kind}'}" for kind in ("pid", "vrrp_pid", "checkers_pid")]
    command = ["keepalived", "--dont-fork", "--log-console", "--vrrp", f"--use-file={config}", *own]
    with lab.inside(name), (folder / f"keepalived-{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={"PATH": PATH}, start_new_session=True
        )
    try:
        yield
        assert process.poll() is None, (folder / f"keepalived-{name}.log").read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
