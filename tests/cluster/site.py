"""A site: machines with Pacemaker on a network of their own, a power switch, and what Pacemaker says.

Owner: one test, on one thread (the switch has its own). All of it goes when the `Site` ends.

    198.51.100.1           the host: clients and watchers
    198.51.100.11, .12     the machines `a` and `b`
    198.51.100.13          `q`, where qnetd is, with a site of three votes
    198.51.100.20          the virtual address
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster import configuration
from tests.cluster.configuration import Flavour
from tests.cluster.disk import Disk
from tests.cluster.engine import Engine
from tests.cluster.machine import PATIENCE, Machine
from tests.cluster.switch import PowerSwitch

_GLANCE = 0.1
_MEMORY = "1g"


class Site:
    """A context manager: machines, network, disks and switch, and nothing of it is left when it ends."""

    def __init__(self, engine: Engine, image: str, folder: Path, flavour: Flavour) -> None:
        self.folder = folder
        self.flavour = flavour
        self.machines: dict[str, Machine] = {}
        self.witness: Machine | None = None
        """`q`, where qnetd is."""
        self._engine = engine
        self._image = image
        self._stack = ExitStack()
        self._etc = folder / "etc"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            self._build(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _build(self, stack: ExitStack) -> None:
        from testcontainers.core.network import Network

        self._etc.mkdir(parents=True)
        configuration.prepare(self._engine, self._image, self._etc, self.flavour)
        pool = {"Subnet": f"198.51.100.0/{configuration.PREFIX}"}
        self._network = Network(docker_network_kw={"internal": True, "ipam": {"Config": [pool]}})
        self._network.create()
        stack.callback(self._network.remove)
        self.switch = stack.enter_context(PowerSwitch(self._etc / "switch.sock", self.machines))
        if self.flavour.qdevice:
            self.witness = self._machine(stack, "q", None, "qnetd")
        for name in configuration.NODES:
            disk = Disk(self.folder, name)
            stack.callback(disk.remove)
            disk.make()
            self.machines[name] = self._machine(stack, name, disk)

    def _machine(self, stack: ExitStack, name: str, disk: Disk | None, command: str = "") -> Machine:
        from docker.types import EndpointConfig
        from testcontainers.core.container import DockerContainer

        logs = self.folder / "logs" / name
        logs.mkdir(parents=True)
        container = DockerContainer(self._image, command=command or None)
        container.with_volume_mapping(self._etc, "/lab", "rw").with_volume_mapping(logs, "/var/log/lab", "rw")
        if disk is not None:
            container.with_volume_mapping(disk.mount, "/var/lib/understudy", "rw")
        container.with_tmpfs_mount("/run").with_tmpfs_mount("/tmp")
        endpoint = EndpointConfig("1.44", ipv4_address=configuration.ADDRESSES[name])
        container.with_kwargs(
            hostname=name, network=self._network.name, networking_config={self._network.name: endpoint},
            init=True, cap_add=["NET_ADMIN", "SYS_NICE", "IPC_LOCK"], mem_limit=_MEMORY,
        )  # fmt: skip
        machine = Machine(name, container, disk, logs)
        stack.callback(machine.remove)
        container.start()
        return machine

    # -- questions

    def monitor(self, name: str = "") -> ET.Element | None:
        """What `crm_mon` says on this machine, or on any that is up; None while none answers."""
        for machine in [self.machines[name]] if name else self.machines.values():
            if machine.powered:
                code, text = machine.run("crm_mon", "--one-shot", "--output-as=xml", check=False)
                if code == 0 and "<pacemaker-result" in text:
                    return ET.fromstring(text[text.index("<pacemaker-result") :])
        return None

    def roles(self, name: str = "") -> dict[str, str]:
        """The broker's role on each machine, as Pacemaker sees it: Promoted, Unpromoted, ..."""
        seen = self.monitor(name)
        found: dict[str, str] = {}
        for resource in () if seen is None else seen.findall(".//clone/resource"):
            for node in resource.findall("node"):
                found[node.get("name", "")] = resource.get("role", "")
        return found

    def managed(self) -> bool | None:
        """Whether Pacemaker manages the broker; None while it does not say so of all nodes alike."""
        seen = self.monitor()
        said = set() if seen is None else {each.get("managed") for each in seen.findall(".//clone/resource")}
        return said == {"true"} if len(said) == 1 else None

    def status(self, name: str) -> dict[str, Any]:
        """The broker's own status, over HTTP; empty while it does not answer."""
        return ask_status(configuration.ADDRESSES[name])

    def virtual(self) -> dict[str, Any]:
        """The status of whoever has the virtual address."""
        return ask_status(configuration.VIP)

    def until(self, condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        deadline, pause = time.monotonic() + patience, threading.Event()
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}; {self.described()}"
            pause.wait(_GLANCE)

    def described(self) -> str:
        """For a failed test: what everybody says now."""
        seen = {name: self.status(name).get("reason", "no answer") for name in self.machines}
        return f"roles {self.roles()}, brokers {seen}, fenced {self.switch.fenced()}"


def ask_status(host: str, timeout: float = 1.0) -> dict[str, Any]:
    """Empty if nobody answers there in time."""
    connection = http.client.HTTPConnection(host, configuration.HTTP, timeout=timeout)
    try:
        connection.request("GET", "/api/status")
        found = json.loads(connection.getresponse().read())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
