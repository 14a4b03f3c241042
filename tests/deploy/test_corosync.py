"""deploy/corosync: corosync itself takes both files, and they say what a pair's safety rests on."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.deploy.tools import fill, require, run

FILES = ("corosync/two-nodes.conf", "corosync/two-nodes-and-qdevice.conf")


def judged(folder: Path, conf: str) -> tuple[int, str]:
    """What `corosync -t` says of it on this machine, as the node that this machine is."""
    key = folder / "authkey"
    key.write_bytes(bytes(range(256)) * 8)
    conf = conf.replace("crypto_hash: sha256", f"crypto_hash: sha256\n    keyfile: {key}")
    conf = conf.replace("uid: understudy", "uid: nobody")  # a user that is here, too
    (folder / "corosync.conf").write_text(conf.replace("to_stderr: no", "to_stderr: yes"))
    done = run("corosync", "-t", "-c", folder / "corosync.conf")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("links", [1, 2])
@pytest.mark.parametrize("file", FILES)
def test_corosync_takes_the_file(tmp_path: Path, file: str, links: int) -> None:
    require("corosync", root=True)
    second = {} if links == 2 else {"ADDRESS2_A": "", "ADDRESS2_B": ""}
    conf = fill(file, NODE_A=socket.gethostname(), ADDRESS_A="127.0.0.1", **second)
    code, said = judged(tmp_path, conf)
    assert code == 0, said
    code, said = judged(tmp_path, conf.replace("token: 1000", "token: soon"))
    assert code != 0, "corosync takes anything here, so its word is worth nothing"
    assert "totem.token" in said


def values(conf: str) -> dict[str, str]:
    return dict(re.findall(r"^\s*([a-z_0-9]+): (.*)$", conf, re.MULTILINE))


def test_two_nodes_wait_for_each_other_at_their_start() -> None:
    found = values(fill(FILES[0]))
    assert (found["two_node"], found["wait_for_all"], found["token"]) == ("1", "1", "1000")


def test_with_a_qdevice_two_of_three_votes_are_needed() -> None:
    found = values(fill(FILES[1], QNETD="qnetd.example"))
    assert not {"two_node", "wait_for_all"} & set(found)
    assert (found["model"], found["votes"], found["algorithm"]) == ("net", "1", "ffsplit")
    assert found["host"] == "qnetd.example"
    assert found["keep_active_partition_tie_breaker"] == "on"
    assert int(found["timeout"]) < int(found["sync_timeout"])


def test_the_two_differ_in_their_votes_only() -> None:
    own = r"(?s)^#.*?\n\n|quorum \{.*?\n\}\n\n|# The broker asks corosync.*?\n\}\n\n"
    parts = [re.sub(own, "", fill(file)) for file in FILES]
    assert parts[0] == parts[1]


def test_the_broker_may_ask_for_votes_where_they_count() -> None:
    assert "uidgid {\n    uid: understudy\n}" in fill(FILES[1])
