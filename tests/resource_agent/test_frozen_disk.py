"""A real file system that hangs: whoever writes there waits in the kernel, and SIGKILL does not end it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.disk import Disk
from tests.resource_agent.site import Site, until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    found = Disk(tmp_path, "a", mark="frozen-")
    try:
        found.make(size=64 << 20)
    except AssertionError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    try:
        yield found
    finally:
        found.go_on()
        subprocess.run(["umount", "--lazy", str(found.mount)], check=False)
        found.remove()


@pytest.mark.system
def test_a_primary_on_it_is_demoted_at_once_and_cannot_be_stopped(disk: Disk, site: Site) -> None:
    """Nothing of it runs any more, which is enough for a demotion. Gone it is not: that is for fencing."""
    node = site.alone()
    node.parameters |= {"disk_timeout": "2s", "status_timeout": "1s"}
    node.data = disk.mount / "data"
    node.configure(f"127.0.0.1:{node.port}")
    node.ok("start")
    node.until_score("100")
    node.ok("promote")
    disk.hang()
    until(lambda: node.run("monitor").code == 9, "the monitor to fail")
    assert node.score == "-INFINITY"
    demoted = node.ok("demote")
    assert demoted.seconds < 10 and "does not end" in demoted.said
    assert "was killed, and does not end" in node.ok("monitor", 1).reason
    assert "was killed, and does not end" in node.ok("start", 1).reason
    stopped = node.ok("stop", 1)
    assert stopped.seconds < 20 and "waits in the kernel" in stopped.reason
    disk.go_on()
    node.ok("stop")
    node.ok("monitor", 7)
