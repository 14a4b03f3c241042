"""Options and errors that several commands share."""

from __future__ import annotations

import errno
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from getpass import GetPassWarning
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TimeRemainingColumn

from understudy.cli.exit_codes import FAILED, UNDONE, WRONG
from understudy.client_tls import ClientTls, FileFault, parse_broker, tls_of
from understudy.config.types import parse_positive_duration
from understudy.ledger.segments import FORMS
from understudy.shared.addresses import HostPort
from understudy.shared.codes import Coded
from understudy.shared.file_errors import of_file
from understudy.shared.folders import in_the_way
from understudy.shared.text import shown

Function = TypeVar("Function", bound=Callable[..., Any])


class Failed(click.ClickException):
    """The command failed: one line with a code, exit code 1."""

    exit_code = FAILED

    def __init__(self, said: Coded) -> None:
        super().__init__(str(said))
        self.said = said


class Judge(click.Command):
    """A command about ledgers. Wrong usage or a failing file ends in one line and with UNDONE, because FOUND
    and NOTHING are verdicts."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            leave(UNDONE)
        except click.UsageError as error:
            stop(self._called(parent), error.format_message(), UNDONE)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            stop(self._called(ctx.parent), error.format_message(), UNDONE)
        except OSError as error:
            stop(self._called(ctx.parent), of_file(error), UNDONE)

    def _called(self, parent: click.Context | None) -> str:
        """The name of its group, if it is in one; else its own."""
        group = parent.info_name if parent is not None and parent.parent is not None else None
        return group or str(self.name)


class JudgeGroup(Judge, click.Group):
    """A group of such commands."""


def ledger_folders(function: Function) -> Function:
    """`LEDGER_DIR...`, as `folders`: for commands that read ledgers."""
    return click.argument(
        "folders", nargs=-1, required=True, metavar="LEDGER_DIR...", type=click.Path(path_type=Path)
    )(function)  # fmt: skip


def unreadable(folders: Iterable[Path]) -> str | None:
    """Why a ledger below the folders cannot be read; None if all can be. A ledger that is skipped silently
    would not be missed."""
    faults: list[OSError] = []
    for folder in filter(Path.is_dir, folders):
        for root, below, names in os.walk(folder, onerror=faults.append):
            called = (os.path.join(root, name) for name in (*below, *names) if name.endswith(FORMS))
            faults += filter(None, map(_unreadable, called))
    return f"cannot read {of_file(faults[0])}" if faults else None


def _unreadable(path: str) -> OSError | None:
    """Why the file at `path`, which is named like a ledger, cannot be read."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return error
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        return OSError(errno.EINVAL, "neither a file nor a link to one", path)
    if not os.access(path, os.R_OK):
        return PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return None


def no_folder(folder: Path) -> str | None:
    """Why there is neither a file nor a folder at `folder`; None if there is one."""
    try:
        os.stat(folder)
    except OSError as error:
        fault = in_the_way(folder) or error
        gone = fault.errno == errno.ENOENT and not os.path.islink(fault.filename)
        return f"no such folder: {shown(str(folder))}" if gone else of_file(fault)
    return None


def stop(command: str, text: str, status: int) -> NoReturn:
    """End `understudy COMMAND` with one line on standard error."""
    click.echo(f"understudy {command}: {' '.join(text.split())}", err=True)
    sys.exit(status)


class Wrong(click.ClickException):
    """The arguments or an input file are invalid: one line, exit code 2.

    An invalid input file has a code. Wrong usage of the command line has none: the line names the option.
    """

    exit_code = WRONG

    def __init__(self, said: Coded | str) -> None:
        super().__init__(str(said))


def address_value(ctx: click.Context, _param: click.Parameter, value: str) -> HostPort:
    """Option callback: HOST:PORT, or amqps://HOST:PORT with the files of `tls_options`."""
    try:
        address = parse_broker(value, given_tls(ctx))
        if (tls := tls_of(address)) is not None:
            tls.context()
        return address
    except FileFault as error:
        option = {"ca": "--tls-ca", "certificate": "--tls-cert", "key": "--tls-key"}[error.which]
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def address_values(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[HostPort]:
    """Option callback: `address_value` of each."""
    return [address_value(ctx, param, value) for value in values]


def given_tls(ctx: click.Context) -> ClientTls:
    """The files that `tls_options` received."""
    ca, certificate, key = (ctx.meta.get(f"understudy.{name}") for name, _ in _TLS_FILES)
    return ClientTls(ca, certificate, key)


def tls_options(function: Function) -> Function:
    """`--tls-ca`, `--tls-cert`, `--tls-key`: read by `given_tls`."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        ctx.meta[f"understudy.{param.name}"] = value

    for name, text in reversed(_TLS_FILES):
        variable = f"UNDERSTUDY_{name.upper()}"
        function = click.option(
            f"--{name.replace('_', '-')}", name, type=click.Path(exists=True), envvar=variable,
            expose_value=False, is_eager=True, callback=keep, help=f"{text} [env: {variable}]",
        )(function)  # fmt: skip
    return function


_TLS_FILES = (
    (
        "tls_ca",
        "For amqps://: PEM file of the authority of the brokers' certificates. Default: the system's.",
    ),
    ("tls_cert", "For amqps://: PEM file of your certificate, if the broker requires one."),
    ("tls_key", "PEM file of its key."),
)


def duration_value(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Option callback: `2s`, `500ms`. Returns seconds."""
    try:
        return None if value is None else parse_positive_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def broker_options(function: Function) -> Function:
    """`node_options` and `--format`: for commands that ask one node."""
    return node_options(format_option(function))


def node_options(function: Function) -> Function:
    """`-b` and `login_options`: for commands that connect to one node."""
    return click.option(
        "-b", "--broker", "address", metavar="[amqps://]HOST[:PORT]", callback=address_value,
        default="127.0.0.1:5672", show_default=True, help="The node to ask.",
    )(login_options(function))  # fmt: skip


def login_options(function: Function) -> Function:
    """`--tls-...`, `--user`, `--password`, `--timeout`."""
    options = (
        click.option(
            "--user", envvar="UNDERSTUDY_USER", default="guest", show_default=True, callback=text_value,
            help="An administrator. [env: UNDERSTUDY_USER]",
        ),
        click.option(
            "--password", envvar="UNDERSTUDY_PASSWORD", default="guest", callback=text_value,
            help="The password. Safer in the environment. [env: UNDERSTUDY_PASSWORD]",
        ),
        click.option(
            "--timeout", metavar="DURATION", callback=duration_value, default="30s", show_default=True,
            help="How long to wait for an answer.",
        ),
        tls_options,
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def format_option(function: Function) -> Function:
    return click.option(
        "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
        help="Output for people or for programs.",
    )(function)  # fmt: skip


def cell(text: str) -> str:
    """Text for a table. Names are chosen by others: escapes control characters and markup."""
    return escape(shown(text))


@contextmanager
def progress_bar(what: str, total: int, column: ProgressColumn) -> Iterator[Callable[[int], None]]:
    """A progress bar, on a terminal only. Yields a function that takes by how much the work has advanced."""
    console = Console(stderr=True)
    columns = (what, BarColumn(), column, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda amount: bar.advance(task, amount)


def stdin_option(function: Function) -> Function:
    """`--stdin`: for commands that call `given_password`."""
    return click.option(
        "--stdin", "from_stdin", is_flag=True, help="Read the password from standard input."
    )(function)  # fmt: skip


def given_password(*, from_stdin: bool) -> str:
    """The first line of standard input, or the password typed twice. Raises Wrong if it is empty or not
    UTF-8."""
    if from_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = _typed_password()
    if not password:
        raise Wrong("the password is empty")
    if not is_text(password):
        raise Wrong("the password is not UTF-8")
    return str(password)


def is_text(value: str) -> bool:
    """Whether the text is valid Unicode. Octets from the environment, the command line or a file that are not
    UTF-8 make it invalid."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_value(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Option callback for a name or a password. The error does not repeat it."""
    if not is_text(value):
        raise click.BadParameter("not UTF-8")
    return value


def _typed_password() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
        except GetPassWarning:
            raise Wrong("no terminal to type the password: use --stdin") from None


def leave(code: int) -> NoReturn:
    """End the command with an exit code, after all output."""
    raise click.exceptions.Exit(code)
