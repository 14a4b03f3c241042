"""Starts the broker's process: as its user, in a session of its own, and waits until it is certainly up.

A start is over when the broker holds its data directory, which it reports as to systemd (`NOTIFY_SOCKET`).
Reading its store may take long, and must not hold up the promotion of another node.
"""

from __future__ import annotations

import grp
import os
import pwd
import resource
import select
import socket
import subprocess
import time
from typing import NamedTuple

from resource_agent.codes import Code
from resource_agent.parameters import Refused, Settings
from resource_agent.process import Running, end, running
from resource_agent.state_dir import StateDir

SETTLE = 2.0
"""Seconds that a broker which holds its data directory is given to be ready as well: mostly it is."""
_STOP_TIMEOUT = "1s"
"""Clients were told at the demotion; whoever has not said goodbye since came by an address that is gone."""
_TAIL = 4000
_MISCONFIGURED = 2
"""The program's exit code for what is wrong with its configuration."""


class Account(NamedTuple):
    """The user and group that the broker runs as."""

    uid: int
    gid: int
    groups: list[int]
    home: str


def account(settings: Settings) -> Account:
    """Raises Refused if there is no such user or group, or this one may not become it."""
    try:
        user = pwd.getpwnam(settings.user)
    except KeyError:
        raise Refused(Code.INSTALLED, f"user={settings.user}: there is no such user here") from None
    try:
        gid = grp.getgrnam(settings.group).gr_gid if settings.group else user.pw_gid
    except KeyError:
        raise Refused(Code.INSTALLED, f"group={settings.group}: there is no such group here") from None
    if os.geteuid() not in (0, user.pw_uid):
        raise Refused(Code.PERM, f"only root can start a process of the user {settings.user}")
    return Account(user.pw_uid, gid, os.getgrouplist(settings.user, gid), user.pw_dir)


def check_files(settings: Settings, who: Account) -> None:
    """Check that this user can run the program and read the configuration. Raises Refused."""
    if not os.path.isfile(settings.binary):
        raise Refused(Code.INSTALLED, f"binary={settings.binary}: there is no such program here")
    if not os.access(settings.binary, os.X_OK):
        raise Refused(Code.PERM, f"binary={settings.binary}: it may not be executed")
    if not os.path.exists(settings.config):
        raise Refused(Code.ARGS, f"config={settings.config}: there is no such file here")
    try:
        _read_as(who, settings.config)
    except OSError as error:
        raise Refused(
            Code.PERM, f"config={settings.config}: {settings.user} cannot read it: {error.strerror}"
        ) from None


def _read_as(who: Account, path: str) -> None:
    """Read as that user. OSError if the user cannot."""
    if os.geteuid() != 0:
        with open(path, "rb"):
            return
    groups = os.getgroups()
    os.setgroups(who.groups)
    os.setegid(who.gid)
    os.seteuid(who.uid)
    try:
        with open(path, "rb"):
            return
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def launch(settings: Settings, who: Account, state: StateDir, deadline: float) -> bool:
    """Start the broker. On return it holds its data directory; True if it takes connections as well. Raises
    Refused."""
    state.make(who.uid, who.gid)
    log, written = _open_log(settings.log_file, who)
    listener = _listener(state.notify, who)
    try:
        child = _spawn(settings, who, state, log)
        process = running(child.pid)
        if process is not None:
            _note(process, state)
        return _wait(child, process, listener, deadline, settings.log_file, written)
    finally:
        listener.close()
        os.close(log)
        try:
            os.unlink(state.notify)
        except FileNotFoundError:
            pass


def _spawn(settings: Settings, who: Account, state: StateDir, log: int) -> subprocess.Popen[bytes]:
    _raise_limit()
    command = [
        settings.binary, "serve", "--config", settings.config,
        "--set", f"broker.name={settings.node_name}", "--set", f"broker.control={state.control}",
        "--set", f"broker.stop_timeout={_STOP_TIMEOUT}",
    ]  # fmt: skip
    environ = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": who.home,
        "LANG": "C.UTF-8", "NOTIFY_SOCKET": state.notify,
    }  # fmt: skip
    root = os.geteuid() == 0
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=environ,
            start_new_session=True, umask=0o027,
            user=who.uid if root else None, group=who.gid if root else None,
            extra_groups=who.groups if root else None,
        )  # fmt: skip
    except OSError as error:
        code = Code.PERM if isinstance(error, PermissionError) else Code.INSTALLED
        raise Refused(code, f"cannot run {settings.binary}: {error.strerror}") from None


def _note(process: Running, state: StateDir) -> None:
    """Record the process. A process that is not recorded could not be stopped, and would keep the data
    directory from any other."""
    try:
        state.started(process)
    except OSError:
        end(process, deadline=time.monotonic() + 1.0, patience=0, last=1.0)
        raise


def _raise_limit() -> None:
    """As many connections as the machine allows, and not the 1024 of a shell."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _open_log(path: str, who: Account) -> tuple[int, int]:
    """The log file, and its length. Refused if it cannot be written."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        log = os.open(path, flags, 0o640)
        if os.geteuid() == 0 and os.fstat(log).st_size == 0:
            os.fchown(log, who.uid, who.gid)
        return log, os.fstat(log).st_size
    except OSError as error:
        raise Refused(Code.PERM, f"log_file={path}: cannot be written: {error.strerror}") from None


def _listener(path: str, who: Account) -> socket.socket:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(path)
    os.chmod(path, 0o600)
    if os.geteuid() == 0:
        os.chown(path, who.uid, who.gid)
    return found


def _wait(
    child: subprocess.Popen[bytes], process: Running | None, listener: socket.socket, deadline: float,
    log: str, written: int,
) -> bool:  # fmt: skip
    """Wait until the broker is ready, or has held its data directory for SETTLE seconds, or has ended."""
    holds_since: float | None = None
    while True:
        now = time.monotonic()
        if child.poll() is not None:
            code = Code.ARGS if child.returncode == _MISCONFIGURED else Code.GENERIC
            raise Refused(code, f"it has ended: {_last_line(log, written) or child.returncode}")
        if holds_since is not None and now > min(deadline, holds_since + SETTLE):
            return False
        if now > deadline:
            if process is not None:
                end(process, deadline=now + 1.0, patience=0, last=1.0)
            raise Refused(Code.GENERIC, "it does not come to hold its data directory in time")
        if select.select([listener], [], [], 0.05)[0]:
            words = listener.recv(4096).decode(errors="replace").split("\n")
            if "READY=1" in words:
                return True
            holds_since = holds_since or now


def _last_line(path: str, since: int) -> str:
    """The last line that the process wrote."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - _TAIL))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
