"""The pages in a real browser, at the width of a phone and of a desktop: nothing is fetched, nothing is too
wide.

Without Chromium these tests are skipped: only a browser lays out a page.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.understudy.report.stored import stored
from understudy.report import render

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=10000",
)  # fmt: skip
DEADLINE = 120
WIDTHS = (390, 1100)

# Each page is shown in a frame of exactly the intended width: a window has a minimum width.
PROBE = """<!doctype html><meta charset="utf-8"><body>%s<pre id="out"></pre><script>
addEventListener("load", () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
    const pictures = [...page.querySelectorAll("figure svg")];
    const shown = pictures.filter(svg => view.getComputedStyle(svg).display != "none");
    const written = shown.flatMap(svg => [...svg.querySelectorAll("text")]);
    const texts = written.map(text => text.getBoundingClientRect());
    const scale = shown.length && shown[0].getBoundingClientRect().width / shown[0].viewBox.baseVal.width;
    return {name: frame.name, wanted: frame.clientWidth, width: root.scrollWidth, shown: shown.length, scale,
      height: root.scrollHeight, heading: page.querySelector("h1").innerText, texts: texts.length,
      outside: texts.filter(box => box.left < -1 || box.right > frame.clientWidth + 1).length,
      fetched: view.performance.getEntriesByType("resource").map(entry => entry.name)};
  });
  document.getElementById("out").textContent = JSON.stringify(seen);
});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here to draw the pages (apt-get install chromium)")
def test_pages_fit_a_phone_and_a_desk_and_fetch_nothing(tmp_path: Path) -> None:
    names = ("proven", "violated", "not-provable", "days")
    frames = "".join(
        f'<iframe name="{name}" style="border:0;width:{width}px;height:900px" '
        f'srcdoc="{html.escape(render(stored(name)), quote=True)}"></iframe>'
        for name in names
        for width in WIDTHS
    )
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE % frames)
    seen = look(probe, tmp_path)
    assert [(page["name"], page["wanted"]) for page in seen] == [(n, w) for n in names for w in WIDTHS]
    for page in seen:
        assert page["width"] <= page["wanted"], (
            f"{page['name']} is {page['width']} px wide of {page['wanted']}"
        )
        assert page["fetched"] == []
        assert page["shown"] == 1, "one of the two pictures"
        assert page["scale"] > 0.8, "text of the picture stays legible"
        assert page["texts"] > 5 and page["outside"] == 0
        assert page["heading"] and page["height"] > 900


def look(probe: Path, scratch: Path) -> list[dict[str, Any]]:
    """The results that the probe's script wrote into its page."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={scratch / 'profile'}", "--dump-dom", probe.as_uri()]
    quiet = {**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=quiet, check=False)
    found = re.search(r'<pre id="out">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, f"no answer of the page's script: {done.stderr[-2000:]}"
    seen = json.loads(html.unescape(found[1]))
    assert isinstance(seen, list)
    return seen
