"""`understudy pair`: two nodes, one of them serves; it survives the loss of one, and leaves no process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pika
from click.testing import CliRunner

from understudy.cli.options import Wrong
from understudy.cli.pair import pair


def test_a_pair_is_started_survives_a_kill_and_is_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "understudy", "pair", "--dir", str(tmp_path / "pair"), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    try:
        nodes = [re.fullmatch(r"(\w)  (\S+)  pid (\d+)  (.*)\n", process.stdout.readline()) for _ in "ab"]
        (a, b) = [node.groups() for node in nodes if node is not None]
        assert (a[0], a[3], b[0], b[3]) == ("a", "primary", "b", "backup, ready")
        assert "Ctrl-C" in process.stdout.readline()
        again = CliRunner().invoke(pair, ["--dir", str(tmp_path / "pair")], standalone_mode=False)
        assert isinstance(again.exception, Wrong) and "a node runs on" in str(again.exception)
        assert (tmp_path / "pair" / "a" / "store").is_dir(), "a second pair removes nothing of it"
        os.kill(int(a[2]), signal.SIGKILL)
        assert process.stdout.readline() == "a ended: killed by SIGKILL; to start it again:\n"
        assert process.stdout.readline().startswith(f"  understudy serve --name a --listen {a[1]} ")
        host, _, port = b[1].rpartition(":")
        pika.BlockingConnection(pika.ConnectionParameters(host, int(port))).close()  # a client: b takes over
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert not Path(f"/proc/{b[2]}").exists()
    finally:
        process.kill()
        process.communicate()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = CliRunner().invoke(pair, ["--dir", str(tmp_path)], standalone_mode=False)
    assert isinstance(done.exception, Wrong) and "not empty and was not made by `understudy pair`" in str(
        done.exception
    )
    assert (tmp_path / "thesis.txt").exists()


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] - 1
        command = [sys.executable, "-m", "understudy", "pair", "--dir", str(tmp_path), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert re.match(r"understudy: node [ab] ended: cannot listen on 127\.0\.0\.1:\d+: ", line)
