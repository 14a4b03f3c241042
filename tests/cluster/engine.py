"""A Docker engine of the tests' own: started for one run, ended by its pid, with images that outlive it.

Owner: the session of tests, or `python -m tests.cluster.engine` for a look around by hand. It takes no part
of the machine's network (no NAT, no forwarding, no default bridge), and its data lies outside of the
checkout, so that a fresh checkout on the same machine finds the images. One run at a time on a machine, for
all have the same addresses: a lock says so, and the next one waits.
"""

from __future__ import annotations

import ctypes
import fcntl
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

POOL = "198.51.100.0/24"
"""Where networks are made (TEST-NET-2): nobody has these addresses."""
PACKAGES = {"dockerd": "docker.io", "debootstrap": "debootstrap", "nft": "nftables", "mkfs.ext4": "e2fsprogs"}
"""What has to be there, and the Debian package that has it."""
_CAPABILITIES = (12, 21)
"""CAP_NET_ADMIN and CAP_SYS_ADMIN, in linux/capability.h."""
_PR_SET_PDEATHSIG = 1
MARK = "understudy-lab-"
"""How each folder begins that a lab mounts something in."""
_RUN = Path("/run")
_LOCK = Path("/run/lock/understudy-lab")
_WAITS = 900.0
"""Seconds that a run waits for the end of another one."""
_STARTS = 60.0
"""Seconds that the engine may take to answer, or to end."""


class NoEngine(Exception):
    """There can be no engine here; `str()` is one line that says why."""


def default_home() -> Path:
    """Where images are kept: $UNDERSTUDY_LAB, or a folder of the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("UNDERSTUDY_LAB") or Path(cache) / "understudy-lab")


class Engine:
    """dockerd on a socket of its own. A context manager."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or default_home()
        self._run = Path()
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self._run / "docker.sock"

    @property
    def host(self) -> str:
        """As DOCKER_HOST takes it."""
        return f"unix://{self.socket}"

    def __enter__(self) -> Self:
        install()
        self.home.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(_LOCK)
        _sweep()
        self._run = Path(tempfile.mkdtemp(prefix=MARK, dir=_RUN))
        try:
            self._start()
            self._forget()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STARTS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STARTS)
        if self._lock is not None and self._run.name:
            _sweep()
        if self._lock is not None:
            self._lock.close()

    def _forget(self) -> None:
        """Machines and networks of a run that was killed: the engine keeps them with the images."""
        if left := self.docker("container", "ls", "--all", "--quiet").split():
            self.docker("container", "rm", "--force", "--volumes", *left)
        self.docker("network", "prune", "--force")

    def docker(self, *arguments: str, stdin: IO[bytes] | None = None, timeout: float = 900) -> str:
        """Run the client; its output. Raises NoEngine with what it said."""
        environment = {**os.environ, "DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"}
        done = subprocess.run(
            ["docker", *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=timeout, env=environment, check=False,
        )  # fmt: skip
        text = done.stdout.decode(errors="replace").strip()
        if done.returncode:
            raise NoEngine(f"docker {' '.join(arguments[:2])}: {text[-2000:]}")
        return text

    def _start(self) -> None:
        log = (self.home / "dockerd.log").open("wb")
        command = ["dockerd", "--data-root", str(self.home / "data"), "--exec-root", str(self._run / "exec")]
        command += [
            "--pidfile",
            str(self._run / "dockerd.pid"),
            "--host",
            self.host,
            "--storage-driver",
            "overlay2",
        ]
        command += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        command += ["--bridge=none", "--default-address-pool", f"base={POOL},size=27", "--log-level", "warn"]
        prctl = ctypes.CDLL(None).prctl
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM)),
        )  # fmt: skip
        deadline, pause = time.monotonic() + _STARTS, threading.Event()
        while not _answers(self.socket):
            if self._process.poll() is not None or time.monotonic() > deadline:
                words = (self.home / "dockerd.log").read_text(errors="replace").splitlines()[-3:]
                raise NoEngine(f"the Docker engine does not start: {' / '.join(words)}")
            pause.wait(0.05)


def why_not() -> str:
    """What this machine lacks, whatever is installed; "" if nothing."""
    if os.geteuid() != 0:
        return "machines in containers need root"
    status = Path("/proc/self/status").read_text()
    may = int(status.partition("CapEff:")[2].split()[0], 16)
    if any(not may >> number & 1 for number in _CAPABILITIES):
        return "machines in containers need a root that may mount and make networks"
    return ""


def install() -> None:
    """See that all programs are there, installing them where we may. Raises NoEngine."""
    if reason := why_not():
        raise NoEngine(reason)
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    missing = [package for tool, package in PACKAGES.items() if shutil.which(tool) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise NoEngine(f"a cluster of containers needs {', '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet: Sequence[str] = ("-qq", "-o", "DPkg::Lock::Timeout=120")
    for command in (("update",), ("install", "-y", "--no-install-recommends", *missing)):
        done = subprocess.run(["apt-get", *quiet, *command], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise NoEngine(f"apt-get {command[0]}: {done.stderr.strip()[-500:]}")


def _locked(path: Path) -> IO[str]:
    """Waits while another run has it. Raises NoEngine when that takes too long."""
    lock = path.open("w")
    deadline, pause = time.monotonic() + _WAITS, threading.Event()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError as error:
            if time.monotonic() > deadline:
                lock.close()
                raise NoEngine("another run of the lab does not come to its end") from error
            pause.wait(0.5)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def _answers(path: Path) -> bool:
    connection = _Connection(path)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def left_over() -> list[str]:
    """What there is on this machine of a lab, whoever left it: interfaces, mounts, processes."""
    found = [f"interface {name}" for name in _interfaces()] + [f"mount {path}" for path in _mounts()]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{_RUN}/{MARK}" in command:
                found.append(f"process {path.parent.name}: {command}")
    return found


def _interfaces() -> list[str]:
    """Those with an address of a lab's networks."""
    shown = subprocess.run(["ip", "-oneline", "-4", "address"], capture_output=True, text=True).stdout
    return [line.split()[1] for line in shown.splitlines() if f" {POOL.rsplit('.', 1)[0]}." in line]


def _mounts() -> list[str]:
    """The innermost first."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [point for point in reversed(points) if f"/{MARK}" in point]


def _sweep() -> None:
    """Clear away what a run left behind that was killed before it could; its engine dies with it."""
    for folder in _RUN.glob(f"{MARK}*"):
        with suppress(OSError, ValueError):
            pid = int((folder / "dockerd.pid").read_text())
            if str(folder) in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGTERM)
                deadline, pause = time.monotonic() + _STARTS, threading.Event()
                while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                    pause.wait(0.1)
    for mount in _mounts():
        subprocess.run(["umount", "--lazy", mount], capture_output=True)
    for folder in _RUN.glob(f"{MARK}*"):
        shutil.rmtree(folder, ignore_errors=True)
    for name in _interfaces():
        subprocess.run(["ip", "link", "delete", name], capture_output=True)
