"""What the machines are configured with: the shipped files of deploy/, filled in, and the few lines that a
lab adds to them (`_IN_A_CONTAINER`, `_FENCING`, and a shorter wait for the first election).
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.engine import Engine
from tests.cluster.images import ROOT
from tests.failover.nodes.cluster import Login
from tests.failover.nodes.namespaces import LOGIN, SETTINGS

__all__ = ["ADDRESSES", "HOST", "HTTP", "LOGIN", "PORT", "VIP", "Flavour", "Login", "prepare"]

ADDRESSES = {"a": "198.51.100.11", "b": "198.51.100.12", "q": "198.51.100.13"}
NODES = ("a", "b")
HOST = "198.51.100.1"
VIP = "198.51.100.20"
PREFIX = 27
_SHIPPED = dict(
    line.split("=", 1)
    for line in (ROOT / "deploy" / "site.env").read_text().splitlines()
    if line[:1].isupper()
)
PORT = 5672
HTTP = 15672
"""Where a watcher asks for the status: a listener of `broker.http`."""

_IN_A_CONTAINER = """
system {
    sched_rr: no
    move_to_root_cgroup: no
}
"""
_FENCING = """
primitive fence-a stonith:fence_lab params pcmk_host_list=a op monitor interval=60s timeout=60s
primitive fence-b stonith:fence_lab params pcmk_host_list=b op monitor interval=60s timeout=60s
location fence-a-elsewhere fence-a -inf: a
location fence-b-elsewhere fence-b -inf: b
property cib-bootstrap-options: dc-deadtime=2s
"""
_CERTIFICATES = """
corosync-qdevice-net-certutil -i -c /etc/corosync/qnetd/nssdb/qnetd-cacert.crt
corosync-qdevice-net-certutil -r -n lab
corosync-qnetd-certutil -s -c /etc/corosync/qdevice/net/nssdb/qdevice-net-node.crq -n lab
corosync-qdevice-net-certutil -M -c /etc/corosync/qnetd/nssdb/cluster-lab.crt
cp -a /etc/corosync/qnetd /etc/corosync/qdevice /lab/
"""
"""As for a cluster by hand: qnetd's authority is in its package; one certificate is the nodes' own."""


@dataclass(slots=True, frozen=True)
class Flavour:
    """Two nodes, or two and a qdevice on `q`."""

    qdevice: bool = False
    token: int = 1000
    """Milliseconds."""
    ha: tuple[str, ...] = ()
    """Lines of the section `ha`, behind those that are always there."""


def prepare(engine: Engine, image: str, folder: Path, flavour: Flavour) -> None:
    """Write all that `lab-init` takes from /lab into this folder."""
    settings = folder / "site.env"
    values = {
        "CLUSTER": "lab", "NODE_A": "a", "NODE_B": "b",
        "ADDRESS_A": ADDRESSES["a"], "ADDRESS_B": ADDRESSES["b"],
        "ADDRESS2_A": "", "ADDRESS2_B": "", "QNETD": ADDRESSES["q"], "VIP": VIP, "VIP_PREFIX": str(PREFIX),
        "FENCING_DELAY": "0s" if flavour.qdevice else _SHIPPED["FENCING_DELAY"],
    }  # fmt: skip
    settings.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    name = "two-nodes-and-qdevice" if flavour.qdevice else "two-nodes"
    (folder / "corosync.conf").write_text(_corosync(_filled(settings, f"corosync/{name}.conf"), flavour))
    (folder / "authkey").write_bytes(os.urandom(256))
    (folder / "understudy.toml").write_text(_broker(flavour))
    (folder / "fencing.crm").write_text(_FENCING)
    (folder / "understudy.crm").write_text(_filled(settings, "crmsh/understudy.crm"))
    load = "cibadmin --empty > /tmp/cib.xml && export CIB_file=/tmp/cib.xml"
    for each in ("fencing", "understudy"):
        load += f" && crm --force configure load update /lab/{each}.crm"
    load += " && crm_verify --verbose --xml-file /tmp/cib.xml && cat /tmp/cib.xml"
    arguments = ("run", "--rm", "--network=none", "--volume", f"{folder}:/lab:ro", "--entrypoint", "sh")
    text = engine.docker(*arguments, image, "-c", load)
    (folder / "cib.xml").write_text(text[text.index("<cib") :])
    if flavour.qdevice:
        arguments = ("run", "--rm", "--network=none", "--volume", f"{folder}:/lab", "--entrypoint", "sh")
        engine.docker(*arguments, image, "-e", "-c", _CERTIFICATES)


def _filled(settings: Path, template: str) -> str:
    command = ["sh", str(ROOT / "deploy" / "fill.sh"), str(settings), str(ROOT / "deploy" / template)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _corosync(text: str, flavour: Flavour) -> str:
    text = text.replace("token: 1000", f"token: {flavour.token}")
    text = text.replace("to_syslog: yes", "to_syslog: no").replace("to_stderr: no", "to_stderr: yes")
    return text.replace("timestamp: on", "timestamp: hires") + _IN_A_CONTAINER


def _broker(flavour: Flavour) -> str:
    """The broker's configuration, the same on both nodes."""
    told = dict(setting.split("=", 1) for setting in SETTINGS)
    brokers = ", ".join(f'"{ADDRESSES[name]}:{PORT}"' for name in NODES)
    lines = [
        "[broker]", f'listen = "0.0.0.0:{PORT}"', f'http = "0.0.0.0:{HTTP}"',
        'data_dir = "/var/lib/understudy/data"',
        "[ha]", f"brokers = [{brokers}]", 'authority = "pacemaker"',
        f'password = "{told.pop("ha.password")}"',
        *flavour.ha,
        "[auth]", f"allow_plain_without_tls = {told.pop('auth.allow_plain_without_tls')}",
        f"[auth.users.{LOGIN.user}]", f'password = "{told.pop("auth.users.lab.password")}"',
        f'tags = ["{told.pop("auth.users.lab.tags")}"]',
    ]  # fmt: skip
    assert not told, "every setting of the lab has its line"
    return "\n".join(lines) + "\n"
