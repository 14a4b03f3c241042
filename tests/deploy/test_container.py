"""deploy/container: what the file says, and, where there is an engine, the image that it makes."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from tests.cluster.engine import Engine, NoEngine
from tests.cluster.images import base_image, fetch
from tests.deploy.tools import DEPLOY, PATIENCE, REQUIRED, ROOT
from understudy.config.load import load
from understudy.server.daemon import users_of

FILE = DEPLOY / "container" / "Containerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
_ROUND_TRIP = """
import kombu
with kombu.Connection("amqp://guest:guest@127.0.0.1:5672//") as connection:
    box = connection.SimpleQueue("orders")
    box.put("one")
    print(box.get(timeout=10).payload)
"""


def instructions() -> list[tuple[str, str]]:
    """(INSTRUCTION, its words), lines joined, comments left out."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", "", text)
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line]
    return [(words[0], words[1]) for words in found]


def test_it_is_built_of_all_packages_and_nothing_else() -> None:
    copied = [words for name, words in instructions() if name == "COPY" and not words.startswith("--from")]
    folders = {words.split()[0] for words in copied if words.endswith("/" + words.split()[0])}
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert folders == {*packages, "deploy"}, "`understudy deploy` shows what is in deploy/"
    assert {word for words in copied for word in words.split()} >= set(SOURCES)


def test_both_images_run_the_same() -> None:
    """That of the tree, and that of the wheel, which compose.yml builds."""
    stages = [
        path.read_text().rpartition("\nFROM ")[2] for path in (FILE, FILE.with_name("Containerfile.wheel"))
    ]
    assert stages[0] == stages[1]


def test_what_runs_is_not_root_and_says_whether_it_is_well() -> None:
    told = instructions()
    last = max(i for i, (name, _) in enumerate(told) if name == "FROM")
    stage = dict(told[last:])
    assert stage["USER"] not in ("root", "0")
    assert "/health/live" in stage["HEALTHCHECK"]
    for name in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(stage[name]), list), "no shell between engine and broker"
    assert json.loads(re.sub(r"^.*? CMD ", "", stage["HEALTHCHECK"]))


@pytest.mark.parametrize("name", ["a", "b"])
def test_the_pair_of_the_compose_file_has_settings_that_are_good(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each service is a node of one pair, that clients reach with the user of the environment."""
    paper = yaml.safe_load((DEPLOY / "container" / "compose.yml").read_text())
    service = paper["services"][name]
    for key, value in dict(words.split("=", 1) for words in _environment()).items():
        monkeypatch.setenv(key, value)
    for key, value in service["environment"].items():
        monkeypatch.setenv(key, re.sub(r"\$\{\w+:\?[^}]*\}", "word", value))
    settings = load(None)
    assert settings.broker.name == service["hostname"] == name
    assert [str(first) for first, *_ in settings.ha.brokers] == [
        f"{other}:5672" for other in paper["services"]
    ]
    users = {user.name: user for user in users_of(settings)}
    assert users.keys() == {"shop", "ha"} and not users["shop"].loopback_only
    inside = [int(port.rsplit(":", 1)[1]) for port in service["ports"]]
    assert inside == [
        settings.broker.listen[0].port,
        settings.broker.http.port if settings.broker.http else 0,
    ]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (
        ROOT / "deploy" / "container" / service["build"]["context"] / service["build"]["dockerfile"]
    ).exists()
    assert set(paper["volumes"]) == set(paper["services"])


def _environment() -> list[str]:
    return [word for instruction, words in instructions() if instruction == "ENV" for word in words.split()]


def test_nothing_is_left_of_what_built_it() -> None:
    for name, words in instructions():
        if name == "RUN" and "apt-get" in words:
            assert "--no-install-recommends" in words and words.count("rm -rf /var/lib/apt/lists/*") == 1
        if name == "FROM":
            assert ":latest" not in words
        assert name != "ADD"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with _engine_or_none() as found:
        yield found


@contextmanager
def _engine_or_none() -> Iterator[Engine]:
    with suppress(NoEngine), Engine() as made:
        yield made
        return
    (pytest.fail if REQUIRED else pytest.skip)("no container engine can be had here")


@pytest.mark.tools
def test_its_image_serves_as_nobody_in_particular(engine: Engine, tmp_path: Path) -> None:
    image = built(engine, tmp_path)
    name = f"understudy-test-{tmp_path.name.replace('_', '-')}"
    often = ("--health-interval", "1s")
    engine.docker("run", "--detach", "--name", name, "--network", "none", *often, image)
    try:
        until(lambda: health(engine, name) == "healthy", "it to be healthy")
        assert engine.docker("exec", name, "id", "--user") == "5672"
        program = "/opt/understudy/bin/understudy"
        engine.docker("exec", name, program, "status", "--expect", "standalone")
        assert engine.docker("exec", name, "/opt/understudy/bin/python", "-c", _ROUND_TRIP) == "one"
        engine.docker("stop", "--time", "60", name)
        assert engine.docker("inspect", "--format", "{{.State.ExitCode}}", name) == "0", "an orderly end"
        engine.docker("start", name)
        until(lambda: health(engine, name) == "healthy", "it to be healthy again")
        assert '"orders"' in engine.docker("exec", name, program, "query", "--format", "json")
    finally:
        engine.docker("rm", "--force", "--volumes", name)
        engine.docker("image", "rm", "--force", image)


def built(engine: Engine, folder: Path) -> str:
    """Of a copy of the tree, with wheels beside it, so that nothing but Debian is asked from within."""
    context = folder / "context"
    context.mkdir()
    for name in (*PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"], "deploy"):
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, context)
    fetch([*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]], context / "wheels")
    arguments = {"BASE": base_image(engine), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/source"}
    told = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    tag = "understudy-deploy-test"
    engine.docker("build", "--network=host", "--file", str(FILE), *told, "--tag", tag, str(context))
    return tag


def health(engine: Engine, name: str) -> str:
    state = json.loads(engine.docker("inspect", "--format", "{{json .State}}", name))
    assert state["Running"], engine.docker("logs", name)
    return str(state["Health"]["Status"])


def until(condition: Callable[[], bool], what: str) -> None:
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        pause.wait(0.2)
