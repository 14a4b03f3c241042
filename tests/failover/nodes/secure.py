"""A pair of real broker processes that speak nothing but TLS: clients, operators and the link."""

from __future__ import annotations

import signal
import socket
from functools import partial
from pathlib import Path
from typing import Self

from tests.failover.nodes.cluster import PATIENCE, Cluster, local_places
from tests.ports import free_ports
from tests.tls import Authority
from understudy.client_tls import ClientTls, SecureAddress
from understudy.shared.addresses import HostPort

NAMES = ("left", "right")


class SecurePair(Cluster):
    """Nodes `left` and `right`, each with a certificate of `authority`, which clients trust."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, local_places(NAMES))
        self.authority = Authority(folder)
        self.tls = ClientTls(self.authority.ca)
        self.links = dict(zip(NAMES, free_ports(2), strict=True))
        self.addresses = {
            name: SecureAddress.of(place.address, self.tls) for name, place in self.places.items()
        }
        self.list = ",".join(map(str, self.addresses.values()))
        for name in NAMES:
            self.authority.signed(name, "127.0.0.1")

    def start(self, *names: str, brokers: str | None = None) -> None:
        self.launch(*names, brokers=brokers)
        for name in names:
            self.until(partial(self.answers, name), f"{name} to answer")

    def launch(self, *names: str, brokers: str | None = None) -> None:
        """Start, and wait for nothing."""
        links = ",".join(f"127.0.0.1:{port}" for port in self.links.values())
        for name in names:
            settings = {
                "broker.listen": "off",
                "broker.tls_listen": HostPort(*self.addresses[name]),
                "ha.brokers": brokers or links,
                "ha.public_brokers": self.list,
                "ha.listen": f"127.0.0.1:{self.links[name]}",
                "ha.tls": "true",
                "tls.certificate": self.folder / f"{name}.pem",
                "tls.key": self.folder / f"{name}.key",
                "tls.ca": self.authority.ca,
            }
            arguments = [
                "understudy",
                "serve",
                "--name",
                name,
                "--data-dir",
                str(self.folder / f"data-{name}"),
            ]
            for key, value in settings.items():
                arguments += ["--set", f"{key}={value}"]
            self.brokers[name] = self.children.start(name, arguments)

    def whole(self) -> Self:
        """Start both, promote left, and wait for the ready backup."""
        self.start(*NAMES)
        assert self.ask("left", "promote")["ok"]
        self.wait_for("right", "ready")
        return self

    def shown(self, name: str) -> bytes:
        """The certificate that the node shows to a client who comes now."""
        bare = socket.create_connection(self.addresses[name], timeout=PATIENCE)
        with self.tls.context().wrap_socket(bare, server_hostname="127.0.0.1") as sock:
            found = sock.getpeercert(binary_form=True)
        assert found is not None
        return found

    def hang_up(self, name: str) -> None:
        self.brokers[name].signal(signal.SIGHUP)
        self.brokers[name].expected_to_end = False

    def said(self, name: str, words: str) -> bool:
        """Is that in the node's log?"""
        return words in self.log(name)

    def log(self, name: str) -> str:
        return "".join(path.read_text() for path in sorted((self.folder / "logs").glob(f"{name}*")))
