"""`make bench-federation`: what it says of figures, and a small run of real nodes over a line."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner

from bench.federation.__main__ import PAPER, main
from bench.federation.measures import QUICK, SATELLITE, Effort, between_pairs, bindings, near, satellite
from bench.federation.nets import Distance, Understudies
from bench.federation.report import LINES, SYSTEMS, svg, table

TINY = Effort(0.2, 1_000, 2_000, 300, 1.0, (300, 0))


def test_a_table_has_medians_and_leaves_out_what_was_not_measured() -> None:
    runs = {("transient rate", "understudy"): [3.0, 100_000.0, 90_000.0], ("octets 1", "rabbitmq"): [412.6]}
    lines = table(runs).splitlines()
    assert lines[0] == "| figure | goal | Understudy | RabbitMQ, federation |"
    assert lines[2:] == [
        "| one hop, transient: messages/s | 300,000 | 90,000 | - |",
        "| octets a message on the line, 256 B, 1 subscriber | 310 | - | 413 |",
    ]


def test_a_plot_has_a_bar_for_each_rate_and_each_cpu_time() -> None:
    every = {(figure, name): [100.0] for figure, _, _ in LINES for name in SYSTEMS}
    drawn = ElementTree.fromstring(svg(every, "about <this>"))
    bars = [each for each in drawn.iter("{http://www.w3.org/2000/svg}rect") if each.get("height") == "11"]
    assert len(bars) == 2 * (4 + 3 + 3)


def test_unknown_names_are_wrong() -> None:
    for options in (["--systems", "nothing"], ["--only", "nothing"]):
        done = CliRunner().invoke(main, options)
        assert done.exit_code == 2 and "nothing" in done.output


def test_the_paper_has_a_place_for_the_table() -> None:
    text = PAPER.read_text()
    assert text.index("<!-- federation: table -->") < text.index("<!-- end of federation -->")
    assert QUICK.octets < Effort().octets


@pytest.mark.system
def test_figures_of_real_nodes_over_lines() -> None:
    net = Understudies.start(os.environ, Distance(), pairs=False)
    try:
        found = near(net, TINY, False)
    finally:
        net.close()
    assert 256 < found["octets 1"] < 400
    assert found["octets 10"] == pytest.approx(found["octets 1"], rel=0.02)
    assert found["octets 1000"] == pytest.approx(found["octets 1"], rel=0.1)  # of a tenth of the messages
    assert found["outage rate"] > 500 and found["idle octets/s"] < 200
    net = Understudies.start(os.environ, Distance(0.05), pairs=False)
    try:
        found = bindings(net, TINY, False)
    finally:
        net.close()
    assert (
        found["bindings count"] == 300 and found["bindings first s"] > 0.5 and found["bindings again s"] > 0.4
    )
    net = Understudies.start(os.environ, SATELLITE, pairs=False)
    try:
        found = satellite(net, TINY, False)
    finally:
        net.close()
    assert 2.4 < found["satellite connects s"] < 10 and 10 < found["satellite share"] <= 101


@pytest.mark.system
def test_figures_of_real_pairs() -> None:
    net = Understudies.start(os.environ, None, pairs=True)
    try:
        found = between_pairs(net, TINY, False)
    finally:
        net.close()
    assert found["pairs rate"] > 500 and found["pairs up us"] > 0 and found["pairs down us"] > 0
