"""`understudy close`: connections of clients."""

from __future__ import annotations

from typing import Any

import click

from understudy.cli.objects.operator import Operator
from understudy.cli.options import Wrong, broker_options
from understudy.definitions.unsupported import counted


@click.command()
@click.argument("name", required=False)
@click.option("--of", "user_name", metavar="USER", help="All connections of this user.")
@click.option("--vhost", help="All connections in this virtual host.")
@click.option("--reason", default="", help="What the client is told.")
@broker_options
def close(name: str | None, user_name: str | None, vhost: str | None, reason: str, **broker: Any) -> None:
    """Close connection NAME (`understudy list connections` has the names), or all of a user or virtual
    host."""
    whose = {"name": name, "user": user_name, "vhost": vhost}
    given = {key: value for key, value in whose.items() if value}
    if len(given) != 1:
        raise Wrong("give NAME, or --of USER, or --vhost NAME")
    node = Operator(**broker)
    answer = node.operate("close-connection", **given, reason=reason)
    node.tell(answer, f"{counted(answer['closed'], 'connection')} closed")
