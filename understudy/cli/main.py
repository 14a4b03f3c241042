"""The entry point of the command line. `understudy --help` lists the commands. Each group of commands has a
module.

Every user error (an option, a key, a file) and every failure (node unreachable, command refused) ends in one
line on standard error. `understudy.cli.exit_codes` defines the exit codes.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from spark.streams import OutputLost, ended, prepare
from understudy import __version__, codes
from understudy.cli.exit_codes import DONE, FAILED, INTERRUPTED, SUMMARY, UNDONE, WRONG
from understudy.cli.process import heard, quiet
from understudy.shared.file_errors import of_file
from understudy.shared.text import shown

_COMMANDS = {
    "serve": ("understudy.cli.serve", "serve", "Run a broker in the foreground."),
    "pair": ("understudy.cli.pair", "pair", "Start a pair on loopback to try it."),
    "passwd": ("understudy.cli.serve", "passwd", "Hash a password for the configuration file."),
    "status": ("understudy.cli.node", "status", "Show a node and its pair."),
    "ready": ("understudy.cli.node", "ready", "Check whether the node could serve. Exit code 0 or 1."),
    "promote": ("understudy.cli.node", "promote", "Make the node the primary."),
    "demote": ("understudy.cli.node", "demote", "Make the primary stop serving and rejoin as a backup."),
    "switchover": ("understudy.cli.node", "switchover", "Move the primary role to a backup, without loss."),
    "controller": (
        "understudy.cli.controller",
        "controller",
        "The controller of a node that promotes itself: status, start, stop, active, passive.",
    ),
    "replicate": (
        "understudy.cli.replicate",
        "replicate",
        "Mirror a queue of another broker or pair.",
    ),
    "federate": (
        "understudy.cli.federate",
        "federate",
        "Federate exchanges with other brokers and pairs.",
    ),
    "query": ("understudy.cli.node", "query", "Show everything that a node reports about itself."),
    "ping": ("understudy.cli.node", "ping", "Check whether the node answers."),
    "definitions": (
        "understudy.cli.definitions",
        "definitions",
        "Export and import users, policies, queues, exchanges and bindings, in RabbitMQ's JSON.",
    ),
    "vhost": ("understudy.cli.directory", "vhost", "Virtual hosts: list, add, limit and delete them."),
    "user": (
        "understudy.cli.directory",
        "user",
        "Users of the pair: list, add, delete, passwords, tags, limits.",
    ),
    "permission": (
        "understudy.cli.directory",
        "permission",
        "Permissions of stored users, for names and topics: list, set and clear them.",
    ),
    "policy": (
        "understudy.cli.directory",
        "policy",
        "Policies: limits and dead letters for queues, by name.",
    ),
    "list": (
        "understudy.cli.objects.listing",
        "list_objects",
        "List queues, exchanges, bindings, connections, channels, consumers, users and more.",
    ),
    "declare": (
        "understudy.cli.objects.declaring",
        "declare",
        "Declare a queue, an exchange or a binding.",
    ),
    "delete": ("understudy.cli.objects.declaring", "delete", "Delete a queue, an exchange or a binding."),
    "get": ("understudy.cli.objects.messages", "get", "Show messages at the head of a queue, or take them."),
    "publish": ("understudy.cli.objects.messages", "publish", "Publish a message."),
    "purge": ("understudy.cli.objects.messages", "purge", "Remove the ready messages of a queue."),
    "move": ("understudy.cli.objects.messages", "move", "Move messages to another queue, each exactly once."),
    "close": ("understudy.cli.objects.closing", "close", "Close connections of clients."),
    "trace": ("understudy.cli.objects.tracing", "trace", "Show messages of a virtual host as they pass."),
    "quarantine": (
        "understudy.cli.quarantine",
        "quarantine",
        "Messages that a rejoining node set aside: list, show, republish.",
    ),
    "backup": (
        "understudy.cli.backup",
        "backup",
        "Make an archive of a node with its messages, while it runs.",
    ),
    "restore": ("understudy.cli.backup", "restore", "Make a new node from an archive."),
    "deploy": (
        "understudy.cli.deploy",
        "deploy",
        "Show the files for systemd, Pacemaker, HAProxy, containers and Prometheus.",
    ),
    "agent": ("understudy.cli.agent", "agent", "Install the resource agent for Pacemaker."),
    "reconcile": (
        "understudy.cli.reconcile",
        "reconcile_command",
        "Prove from ledgers, with Spark, that no confirmed message was lost.",
    ),
    "watch": (
        "understudy.cli.watch",
        "watch",
        "Raise alarms on losses and silent writers, while ledgers grow.",
    ),
    "ledger": ("understudy.cli.ledger", "ledger", "Check, compact, prune and convert ledgers."),
    "report": (
        "understudy.cli.report",
        "report",
        "Report latencies, rates and failovers over a period, from ledgers, with Spark.",
    ),
    "demo": ("understudy.cli.demo", "demo", "Run a pair under load, kill the primary, show Spark's verdict."),
}


_OF_RABBITMQCTL = {
    "status": "status", "cluster_status": "status", "ping": "ping", "await_startup": "ready --wait 60s",
    "list_queues": "list queues", "list_exchanges": "list exchanges", "list_bindings": "list bindings",
    "list_connections": "list connections", "list_channels": "list channels",
    "list_consumers": "list consumers", "list_parameters": "list parameters",
    "export_definitions": "definitions export FILE", "import_definitions": "definitions import FILE",
    "list_users": "user list", "add_user": "user add", "delete_user": "user delete",
    "change_password": "user password", "set_user_tags": "user tags", "list_vhosts": "vhost list",
    "add_vhost": "vhost add", "delete_vhost": "vhost delete", "list_permissions": "permission list",
    "set_permissions": "permission set", "clear_permissions": "permission clear",
    "list_topic_permissions": "permission list-topic", "set_topic_permissions": "permission set-topic",
    "clear_topic_permissions": "permission clear-topic", "set_user_limits": "user limit",
    "clear_user_limits": "user limit --clear", "list_user_limits": "user list",
    "set_vhost_limits": "vhost limit", "clear_vhost_limits": "vhost limit --clear",
    "list_vhost_limits": "vhost list", "list_operator_policies": "policy list --operator",
    "set_operator_policy": "policy set --operator", "clear_operator_policy": "policy clear --operator",
    "list_policies": "policy list", "set_policy": "policy set", "clear_policy": "policy clear",
    "hash_password": "passwd", "purge_queue": "purge", "trace_on": "trace", "delete_queue": "delete queue",
    "close_connection": "close", "close_all_connections": "close --vhost",
    "close_all_user_connections": "close --of",
}  # fmt: skip


def _meant(word: str) -> str:
    """A sentence that suggests a command, or an empty string."""
    if (found := _OF_RABBITMQCTL.get(word)) is None:
        found = next(iter(get_close_matches(word, _COMMANDS, 1)), None)
    return f" Did you mean 'understudy {found}'?" if found else ""


class _Lazy(click.Group):
    """Imports the module of a command only when the command runs, so that `status` does not wait for
    PySpark's helpers."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, name, _help = _COMMANDS[cmd_name]
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        heard()
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, without importing their modules."""
        found = [
            CompletionItem(name, help=entry[2])
            for name, entry in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """For an unknown command, suggest the intended one. Commands of `rabbitmqctl` are known, too."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            raise click.UsageError(f"No such command {args[0]!r}.{_meant(args[0])}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in _COMMANDS.items()])


@click.group(cls=_Lazy, epilog=SUMMARY, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="understudy")
def cli() -> None:
    """An AMQP 0-9-1 and 1.0 broker with a synchronous hot standby."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code. A user error prints neither the usage text nor a traceback."""
    prepare()
    try:
        code = run(cli.main, arguments)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else FAILED
    quiet()
    sys.exit(ended(code, "understudy"))


def run(command: Callable[..., Any], arguments: list[str] | None = None) -> int:
    """Run `command` and return its exit code. A user error or a failure prints one line on standard error."""
    try:
        result = command(args=arguments, prog_name="understudy", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return WRONG
    except click.ClickException as error:
        line = shown(" ".join(error.format_message().split()))
        click.echo(f"understudy: {line}", err=True)
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("understudy: interrupted", err=True)
        return INTERRUPTED
    except OSError as error:
        click.echo(f"understudy: {codes.FILE_FAILED.say(fault=of_file(error))}", err=True)
        return FAILED
    except OutputLost:
        return UNDONE
    except Exception:
        # A fault of the program. Python would exit with 1, which is FOUND for some commands.
        traceback.print_exc()
        return UNDONE
    return result if isinstance(result, int) else DONE
