"""Pages of commands, settings and codes are what the program says, and the site has each page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from broker.model.vhost.policy_rules import CONFIRM, EXCHANGE_KEYS, QUEUE_KEYS
from broker.security.authenticator import Authenticator
from broker.security.identity import default_users
from broker.security.logins import Logins
from tests.ha.pair import Pair
from tests.understudy.http.test_server import StandIn
from understudy.cli.directory import set_policy
from understudy.http.server import HttpServer

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


def test_the_page_of_commands_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / "cli.md").read_text() == REFERENCE["commands"](), "make reference"


def test_the_help_of_policies_names_each_key_in_effect() -> None:
    words = set(re.findall(r"[a-z-]+", set_policy.help or ""))
    assert {*QUEUE_KEYS, *EXCHANGE_KEYS, CONFIRM} <= words


def test_the_tables_of_settings_are_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / "configuration.md"
    assert page.read_text() == REFERENCE["settings"](), "make reference"


def test_the_page_of_codes_is_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / "error-codes.md"
    assert page.read_text() == REFERENCE["error_codes"](), "make reference"


def test_the_page_of_amqp_commands_is_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / "commands.md"
    assert page.read_text() == REFERENCE["command_table"](), "make reference"


def test_the_page_of_http_has_each_path_and_each_key_of_the_status() -> None:
    page = (ROOT / "docs" / "reference" / "http-api.md").read_text()
    rows = (ROOT / "docs" / "reference" / "rabbitmq-http-api.md").read_text()
    headings = re.findall(r"^## (GET|POST) (\S+)$", page, re.MULTILINE)
    for methods, path in re.findall(r"^\| ((?:`[A-Z]+`,? ?)+) \| `(/[^`]+)` \|", rows, re.MULTILINE):
        headings += [(method, path) for method in re.findall(r"[A-Z]+", methods)]
    server = HttpServer(
        StandIn(), Logins(Authenticator(default_users())), clock=lambda: 1.0, tick_soon=lambda: None
    )
    assert sorted(headings) == sorted(
        (route.method, re.sub(r":[^}]*}", "}", route.path)) for route in server.routes()
    )
    pair = Pair()
    pair.up()
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    assert {*pair[0].running.status(), "ledger"} == told


def test_each_page_has_its_place_on_the_site() -> None:
    listed = re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages)
