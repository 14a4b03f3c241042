"""An Ansible connection into a folder that holds a whole Debian: `chroot`, and files are copied.

ansible-core brings none such. Loaded by Ansible (ANSIBLE_CONNECTION_PLUGINS), never imported by a test.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: folder
short_description: Run in a folder
description: Runs commands by chroot in the folder that is the host's address.
options:
  remote_addr:
    description: The folder.
    vars: [{name: ansible_host}]
"""


class Connection(ConnectionBase):  # type: ignore[misc]
    transport = "folder"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            ["chroot", str(self._root), "/bin/sh", "-c", cmd],
            input=in_data or b"",
            capture_output=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"},
        )
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        shutil.copyfile(in_path, self._there(out_path))

    def fetch_file(self, in_path: str, out_path: str) -> None:
        shutil.copyfile(self._there(in_path), out_path)

    def close(self) -> None:
        self._connected = False

    @property
    def _root(self) -> Path:
        address: Any = self.get_option("remote_addr")
        return Path(address)

    def _there(self, path: str) -> Path:
        return self._root / path.lstrip("/")
