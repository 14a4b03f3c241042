"""The options of an agent, which `understudy federate agent` and `attach` share."""

from __future__ import annotations

from typing import Any

import click

from understudy.cli.options import Function

_MODES = ("consume_mode", "forward_mode", "copy", "on_outage")
_LIMITS = ("max_length_bytes", "message_ttl", "expires", "max_hops")


def agent_options(function: Function) -> Function:
    """`--upstream`, as `upstream_name`, and those that `agent_settings` reads."""
    options = (
        click.option("--upstream", "upstream_name", required=True, metavar="NAME", help="An upstream."),
        click.option(
            "--consume-mode",
            type=click.Choice(("all", "none")),
            default="all",
            show_default=True,
            help="all: take what the exchange here is bound for.",
        ),
        click.option(
            "--forward-mode",
            type=click.Choice(("all", "unmatched", "none")),
            default="none",
            show_default=True,
            help="all: give what is published here; unmatched: what no binding here matches.",
        ),
        click.option(
            "--copy",
            type=click.IntRange(0, 1),
            default=1,
            show_default=True,
            help="0: what is given goes to no binding here.",
        ),
        click.option(
            "--on-outage",
            type=click.Choice(("queue", "drop")),
            default="queue",
            show_default=True,
            help="drop: nothing is kept while the line is down.",
        ),
        click.option(
            "--max-length-bytes",
            type=click.IntRange(min=1),
            help="Octets that may wait for the line; the oldest are dropped. Default: 1 GiB.",
        ),
        click.option(
            "--message-ttl", type=click.IntRange(min=0), help="Milliseconds that a message may wait."
        ),
        click.option(
            "--expires",
            type=click.IntRange(min=1),
            help="Milliseconds after which the upstream forgets a link that nobody uses. Default: never.",
        ),
        click.option(
            "--max-hops",
            type=click.IntRange(1, 32),
            help="Brokers that an interest may pass through. Default: 8.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def agent_settings(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The value of an entry but for its exchange and upstream, and the other options."""
    value = {name.replace("_", "-"): options.pop(name) for name in _MODES}
    limits = {name.replace("_", "-"): options.pop(name) for name in _LIMITS}
    return value | {name: number for name, number in limits.items() if number is not None}, options
