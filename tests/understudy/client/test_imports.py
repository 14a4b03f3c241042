"""Whoever uses the kit on kombu needs no Proton, and whoever uses either kit needs no part of a broker."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.test_both_kits import ORDERS
from understudy import client

APPLICATION = """
import sys
from importlib import import_module
from understudy.client import Consumer, Publisher

kit = import_module(sys.argv[1])
with kit.Publisher(sys.argv[2], name="shop", ledger_dir="ledgers") as publisher:
    publisher.publish(b"order", "orders", headers={"x-shop": 1})
    publisher.flush(20)
    assert publisher.counts.confirmed == 1
with kit.Consumer(sys.argv[2], "orders", name="billing", ledger_dir="ledgers") as consumer:
    assert consumer.receive(20).body == b"order"
"""
PACKAGES = ("broker", "ha", "spark", "resource_agent")


def test_the_kit_on_kombu_does_not_import_proton() -> None:
    code = "import sys, understudy.client; sys.exit('proton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_without_proton_the_other_one_says_what_is_missing() -> None:
    code = "import sys; sys.modules['proton'] = None; import understudy.client.amqp10"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'understudy-amqp[amqp10]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("kit", ["understudy.client", "understudy.client.amqp10"])
def test_an_application_may_have_modules_with_the_names_of_our_packages(kit: str, tmp_path: Path) -> None:
    """They raise when they are imported, and stand before the installed packages on the path."""
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('this is {name}.py of the application')\n")
    (tmp_path / "application.py").write_text(APPLICATION)
    protocols = None
    if kit == "understudy.client.amqp10":
        pytest.importorskip("proton")
        protocols = import_module("broker.amqp10.connection").PROTOCOLS
    with BrokerThread(protocols=protocols) as running:
        with client.Publisher(str(running.address), "declarer", declare=[ORDERS]) as declarer:
            declarer.connect(20)
        command = [sys.executable, "application.py", kit, str(running.address)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_those_modules_would_be_the_ones_imported(tmp_path: Path) -> None:
    """Else the test before this one would show nothing."""
    (tmp_path / "broker.py").write_text("raise SystemExit('mine')\n")
    (tmp_path / "application.py").write_text("import understudy.management\n")
    done = subprocess.run(
        [sys.executable, "application.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "mine\n")
