"""The commands of the machine that a broker runs on: `serve` and `passwd`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from understudy import codes
from understudy.cli.exit_codes import FAILED
from understudy.cli.options import Failed, Wrong, given_password, leave, stdin_option
from understudy.cli.process import heard, quiet
from understudy.config.load import load
from understudy.config.settings import ConfigError


@click.command()
@click.option("--config", "path", type=click.Path(path_type=Path), help="A TOML file.")
@click.option("--name", help="The node's name. [broker.name]")
@click.option(
    "--listen", metavar="HOST:PORT", help="Addresses to listen on, separated by commas. [broker.listen]"
)
@click.option("--data-dir", help="The data directory. [broker.data_dir]")
@click.option(
    "--http", metavar="HOST:PORT", help="Metrics, health and API; port 0: a free one. [broker.http]"
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Any setting; overrides the file and the environment.",
)
def serve(
    path: Path | None,
    name: str | None,
    listen: str | None,
    data_dir: str | None,
    http: str | None,
    overrides: tuple[str, ...],
) -> None:
    """Run a broker in the foreground until SIGTERM or SIGINT.

    Without any configuration it is one durable broker on 127.0.0.1:5672 with its data in ./understudy-data.
    """
    flags = {
        "broker.name": name,
        "broker.listen": listen,
        "broker.data_dir": data_dir,
        "broker.http": http,
    }
    try:
        settings = load(path, overrides, flags)
    except ConfigError as error:
        raise Wrong(codes.CONFIG_INVALID.say(fault=error)) from None
    quiet()  # an interrupt in a C module that imports another one would become an ImportError
    from understudy.server.daemon import CannotStart, serve_until_stopped

    heard()
    try:
        stopped = serve_until_stopped(settings)
    except ConfigError as error:
        raise Wrong(codes.CONFIG_INVALID.say(fault=error)) from None
    except CannotStart as error:
        raise Failed(error.said) from None
    if stopped is not None:
        click.echo(f"understudy: {codes.NODE_STOPPED.say(reason=stopped)}", err=True)
        leave(FAILED)


@click.command()
@click.argument("user")
@click.option("--administrator", is_flag=True, help="May promote, demote and ask for the status.")
@stdin_option
def passwd(user: str, administrator: bool, from_stdin: bool) -> None:
    """Hash a password and print the lines that make USER a user in the configuration file."""
    from broker.security.authenticator import hash_password

    if not user.replace("-", "").replace("_", "").isalnum() or not user.isascii():
        raise Wrong(f"{user!r} is not a user name of letters, digits, '-' and '_'")
    password = given_password(from_stdin=from_stdin)
    tags = ["administrator"] if administrator else []
    click.echo(f"[auth.users.{user}]")
    click.echo(f'password = "{hash_password(password)}"')
    click.echo(f"tags = {json.dumps(tags)}")
