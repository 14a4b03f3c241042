"""Whoever uses the kit on kombu needs no Proton."""

from __future__ import annotations

import subprocess
import sys


def test_the_kit_on_kombu_does_not_import_proton() -> None:
    code = "import sys, understudy.client; sys.exit('proton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_without_proton_the_other_one_says_what_is_missing() -> None:
    code = "import sys; sys.modules['proton'] = None; import understudy.client.amqp10"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'understudy[amqp10]'" in done.stderr.splitlines()[-1]
