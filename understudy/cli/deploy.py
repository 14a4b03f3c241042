"""`understudy deploy`: prints the files for systemd, Pacemaker, proxies, Prometheus and Grafana.

They are the folder `deploy` of the repository, which the wheel has as package data. Files with `@NAME@` in
them are templates. `fill.sh`, one of the files, fills them in, for this command and by hand.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click

import understudy
from understudy import codes
from understudy.cli.options import Failed, Wrong
from understudy.shared.file_errors import of_file
from understudy.shared.folders import make_folders

KINDS = {
    "systemd": ("One node started by systemd", "systemd", "logrotate"),
    "pacemaker": (
        "A pair under Pacemaker: corosync, then crmsh or pcs",
        "corosync",
        "crmsh",
        "pcs",
        "logrotate",
    ),
    "haproxy": ("HAProxy routes clients to the node that serves", "haproxy"),
    "keepalived": ("A virtual IP that follows the node that serves", "keepalived"),
    "compose": ("A pair in containers, to try it", "container"),
    "kubernetes": ("A pair on Kubernetes, with etcd", "kubernetes"),
    "prometheus": ("Prometheus: scraping, and alerts", "prometheus"),
    "grafana": ("A dashboard of a pair for Grafana", "grafana"),
    "settings": ("Settings of one pair, to fill in the other files", "site.env"),
}
"""Of each kind: its purpose, and its files or folders below `deploy`."""
_SETTING = re.compile(r"@([A-Z][A-Z0-9_]*)@")
_GIVEN = re.compile(r"[A-Z][A-Z0-9_]*=")


@click.group()
def deploy() -> None:
    """Files for systemd, Pacemaker, HAProxy, containers, Kubernetes, Prometheus and Grafana."""


@deploy.command("list")
def list_() -> None:
    """List the kinds of files, and the files of each."""
    for kind, (title, *_) in KINDS.items():
        click.echo(f"{kind:12}{title}")
        for name in _files(kind):
            click.echo(f"{'':12}  {name}")


@deploy.command()
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name", required=False)
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replace each @NAME@ with the VALUE of a line NAME=VALUE in this file.",
)
@click.option(
    "--set", "given", multiple=True, metavar="NAME=VALUE", help="Use this value; overrides the file."
)
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), help="Write files below this folder."
)
@click.option("--force", is_flag=True, help="Replace files that exist and differ.")
def show(
    kind: str,
    name: str | None,
    settings: Path | None,
    given: tuple[str, ...],
    output: Path | None,
    force: bool,
) -> None:
    """Print the files of a KIND, or the one with this NAME. With --output, write them.

    Start with `understudy deploy show settings > site.env`, and change each line for your pair. Then pass the
    file with --settings. Without settings the files keep their @NAME@.
    """
    if force and output is None:
        raise Wrong("--force needs --output, without which no file is replaced")
    names = _files(kind)
    if name is not None:
        names = [each for each in names if name in (each, Path(each).name)]
        if not names:
            raise Wrong(f"{kind} has no file {name!r}: {', '.join(_files(kind))}")
    texts = {each: (_folder() / each).read_text(encoding="utf-8") for each in names}
    values = _values(settings, given)
    if values is not None:
        texts = {
            each: _filled(each, values) if _SETTING.search(text) else text for each, text in texts.items()
        }
    if output is None:
        for each, text in texts.items():
            click.echo((f"# ==> {each} <==\n" if len(texts) > 1 else "") + text, nl=False)
    else:
        _write(output, texts, force=force)
    if asked := sorted({found for text in texts.values() for found in _SETTING.findall(text)}):
        click.echo(f"note: give values with --settings or --set for {', '.join(asked)}", err=True)


def _folder() -> Path:
    """The folder `deploy`: in the wheel beside this package's modules, in the repository at its top."""
    package = Path(understudy.__file__).parent
    inside = package / "deploy"
    return inside if inside.is_dir() else package.parent / "deploy"


def _files(kind: str) -> list[str]:
    """Paths relative to the folder, with `/`."""
    folder, found = _folder(), list[str]()
    for part in KINDS[kind][1:]:
        path = folder / part
        paths = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [str(each.relative_to(folder)) for each in paths if each.is_file()]
    return found


def _values(settings: Path | None, given: tuple[str, ...]) -> str | None:
    """Lines NAME=VALUE for `fill.sh`, which uses the last one of a name. None: nothing is to be filled in."""
    if settings is None and not given:
        return None
    if wrong := [each for each in given if not _GIVEN.match(each) or "\n" in each]:
        raise Wrong(f"--set: {wrong[0]!r} is not NAME=VALUE, with a name in capital letters")
    try:
        lines = [] if settings is None else settings.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fault = of_file(error) if isinstance(error, OSError) else f"{settings} is not text in UTF-8"
        raise Failed(codes.FILE_FAILED.say(fault=fault)) from None
    names = {each.partition("=")[0] for each in given}
    lines = [line for line in lines if line.partition("=")[0] not in names]
    return "".join(f"{line}\n" for line in [*lines, *given])


def _filled(name: str, values: str) -> str:
    folder = _folder()
    done = subprocess.run(
        ["sh", folder / "fill.sh", "-", name],
        cwd=folder,
        input=values,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Wrong(done.stderr.strip().removeprefix("fill.sh: "))
    return done.stdout


def _write(output: Path, texts: dict[str, str], *, force: bool) -> None:
    """Write all files, or none if one would replace a different file."""
    for name, text in texts.items():
        path = output / name
        if path.exists() and not force and path.read_bytes() != text.encode():
            raise Failed(codes.DEPLOY_EXISTS.say(path=path))
    try:
        for name, text in texts.items():
            make_folders(str((output / name).parent))
            (output / name).write_text(text, encoding="utf-8")
            click.echo(output / name)
    except OSError as error:
        raise Failed(codes.FILE_FAILED.say(fault=f"cannot write {of_file(error)}")) from None
