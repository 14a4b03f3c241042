"""Signals to a real broker and to commands: what they end, and in how many words."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.understudy.serving import serving


def test_a_node_without_tls_outlives_a_reload(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        node.process.send_signal(signal.SIGHUP)
        node.until("no files of TLS")
        assert node.stop() == 0
