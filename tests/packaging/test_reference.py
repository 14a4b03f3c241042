"""Pages of commands, settings and codes are what the program says, and the site has each page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from tests.ha.pair import Pair

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


def test_the_page_of_commands_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / "cli.md").read_text() == REFERENCE["commands"](), "make reference"


def test_the_tables_of_settings_are_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / "configuration.md"
    assert page.read_text() == REFERENCE["settings"](), "make reference"


def test_the_page_of_codes_is_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / "error-codes.md"
    assert page.read_text() == REFERENCE["error_codes"](), "make reference"


def test_the_page_of_http_has_each_path_and_each_key_of_the_status() -> None:
    page = (ROOT / "docs" / "reference" / "http-api.md").read_text()
    source = (ROOT / "understudy" / "server" / "http.py").read_text()
    routes = re.findall(r'add_(get|post)\("([^"]+)"', source)
    assert routes
    headings = re.findall(r"^## (GET|POST) (\S+)$", page, re.MULTILINE)
    assert sorted(headings) == sorted((method.upper(), path) for method, path in routes)
    pair = Pair()
    pair.up()
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    assert {*pair[0].running.status(), "ledger"} == told


def test_each_page_has_its_place_on_the_site() -> None:
    listed = re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages)
