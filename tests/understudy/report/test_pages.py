"""The pages of stored results: well formed, complete, escaped, self-contained, readable in both color
schemes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import understudy.report
from tests.understudy.report.stored import RUNS, SURVEYS, stored
from understudy.report import render, write

VOID = frozenset({"meta", "br"})
STYLE = Path(understudy.report.__file__).parent / "templates" / "style.css"


class Page(HTMLParser):
    """Checks that every opened tag is closed, and gathers fetched resources, headings and captions."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.path: list[str] = []
        self.fetched: list[str] = []
        self.headings: list[str] = []
        self.tables = self.captions = self.pictures = self.titles = 0
        self.feed(text)
        assert self.path == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        links = [value or "" for name, value in attrs if name in ("src", "href")]
        self.fetched += [link for link in links if not link.startswith("#")]
        self.tables += tag == "table"
        self.captions += tag == "caption"
        self.pictures += tag == "svg"
        self.titles += tag == "title" and self.path[-1] == "svg"
        if tag not in VOID:
            self.path.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return None

    def handle_endtag(self, tag: str) -> None:
        assert self.path.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.path and self.path[-1] in ("h1", "h2"):
            self.headings.append(data)


@pytest.mark.parametrize("name", [*RUNS, *SURVEYS])
def test_a_page_is_well_formed_and_fetches_nothing(name: str) -> None:
    text = render(stored(name))
    page = Page(text)
    assert page.fetched == [] and "http" not in text and "@import" not in text and "url(" not in text
    assert page.tables == page.captions > 0
    assert page.pictures == page.titles >= 2
    assert len(text) < 400_000
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


@pytest.mark.parametrize(
    ("name", "word"), [("proven", "Proven"), ("violated", "Violated"), ("not-provable", "Not provable")]
)
def test_the_verdict_comes_first_in_words(name: str, word: str) -> None:
    answer = stored(name)
    page = Page(render(answer))
    assert page.headings[0] == word


def test_each_violation_has_its_ids_and_the_lines_that_show_it() -> None:
    answer = stored("violated")
    text = render(answer)
    violations = [f for f in answer["findings"] if f["severity"] == "violation"]
    assert len(violations) > 8
    assert text.count('<article class="card violation">') == len(violations)
    shown = [piece for finding in violations for piece in finding["evidence"]]
    assert shown and all(piece["line"] for piece in shown)
    assert text.count("<pre>") == len([p for f in answer["findings"] for p in f["evidence"] if p["line"]])
    for piece in shown:
        assert f"{piece['file']}, wseq {piece['wseq']}" in text


def test_what_is_missing_stands_with_what_to_do() -> None:
    answer = stored("not-provable")
    text = render(answer)
    assert len(answer["missing"]) > 1
    assert text.index("What is missing for a proof") < text.index("The run")
    assert "Look for a rotated file of this writer" in text


def test_outages_are_shaded_and_labelled_and_each_node_has_its_bands() -> None:
    answer = stored("proven")
    text = render(answer)
    [failover] = answer["failovers"]
    assert text.count('<rect class="outage"') == 2, "in the wide picture and in the narrow one"
    seconds = (failover["to_us"] - failover["from_us"]) / 1e6
    assert text.count(f'text-anchor="start">{seconds:.3g} s</text>') == 2
    for state in ("active", "ready", "joining"):
        assert f'<rect class="{state}"' in text
    assert "confirm latency" in text


def test_a_run_without_latency_or_queues_or_failovers_is_drawn_too() -> None:
    answer = stored("proven")
    answer |= {"latency": None, "failovers": [], "queues": [], "nodes": [], "outage_ms": None, "findings": []}
    answer["timeline"] = {"start_us": 0, "slot_us": 100_000, "sent": [], "confirmed": [], "received": []}
    assert "These ledgers name no queue" in render(answer)
    del answer["latency"]
    render(answer)


def test_names_cannot_break_out() -> None:
    answer = stored("violated")
    answer["queues"][0]["name"] = answer["nodes"][0]["node"] = "<b>&\"'"
    answer["sentence"] = "Violated: <script>alert(1)</script>"
    answer["findings"][0]["evidence"][0]["line"] = "</pre><script>"
    text = render(answer)
    assert "<script" not in text and "<b>" not in text and "&lt;b&gt;" in text
    Page(text)
    survey = stored("days")
    survey["consumers"][0]["consumer"] = survey["notes"][:0] or "<i>x</i>"
    assert "<i>x" not in render(survey)


def test_the_json_lies_beside_the_page(tmp_path: Path) -> None:
    answer = stored("days")
    write(answer, tmp_path / "month.html")
    assert {path.name for path in tmp_path.iterdir()} == {"month.html", "month.json"}


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def schemes() -> list[dict[str, str]]:
    style = STYLE.read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(blocks) == 2
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]


@pytest.mark.parametrize("scheme", schemes(), ids=["light", "dark"])
def test_text_stands_out_in_both_schemes(scheme: dict[str, str]) -> None:
    for text in ("ink", "dim", "good", "bad", "unsure"):
        for ground in ("paper", "card"):
            assert contrast(scheme[text], scheme[ground]) >= 4.5, (text, ground)
    for band in ("active", "ready", "joining"):
        assert contrast(scheme["on-band"], scheme[band]) >= 4.5, band
    for line in ("sent", "confirmed", "received", "p50", "p99", "again"):
        assert contrast(scheme[line], scheme["card"]) >= 3, line
    assert contrast(scheme["ink"], scheme["code"]) >= 4.5


def test_links_between_nodes_have_a_table() -> None:
    hop = {"queue": "ab" * 16, "name": "amq.link.<x>@leaf", "from": "hub", "to": None, "reason": "not here"}
    numbers = {"transferred": 1200, "arrived": 0, "unplaced": 0}
    text = render(stored("proven") | {"hops": [hop | numbers | {"verdict": "not provable"}]})
    assert "Federation links" in Page(text).headings
    assert "amq.link.&lt;x&gt;@leaf" in text and "1,200" in text and 'title="not here"' in text
