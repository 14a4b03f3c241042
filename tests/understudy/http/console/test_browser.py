"""The console in a real browser, at a real pair: every page, what can be done there, and a failover that is
seen without a reload."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest
from selenium.webdriver.common.keys import Keys

from tests.failover.nodes.pair import Pair
from tests.ports import free_ports
from tests.understudy.http.console.chromium import Screen, chromium

pytestmark = pytest.mark.system

HTML = "<img src=x onerror=window.hacked=1>"
EVIL = f"{HTML}\u202e\x1b[31m"
"""A name that would run as HTML, turns the direction of text, and colours a terminal."""
_NAMED = quote(EVIL, safe="")
PAGES = (
    "overview", "queues", "exchanges", "bindings", "connections", "channels", "consumers", "vhosts", "users",
    "policies", "limits", "events", "quarantine", "federation", "ledger", "reports",
    f"queues/%2F/{_NAMED}", f"exchanges/%2F/{_NAMED}", f"users/{quote(HTML, safe='')}",
)  # fmt: skip
GUEST = f"Basic {b64encode(b'guest:guest').decode()}"


class Consoles:
    """A pair with the console of each node."""

    def __init__(self, pair: Pair, ports: dict[str, int]) -> None:
        self.pair = pair
        self._ports = ports

    def at(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def put(self, name: str, path: str, body: dict[str, Any], method: str = "PUT") -> None:
        request = urllib.request.Request(
            f"{self.at(name)}/api/{path}", json.dumps(body).encode(), method=method
        )
        request.add_header("Authorization", GUEST)
        request.add_header("Content-Type", "application/json")
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read()!r}") from None


@pytest.fixture(scope="module")
def consoles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    left, right = free_ports(2)
    with Pair(tmp_path_factory.mktemp("console")) as pair:
        pair.own = {"left": (f"broker.http=127.0.0.1:{left}",), "right": (f"broker.http=127.0.0.1:{right}",)}
        yield Consoles(pair.whole(), {"left": left, "right": right})


@pytest.fixture(scope="module")
def screen() -> Iterator[Screen]:
    with chromium() as found:
        yield found


@pytest.fixture
def client(consoles: Consoles) -> Iterator[Any]:
    """A client whose every name is evil."""
    address = consoles.pair.addresses["left"]
    parameters = pika.ConnectionParameters(
        address.host, address.port, client_properties={"connection_name": EVIL, EVIL: EVIL}
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.exchange_declare(EVIL, "topic")
        channel.queue_declare(EVIL, arguments={"x-message-ttl": 600_000})
        channel.queue_bind(EVIL, EVIL, EVIL, arguments={EVIL: EVIL})
        channel.basic_publish(EVIL, EVIL, EVIL.encode())
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(EVIL, lambda *_: None, consumer_tag=EVIL)
        yield channel


def test_every_page_shows_names_as_text_and_has_no_serious_finding(
    consoles: Consoles, screen: Screen, client: Any
) -> None:
    name = quote(HTML, safe="")
    consoles.put("left", f"users/{name}", {"password": "x", "tags": "<b>"})
    consoles.put("left", f"permissions/%2F/{name}", {"configure": "<b>", "write": "", "read": ".*"})
    consoles.put("left", f"policies/%2F/{name}", {"pattern": "<script>", "definition": {"max-length": 9}})
    screen.size(1280, 900)
    screen.enter(consoles.at("left"))
    found: dict[str, Any] = {}
    for page in PAGES:
        for width, dark in ((1280, False), (390, True)):
            screen.size(width, 900, dark=dark)
            screen.show(page)
            wide = screen.driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
            if found_here := [*screen.faults(), *(["wider than the screen"] if wide > 0 else [])]:
                found[f"{page} at {width}"] = found_here
        if serious := screen.findings():
            found[page] = serious
    assert found == {}
    assert screen.driver.execute_script("return window.hacked") is None
    assert screen.all("main img, main script") == []


def test_a_queue_is_made_filled_read_emptied_and_deleted_by_hand(consoles: Consoles, screen: Screen) -> None:
    screen.size(1280, 900)
    screen.enter(consoles.at("left"))
    screen.show("queues")
    screen.press("Declare a queue")
    screen.fill("name", "by hand/%2f")
    screen.fill("arguments", "x-max-length = 100")
    screen.press("Declare", "dialog")
    screen.says("by hand/%2f", "main table")
    screen.show(f"queues/%2F/{quote('by hand/%2f', safe='')}")
    for body in ("first", "<b>second</b>"):
        screen.press("Publish")
        screen.fill("payload", body)
        screen.press("Publish", "dialog")
        screen.until(lambda: not screen.all("dialog"), "the dialog to close")
    screen.press("Get")
    screen.press("Get", "dialog")
    screen.says("<b>second</b>", ".messages")
    screen.press("Purge")
    screen.says("This cannot be undone", "dialog")
    screen.key(Keys.ESCAPE, "dialog")
    screen.until(lambda: not screen.all("dialog"), "Escape to close the dialog")
    screen.key(Keys.ENTER, "main")  # the button has the focus again
    screen.press("Purge", "dialog")
    screen.says("is empty", ".notices")
    screen.press("Delete")
    screen.press("Delete", "dialog")
    screen.says("is deleted", ".notices")
    assert screen.faults() == []


def test_a_dialog_keeps_what_is_typed_while_the_console_changes_behind_it(
    consoles: Consoles, screen: Screen
) -> None:
    """Each event of the node renders the console and its dialog again. So does a change of the page."""
    screen.size(1280, 900)
    screen.enter(consoles.at("left"))
    screen.show("exchanges")
    screen.press("Declare an exchange")
    screen.fill("name", "typed")
    screen.fill("arguments", "alternate-exchange = rest")
    screen.one("dialog [name='durable']").click()
    screen.one("dialog [name='type']").send_keys("topic")
    expected = {"name": "typed", "vhost": "/", "type": "topic", "arguments": "alternate-exchange = rest"}
    assert screen.values("dialog form") == expected
    screen.show("queues")
    screen.says("Queues", "main h1")
    assert screen.values("dialog form") == expected
    screen.press("Cancel", "dialog")


def test_a_wrong_login_is_refused_in_words(consoles: Consoles, screen: Screen) -> None:
    screen.driver.get(consoles.at("left"))
    screen.driver.execute_script("sessionStorage.clear()")
    screen.driver.refresh()
    for password, words in (("no", "does not know this name"), ("guest", "Overview")):
        screen.one("#name").clear()
        screen.one("#name").send_keys("guest")
        screen.one("#password").clear()
        screen.one("#password").send_keys(password + "\n")
        screen.says(words)


def test_a_user_without_the_tag_monitoring_sees_what_the_tags_allow(
    consoles: Consoles, screen: Screen
) -> None:
    consoles.put("left", "users/small", {"password": "x", "tags": "management"})
    consoles.put("left", "permissions/%2F/small", {"configure": "", "write": "", "read": ".*"})
    screen.size(1280, 900)
    screen.enter(consoles.at("left"), "small:x")
    screen.show("overview")
    screen.says("The pair is whole.", "#verdict")
    assert "Switch over" not in screen.text()
    screen.show("users")
    screen.says("small is not an administrator", ".trouble")
    assert screen.faults() == []


def test_a_failover_is_seen_without_a_reload(consoles: Consoles, screen: Screen) -> None:
    """The page of the backup. It says where the primary is, sees it die, and serves after a promotion."""
    screen.size(1280, 900)
    screen.enter(consoles.at("right"))
    screen.show("overview")
    screen.says("this page is read-only. The primary is left")
    screen.driver.execute_script("window.kept = true")
    consoles.pair.kill("left")
    screen.says("No node serves.", "#verdict")
    screen.press("Promote this node")
    screen.press("Promote", "dialog")
    screen.says("right · active", "#standing")
    screen.says("The backup cannot be reached.", "#verdict")
    consoles.pair.start("left")
    screen.says("The pair is whole.", "#verdict")
    screen.press("Switch over")
    screen.says("No confirmed message is lost", "dialog")
    screen.press("Switch over", "dialog")
    screen.says("right · ready", "#standing")
    screen.says("this page is read-only. The primary is left")
    assert screen.driver.execute_script("return window.kept") is True
    assert screen.faults() == []


def test_the_page_says_when_its_node_is_gone_and_goes_on_when_it_is_back(
    consoles: Consoles, screen: Screen
) -> None:
    screen.enter(consoles.at("right"))
    screen.show("overview")
    screen.says("The pair is whole.", "#verdict")
    consoles.pair.kill("right")
    screen.says("This node has not answered since")
    consoles.pair.start("right")
    screen.until(lambda: "has not answered" not in screen.text("body"), "the node to be back")
    screen.says("right · ready", "#standing")
