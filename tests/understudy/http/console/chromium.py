"""A headless Chromium with the console of a node in it. Debian's packages: chromium, chromium-driver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 20.0
"""Seconds that anything may take on a busy machine before it counts as hung."""
AXE = Path(__file__).with_name("vendor") / "axe.min.js"
_LOOK = 0.05
_LOGIN = "sessionStorage.setItem('understudy.login', 'Basic ' + btoa(arguments[0]))"
_SEEN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ['violations']}).then((found) => done(
  found.violations.filter((each) => ['serious', 'critical'].includes(each.impact))
    .map((each) => [each.id, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])));
"""


class Screen:
    """The browser, as somebody who looks at the console at `base`."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self._base = ""

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def enter(self, base: str, login: str = "guest:guest") -> None:
        """Open the console of that node, logged in."""
        self._base = base
        self.driver.get(base)
        self.driver.execute_script(_LOGIN, login)
        self.driver.refresh()

    def show(self, place: str) -> None:
        """Go to a page by its address behind the #, and wait until it has what it asks for."""
        self.driver.execute_script("location.hash = arguments[0]", place)
        self.until(lambda: not self.all(".loading") and bool(self.all("main h1")), f"page {place}")

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        """The element, once it is shown."""
        self.until(lambda: any(each.is_displayed() for each in self.all(selector)[:1]), selector)
        return self.all(selector)[0]

    def text(self, selector: str = "main") -> str:
        found = self.driver.execute_script(
            "return document.querySelector(arguments[0])?.innerText ?? ''", selector
        )
        return str(found)

    def press(self, words: str, within: str = "main") -> None:
        """Press the button that says so."""
        script = (
            "const found = [...document.querySelectorAll(arguments[0] + ' button')]"
            ".find((each) => each.innerText.trim() === arguments[1]);"
            "found?.focus(); found?.click(); return Boolean(found)"
        )
        self.until(lambda: bool(self.driver.execute_script(script, within, words)), f"button {words}")

    def key(self, key: str, within: str) -> None:
        """Press a key of the keyboard, once something there has the focus."""
        script = "return Boolean(document.activeElement.closest(arguments[0]))"
        self.until(lambda: bool(self.driver.execute_script(script, within)), f"the focus in {within}")
        ActionChains(self.driver).send_keys(key).perform()

    def fill(self, name: str, value: str) -> None:
        field = self.one(f"dialog [name='{name}']")
        field.clear()
        field.send_keys(value)

    def values(self, selector: str) -> dict[str, str]:
        """What a form would send: the boxes that are not ticked are not in it."""
        script = "return Object.fromEntries(new FormData(document.querySelector(arguments[0])))"
        found: dict[str, str] = self.driver.execute_script(script, selector)
        return found

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def shown(_: object) -> bool:
            return condition()

        try:
            WebDriverWait(self.driver, PATIENCE, poll_frequency=_LOOK).until(shown)
        except TimeoutException:
            page = self.text("body")[:2000]
            raise AssertionError(f"waited in vain for {what}, and in the end there is: {page}") from None

    def says(self, words: str, selector: str = "body") -> None:
        """Wait until the page has these words."""
        self.until(lambda: words in self.text(selector), f"{words!r} in {selector}")

    def findings(self) -> list[Any]:
        """What axe-core finds serious or critical."""
        if not self.driver.execute_script("return Boolean(window.axe)"):
            self.driver.execute_script(AXE.read_text())
        found: list[Any] = self.driver.execute_async_script(_SEEN)
        return found

    def faults(self) -> list[str]:
        """What the browser complains of since the last call: errors of scripts, breaches of the policy."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]
        ]


@contextmanager
def chromium() -> Iterator[Screen]:
    """Skips the test where there is no Chromium, unless UNDERSTUDY_TEST_TOOLS is `required`."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        if os.environ.get("UNDERSTUDY_TEST_TOOLS") == "required":
            pytest.fail("chromium or chromedriver is missing (apt-get install chromium chromium-driver)")
        pytest.skip("no chromium and chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        started.set_script_timeout(PATIENCE)
        yield Screen(started)
    finally:
        started.quit()
