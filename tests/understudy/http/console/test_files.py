"""The files of the console as a browser gets them: nothing inline, nothing from elsewhere."""

from __future__ import annotations

import asyncio
import re
from importlib.resources import files
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from broker.security.authenticator import Authenticator
from broker.security.identity import default_users
from broker.security.logins import Logins
from tests.understudy.http.test_server import StandIn
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort

STATIC = Path(str(files("understudy.http.console").joinpath("static")))
IMPORTS = re.compile(r'(?:from|import)\s*"([^"]+)"')


async def asked(*paths: str) -> list[tuple[int, dict[str, str], bytes]]:
    logins = Logins(Authenticator(default_users()))
    server = HttpServer(StandIn(), logins, clock=lambda: 1.0, tick_soon=lambda: None)
    at = await server.start(HostPort("127.0.0.1", 0))
    found = []
    try:
        async with aiohttp.ClientSession() as session:
            for path in paths:
                url = URL(f"http://{at}{path}", encoded=True)
                async with session.get(url) as answer:
                    found.append((answer.status, dict(answer.headers), await answer.read()))
    finally:
        await server.close()
    return found


def test_the_page_allows_no_inline_script_and_nothing_of_other_sites() -> None:
    [(status, headers, body)] = asyncio.run(asked("/"))
    assert status == 200
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
    assert "Set-Cookie" not in headers
    page = body.decode()
    assert not re.search(r"https?://|<style|style=|\son\w+=|<script>", page)
    paths = re.findall(r'(?:href|src)="([^"]+)"', page)
    answers = asyncio.run(asked(*(f"/{path}" for path in paths)))
    assert [path for path, (status, *_) in zip(paths, answers, strict=True) if status != 200] == []


@pytest.mark.parametrize(
    "path",
    ["../routes.py", "%2e%2e%2froutes.py", "..%2f..%2f..%2f__init__.py", "/etc/passwd", "app", "app/",
     "vendor/README.md", "app/main.js%00", "%2fetc%2fpasswd", "app%2fnone.js", "APP/MAIN.JS"],
)  # fmt: skip
def test_only_files_of_the_console_are_served(path: str) -> None:
    [(status, _, body)] = asyncio.run(asked(f"/console/{path}"))
    assert status == 404
    assert b"Traceback" not in body and b"import" not in body


def test_every_module_imports_what_is_there_and_takes_nothing_from_elsewhere() -> None:
    for path in (STATIC / "app").rglob("*.js"):
        text = path.read_text()
        for target in IMPORTS.findall(text):
            assert target.startswith("."), (path, target)
            assert (path.parent / target).is_file(), (path, target)
        assert not re.search(
            r"https?://|innerHTML|dangerouslySet|\beval\(|document\.write|new Function", text
        ), path


def test_each_library_has_its_licence_and_its_version() -> None:
    vendor = STATIC / "vendor"
    named = re.findall(
        r"^\| (\w+) \| [\d.]+ \| (?:MIT|Apache-2.0) \|$", (vendor / "README.md").read_text(), re.MULTILINE
    )
    assert {name.lower() for name in named} == {path.stem for path in (vendor / "licences").glob("*.txt")}
    assert sum(path.stat().st_size for path in vendor.rglob("*.js")) < 80_000
