"""deploy/ansible: the linter takes the role, and it makes a node of a Debian that has nothing yet."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.images import fetch
from tests.deploy import paper
from tests.deploy.debian import Debian
from tests.deploy.tools import DEPLOY, ROOT, fill, require, run, succeed

ANSIBLE = DEPLOY / "ansible"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
LINT = Path(sys.executable).with_name("ansible-lint")
SECRET = 'a "secret" of their own'
HASH = "$argon2id$v=19$m=8,t=1,p=1$aMcqIZG7xA71v6X1BILIug$64iZ1BAQSQC9i/XYeEmV8MngkfnPrivNemtH07NYV1I"
WHEELS = "/srv/wheels"
PAPER = ("Install", "Configure", "Take a node out, and upgrade")
_FORGET = """
userdel understudy
rm -rf /opt/understudy /etc/understudy /var/lib/understudy /usr/lib/ocf/*/understudy
rm -f /etc/corosync/authkey /etc/corosync/corosync.conf /var/lib/pacemaker/cib/*
"""


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's own Ansible, and nothing written outside of the test's folder."""
    return {
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "ansible" / "tmp"),
        "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "deploy" / "connection"),
        "ANSIBLE_NOCOLOR": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PATH": f"{PLAYBOOK.parent}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }


def test_the_playbook_reads(tmp_path: Path) -> None:
    require(str(PLAYBOOK))
    done = run(
        PLAYBOOK, "--inventory", "inventory.yml", "--syntax-check", "site.yml", cwd=ANSIBLE,
        environment=environment(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.system
def test_the_linter_finds_nothing(tmp_path: Path) -> None:
    require(str(LINT))
    done = run(
        LINT, "--offline", "--strict", "--project-dir", ".", cwd=ANSIBLE, environment=environment(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machine")


@pytest.fixture(scope="module")
def machine(folder: Path) -> Debian:
    require("debootstrap", "unshare", str(PLAYBOOK), root=True)
    return Debian(folder / "debian")


@pytest.mark.machine
def test_it_makes_a_node_of_a_new_machine(machine: Debian, folder: Path) -> None:
    inventory = node(folder, machine)
    first = played(machine, inventory, folder)
    assert first["failures"] == 0 and first["changed"] > 0
    program_is_there(machine)
    cluster_is_there(machine)
    again = played(machine, inventory, folder)
    assert (again["failures"], again["changed"]) == (0, 0), "a second run changes nothing"


@pytest.mark.machine
def test_so_do_the_commands_of_the_paper(machine: Debian, folder: Path) -> None:
    """On the same machine, from which the role's work is taken away but for Debian's packages."""
    machine.inside("sh", "-c", _FORGET)
    root = machine.folder / "root"
    shutil.copytree(DEPLOY, root / "deploy", dirs_exist_ok=True)
    shutil.copy(DEPLOY / "site.env", root)
    shutil.copy(next(folder.glob("*.whl")), root)
    cib = "/var/lib/pacemaker/cib/cib.xml"
    told = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS, "CIB_file": cib, "HOME": "/root"}
    boxes = [box for section in PAPER for box in paper.in_section(section, "machine")]
    (configuration,) = [box for box in paper.boxes() if box.where == "configuration"]
    for box in boxes:
        if box.commands[0].startswith("crm "):
            machine.inside("sh", "-c", f"cibadmin --empty > {cib}")  # what a cluster that starts has
        for command in box.commands:
            machine.inside(
                "sh", "-ec", f"cd /root && PATH=$PATH:/usr/local/bin && {command}", environment=told
            )
        (machine.folder / "etc/understudy/understudy.toml").write_text(configuration.text)
    assert "understudy" in machine.inside("/usr/local/bin/understudy", "--version")
    cluster_is_there(machine)


def node(folder: Path, machine: Debian) -> Path:
    """An inventory for that machine; the wheels that it needs are put into it."""
    wheel(folder)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    fetch(wanted, machine.folder / WHEELS.lstrip("/"))
    (folder / "authkey").write_bytes(bytes(range(256)))
    lines = [line for line in (DEPLOY / "site.env").read_text().splitlines() if line[:1].isupper()]
    hosts = {"a": {"ansible_host": str(machine.folder), "ansible_connection": "folder"}}
    told = {
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_become": False,
        "understudy_wheel": str(next(folder.glob("*.whl"))),
        "understudy_find_links": WHEELS,
        "understudy_ha_password": SECRET,
        "understudy_users": {"ops": {"password": HASH, "tags": ["administrator"]}},
        "understudy_authkey": str(folder / "authkey"),
        "understudy_site": dict(line.split("=", 1) for line in lines),
        "understudy_brokers": ["198.51.100.1:5672", "198.51.100.2:5672"],
        "understudy_settings": {"auth": {"allow_plain_without_tls": True}, "ha": {"lease": "4s"}},
        "understudy_fencing_packages": ["fence-agents"],
    }
    path = folder / "inventory.json"
    path.write_text(json.dumps({"understudy": {"hosts": hosts, "vars": told}}))
    return path


def wheel(folder: Path) -> None:
    succeed(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)


def played(machine: Debian, inventory: Path, folder: Path) -> dict[str, int]:
    """The recap of one run of site.yml."""
    told = environment(folder)
    code, said = machine.around(PLAYBOOK, "--inventory", inventory, "site.yml", cwd=ANSIBLE, environment=told)
    assert code == 0, said
    recap = said.rpartition("PLAY RECAP")[2].split()
    found = dict(word.split("=") for word in recap if "=" in word)
    return {"changed": int(found["changed"]), "failures": int(found["failed"])}


def program_is_there(machine: Debian) -> None:
    program = "/opt/understudy/bin/understudy"
    assert "understudy" in machine.inside(program, "--version")
    told = tomllib.loads(machine.read("/etc/understudy/understudy.toml"))
    assert told["ha"]["password"] == SECRET and told["ha"]["lease"] == "4s"
    assert told["auth"]["users"]["ops"]["password"] == HASH
    as_user = ["setpriv", "--reuid=understudy", "--regid=understudy", "--init-groups"]
    read: Any = machine.inside(
        *as_user, "/opt/understudy/bin/python", "-c",
        "from understudy.config.load import load; from pathlib import Path;"
        "print(load(Path('/etc/understudy/understudy.toml'), (), {}).ha.authority)",
    )  # fmt: skip
    assert read.strip().endswith("pacemaker"), "the broker reads that file, as its own user"
    assert "haclient" in machine.inside("id", "understudy")
    wanted = machine.folder / "etc/systemd/system/multi-user.target.wants/understudy.service"
    assert not wanted.is_symlink(), "Pacemaker starts the broker, and not systemd"
    assert (machine.folder / "etc/understudy/under-pacemaker").exists()
    rotation = (DEPLOY / "logrotate" / "understudy").read_text()
    assert machine.read("/etc/logrotate.d/understudy") == rotation
    owned = machine.inside("stat", "--format=%U %G %a", "/var/lib/pacemaker/cib/cib.xml")
    assert owned.strip() == "hacluster haclient 600"


def cluster_is_there(machine: Debian) -> None:
    assert machine.read("/etc/corosync/corosync.conf") == fill("corosync/two-nodes.conf")
    key = machine.folder / "etc/corosync/authkey"
    assert key.stat().st_mode & 0o777 == 0o400
    agent = "/usr/lib/ocf/resource.d/understudy/understudy"
    assert "<resource-agent name=" in machine.inside(agent, "meta-data")
    cib = "/var/lib/pacemaker/cib/cib.xml"
    assert 'type="understudy"' in machine.read(cib)
    machine.inside("crm_verify", "-V", "--xml-file", cib)
