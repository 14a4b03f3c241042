"""A whole small Debian in a folder, to install on for real: made by debootstrap, entered by chroot.

Owner: one test. Everything that is mounted below the folder is in a mount namespace of the commands' own.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.images import mirror, release
from tests.deploy.tools import run

_MOUNTED = (
    'mount --make-rprivate / && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev"'
    ' && mount -t tmpfs tmpfs "$1/run" && shift && exec "$@"'
)
_TAKES = 600.0


class Debian:
    """The folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        least = ("--variant=minbase", "--include=python3,systemd", release(), folder, mirror())
        done = run("debootstrap", *least, timeout=_TAKES)
        assert done.returncode == 0, done.stdout[-2000:]
        (folder / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())

    def around(self, *command: str | Path, cwd: Path, environment: dict[str, str]) -> tuple[int, str]:
        """Run a command of the machine outside, with what the folder needs mounted: code and both outputs."""
        mounted = ("unshare", "--mount", "sh", "-c", _MOUNTED, "sh", self.folder)
        done = run(*mounted, *command, cwd=cwd, environment=environment, timeout=_TAKES)
        return done.returncode, done.stdout + done.stderr

    def inside(self, *command: str, environment: dict[str, str] | None = None) -> str:
        """Run a command in there, which must succeed: both outputs."""
        there: list[str | Path] = [
            "env",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "chroot",
            self.folder,
            *command,
        ]
        code, said = self.around(*there, cwd=self.folder, environment=environment or {})
        assert code == 0, f"{command}: {said}"
        return said

    def read(self, path: str) -> str:
        return (self.folder / path.lstrip("/")).read_text()
