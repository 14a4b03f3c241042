"""deploy/kubernetes: the manifests are valid, and agree with each other and with the broker.

A pair of processes with exactly their configuration, environment and probes fails over.

No cluster is needed. What only a cluster shows (scheduling, volumes, the Service's routes) is not tested.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
import signal
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import kubernetes_validate
import pika
import pytest
import yaml

from tests.deploy import paper
from tests.deploy.test_container import FILE as CONTAINERFILE
from tests.deploy.test_container import instructions, until
from tests.deploy.tools import DEPLOY, PATH, succeed
from tests.failover.nodes.cluster import PATIENCE, understudy
from tests.failover.nodes.etcd import EtcdCluster
from tests.ports import free_ports
from understudy.config.load import load
from understudy.config.settings import ConfigError, Settings
from understudy.demo.processes import Child, Children
from understudy.server.daemon import users_of

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
CONFIGURATION = FOLDER / "understudy.toml"
WORDS = {"ha-password": "of the pair", "user": "operator", "password": "of the operator"}
"""What secret.env is filled in with."""
VERSIONS = ("1.27.0", "1.31.0", kubernetes_validate.latest_version())
"""Of Kubernetes: the oldest one with `unhealthyPodEvictionPolicy` on, one between, the newest one known."""
Manifest = dict[str, Any]


# -- manifests


def secret(filled: dict[str, str] = WORDS) -> dict[str, str]:
    """secret.env, filled in."""
    lines = [line.partition("=") for line in (FOLDER / "secret.env").read_text().splitlines()]
    assert {name for name, _, _ in lines} == set(WORDS)
    return {name: filled.get(name, value) for name, _, value in lines}


def rendered() -> list[Manifest]:
    """What kustomize makes of the folder, without the hashes in the names. `test_kubectl_...` compares."""
    found: list[Manifest] = []
    for name in KUSTOMIZATION["resources"]:
        found += yaml.safe_load_all((FOLDER / name).read_text())
    ((image,), (generated,), (hidden,)) = (
        KUSTOMIZATION[key] for key in ("images", "configMapGenerator", "secretGenerator")
    )
    for manifest in found:
        if manifest["kind"] == "StatefulSet":
            for container in manifest["spec"]["template"]["spec"]["containers"]:
                assert container["image"] == image["name"]
                container["image"] = f"{image['newName']}:{image['newTag']}"
    assert hidden["envs"] == ["secret.env"]
    files = {name: (FOLDER / name).read_text() for name in generated["files"]}
    coded = {name: b64encode(value.encode()).decode() for name, value in secret({}).items()}
    found.append(_object("ConfigMap", generated["name"], data=files))
    found.append(_object("Secret", hidden["name"], data=coded, type="Opaque"))
    return found


def _object(kind: str, name: str, **more: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


def one(kind: str, name: str = "understudy") -> Manifest:
    (found,) = [each for each in rendered() if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod() -> Manifest:
    found = one("StatefulSet")["spec"]["template"]
    assert isinstance(found, dict)
    return found


def container() -> Manifest:
    (found,) = pod()["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def pods() -> list[str]:
    """Their names."""
    spec = one("StatefulSet")["spec"]
    return [f"understudy-{number}" for number in range(spec["replicas"])]


def environment(name: str) -> dict[str, str]:
    """Of the container in the pod of that name: of the image, then of the manifest."""
    image = [words for instruction, words in instructions() if instruction == "ENV"]
    found = dict(word.split("=", 1) for words in image for word in words.split())
    for variable in container()["env"]:
        match variable:
            case {"name": key, "value": str(value)}:
                found[key] = value
            case {"name": key, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                found[key] = name
            case {"name": key, "valueFrom": {"secretKeyRef": {"name": "understudy-secret", "key": word}}}:
                found[key] = WORDS[word]
            case _:
                raise AssertionError(f"nobody gives {variable} a value")
    return found


def settings(name: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """As the broker in that pod reads them."""
    for key, value in environment(name).items():
        monkeypatch.setenv(key, value)
    return load(CONFIGURATION)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(version: str) -> None:
    for manifest in rendered():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_key_that_does_not_exist_is_found() -> None:
    wrong = copy.deepcopy(one("StatefulSet"))
    wrong["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServiceLink"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_kubectl_makes_the_same_of_the_folder() -> None:
    """Where kubectl is there."""
    if shutil.which("kubectl", path=PATH) is None:
        pytest.skip("needs kubectl")
    made = succeed("kubectl", "kustomize", FOLDER)
    text = re.sub(r"\b(understudy-(?:config|secret))-[a-z0-9]{10}\b", r"\1", made)

    def key(manifest: Manifest) -> tuple[str, str]:
        return manifest["kind"], manifest["metadata"]["name"]

    assert sorted(yaml.safe_load_all(text), key=key) == sorted(rendered(), key=key)


# -- what no schema sees


def test_the_configuration_is_that_of_one_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in pods():
        found = settings(name, monkeypatch)
        assert found.broker.name == name and found.ha.authority == "etcd"
        service = one("StatefulSet")["spec"]["serviceName"]
        assert [str(first) for first, *_ in found.ha.brokers] == [f"{each}.{service}:5672" for each in pods()]
        users = {user.name: user for user in users_of(found)}
        assert users.keys() == {"operator", "ha"} and not any(user.loopback_only for user in users.values())
        assert found.ha.password == WORDS["ha-password"]
        assert environment(name)["UNDERSTUDY_PASSWORD"] == found.auth.default_password


@pytest.mark.parametrize("left", ["ha-password", "password"])
def test_a_password_that_is_not_filled_in_is_refused(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert secret({})[left] == ""
    monkeypatch.setitem(WORDS, left, "")
    with pytest.raises(ConfigError, match="password"):
        settings("understudy-0", monkeypatch)


def test_ports_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = settings("understudy-0", monkeypatch).broker
    assert broker.http is not None and broker.http.host == broker.listen[0].host == "0.0.0.0"
    there = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert there == {"amqp": broker.listen[0].port, "http": broker.http.port}
    for name in ("understudy", "understudy-nodes"):
        for port in one("Service", name)["spec"]["ports"]:
            assert port["port"] == there[port["targetPort"]]
    for probe in probes().values():
        assert probe["port"] == "http"


def test_everything_selects_the_pods_and_clients_reach_ready_ones_only() -> None:
    labels = pod()["metadata"]["labels"].items()
    service, nodes = one("Service")["spec"], one("Service", "understudy-nodes")["spec"]
    (apart,) = pod()["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    selectors = (
        (service["selector"], nodes["selector"]),
        (
            each["matchLabels"]
            for each in (
                one("StatefulSet")["spec"]["selector"],
                one("PodDisruptionBudget")["spec"]["selector"],
                apart["labelSelector"],
            )
        ),
    )
    for selector in (selector for group in selectors for selector in group):
        assert selector and selector.items() <= labels
    assert nodes["clusterIP"] == "None" and nodes["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in service and "clusterIP" not in service


def test_nothing_waits_for_a_backup_to_be_ready() -> None:
    spec = one("StatefulSet")["spec"]
    assert spec["podManagementPolicy"] == "Parallel" and spec["updateStrategy"] == {"type": "OnDelete"}
    budget = one("PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == 1, "one pod is Ready: the primary"


def test_a_node_has_the_time_and_the_memory_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = settings("understudy-0", monkeypatch).broker
    limit = container()["resources"]["limits"]["memory"]
    octets = int(limit.removesuffix("Gi")) << 30
    assert broker.memory_limit <= 0.6 * octets and broker.paging_limit <= 0.4 * octets
    assert broker.memory_limit + 6 * broker.max_message_size <= octets
    assert pod()["spec"]["terminationGracePeriodSeconds"] > 2 * broker.stop_timeout


def test_it_may_write_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the user of the image, on its volume alone."""
    stage = CONTAINERFILE.read_text().rpartition("\nFROM ")[2]
    assert f"--uid {pod()['spec']['securityContext']['runAsUser']} " in stage
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container()["volumeMounts"]}
    (claim,) = one("StatefulSet")["spec"]["volumeClaimTemplates"]
    found = settings("understudy-0", monkeypatch)
    assert found.broker.data_dir.is_relative_to(mounts.pop(claim["metadata"]["name"]))
    assert found.ledger_dir.is_relative_to(found.broker.data_dir)
    assert Path(container()["args"][-1]) == mounts["configuration"] / CONFIGURATION.name
    assert mounts.keys() == {volume["name"] for volume in pod()["spec"]["volumes"]}
    assert pod()["spec"]["enableServiceLinks"] is False, "UNDERSTUDY_... of a Service is no setting"


# -- the pair that the pods are


def probes() -> dict[str, Manifest]:
    """By kind: `httpGet` of each."""
    found = {kind: container()[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert all(each.keys() == {"path", "port"} for each in found.values())
    return found


class Pods:
    """A process for each pod, with the configuration, the environment and the arguments of its container.
    Addresses are of loopback; each pod has one of its own, with the same two ports. A context manager."""

    def __init__(self, folder: Path, endpoints: str) -> None:
        self._folder = folder
        (folder / "logs").mkdir(parents=True)
        self._children = Children(folder / "logs")
        self.names = pods()
        self._hosts = {name: f"127.0.0.{number}" for number, name in enumerate(self.names, start=2)}
        self.amqp, self._http = free_ports(2)
        service = one("StatefulSet")["spec"]["serviceName"]
        text = one("ConfigMap", "understudy-config")["data"][CONFIGURATION.name]
        text, count = re.subn(r"^endpoints = .*$", f'endpoints = "{endpoints}"', text, flags=re.MULTILINE)
        assert count == 1
        for name, host in self._hosts.items():
            assert f"{name}.{service}:5672" in text
            text = text.replace(f"{name}.{service}:5672", f"{host}:{self.amqp}")
        self._configuration = folder / CONFIGURATION.name
        self._configuration.write_text(text)
        self._running: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._children.__exit__(kind, error, trace)

    def start(self, *names: str) -> None:
        """Make the pod, or start its container again."""
        for name in names:
            values = environment(name) | {
                "UNDERSTUDY_BROKER__LISTEN": f"{self._hosts[name]}:{self.amqp}",
                "UNDERSTUDY_BROKER__HTTP": f"{self._hosts[name]}:{self._http}",
                "UNDERSTUDY_BROKER__DATA_DIR": str(self._folder / name),
            }
            arguments = [str(self._configuration) if "/" in word else word for word in container()["args"]]
            prefix = ["env", *(f"{key}={value}" for key, value in values.items())]
            self._running[name] = self._children.start(name, ["understudy", *arguments], prefix=prefix)

    def kill(self, name: str) -> None:
        self._running[name].signal(signal.SIGKILL)
        assert self._running[name].wait(PATIENCE) == -signal.SIGKILL

    def delete(self, name: str) -> None:
        """End it as the deletion of its pod does, and make it again."""
        self._running[name].signal(signal.SIGTERM)
        grace = pod()["spec"]["terminationGracePeriodSeconds"]
        assert self._running[name].wait(grace) == 0, self._running[name].last_words()
        self.start(name)

    def is_well(self, name: str, probe: str) -> bool:
        return self.answers(name, probes()[probe]["path"])

    def answers(self, name: str, path: str) -> bool:
        """Whether it answers as a probe wants it. A path that no node has is an error."""
        try:
            self.text(name, path)
        except urllib.error.HTTPError as error:
            assert error.code == 503, f"{path}: {error.code}"
            return False
        except OSError:  # nobody listens, or it has just died
            return False
        return True

    def text(self, name: str, path: str) -> str:
        """What is there. Raises HTTPError, OSError."""
        with urllib.request.urlopen(f"http://{self._hosts[name]}:{self._http}{path}", timeout=2) as answer:
            return str(answer.read().decode())

    def lose_volume(self, name: str) -> None:
        shutil.rmtree(self._folder / name)

    def ready(self) -> list[str]:
        """To which the Service leads."""
        return [name for name in self.names if self.is_well(name, "readiness")]

    def is_whole(self) -> bool:
        return len(self.ready()) == 1 and all(self.answers(name, "/health/ready") for name in self.names)

    def until_whole(self) -> tuple[str, str]:
        """The primary and its backup."""
        until(self.is_whole, "a primary, and a backup that may take over")
        (primary,) = self.ready()
        (backup,) = set(self.names) - {primary}
        return primary, backup

    def execute(self, name: str, *words: str) -> None:
        """`kubectl exec`: there the default address is this node's."""
        login = ("--user", environment(name)["UNDERSTUDY_USER"], "--password", WORDS["password"])
        code, out, err = understudy(*words, "-b", f"{self._hosts[name]}:{self.amqp}", *login)
        assert code == 0, out + err

    @contextmanager
    def channel(self, name: str) -> Iterator[Any]:
        login = pika.PlainCredentials(WORDS["user"], WORDS["password"])
        where = pika.ConnectionParameters(self._hosts[name], self.amqp, credentials=login)
        with pika.BlockingConnection(where) as connection:
            yield connection.channel()


def test_the_pair_is_ready_on_one_pod_and_on_the_other_one_when_that_is_killed(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, 1) as etcd, Pods(tmp_path / "pods", etcd.listed) as pair:
        *_, last = pair.names
        pair.start(last)
        until(lambda: pair.is_well(last, "startup"), f"{last} to have started")
        assert pair.is_well(last, "liveness") and not pair.ready(), "alone it waits, and is not killed for it"
        pair.start(*(name for name in pair.names if name != last))
        primary, backup = pair.until_whole()
        assert all(pair.is_well(name, "liveness") for name in pair.names)
        with pair.channel(primary) as channel:
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            for number in range(20):
                channel.basic_publish("", "orders", b"%d" % number)
        pair.kill(primary)
        until(lambda: pair.ready() == [backup], "the backup to be ready")
        with pair.channel(backup) as channel:
            got = {channel.basic_get("orders", auto_ack=True)[2] for _ in range(20)}
        assert got == {b"%d" % number for number in range(20)}
        pair.start(primary)
        assert pair.until_whole() == (backup, primary), "no failback"


@pytest.mark.system
def test_a_deleted_primary_hands_over_and_a_lost_volume_or_etcd_ends_nothing(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, 1) as etcd, Pods(tmp_path / "pods", etcd.listed) as pair:
        pair.start(*pair.names)
        primary, backup = pair.until_whole()
        pair.delete(primary)
        primary, backup = backup, primary
        assert pair.until_whole() == (primary, backup)
        pair.kill(backup)
        pair.lose_volume(backup)
        pair.start(backup)
        assert pair.until_whole() == (primary, backup), "it has copied everything"
        etcd.kill(0)
        until(lambda: "etcd-unreachable" in pair.text(primary, "/api/status"), "etcd to be missed")
        assert pair.ready() == [primary]
        assert all(pair.is_well(name, "liveness") for name in pair.names)


def test_an_upgrade_in_the_order_of_the_page_leaves_one_pod_ready(tmp_path: Path) -> None:
    """Each command of the page, in its order, as far as it reaches a node."""
    page = paper.boxes(paper.HOW_TO / "kubernetes.md", paper.HOW_TO_WHERE)
    (box,) = [each for each in page if each.section == "Upgrade, or change the configuration"]
    with EtcdCluster(tmp_path, 1) as etcd, Pods(tmp_path / "pods", etcd.listed) as pair:
        pair.start(*pair.names)
        primary, backup = pair.until_whole()
        roles = {"BACKUP": backup, "PRIMARY": primary}
        seen = []
        for command in box.commands:
            match shlex.split(command):
                case ["kubectl", "apply", *_]:
                    seen.append("apply")
                case ["kubectl", "delete", "pod", role]:
                    pair.delete(roles[role])
                    seen.append(f"delete {role}")
                case ["kubectl", "exec", role, "--", program, *words]:
                    assert program == json.loads(dict(instructions())["ENTRYPOINT"])[0]
                    until(partial(pair.answers, roles[role], "/health/ready"), f"{role} to be in sync")
                    pair.execute(roles[role], *words)
                    seen.append(words[0])
                case _:
                    raise AssertionError(f"nobody runs {command}")
            if seen[-1] == "delete BACKUP":
                assert pair.ready() == [primary]
            if seen[-1] == "switchover":
                assert pair.ready() == [backup]
        assert seen == ["apply", "delete BACKUP", "status", "switchover", "delete PRIMARY", "status"]
        assert pair.until_whole() == (backup, primary)
