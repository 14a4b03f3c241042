"""Programs that ask a broker now and then how long its queues are: Flower, and KEDA's scaler."""

from __future__ import annotations

import asyncio
from typing import Any

from flower.utils.broker import Broker

from tests.interop.management.place import ROOT, Place, in_path, until


def flower_shows_queues(place: Place) -> None:
    """The fields of its broker page."""
    name = f"flower{place.run}"
    place.does("PUT", f"queues/{ROOT}/{name}", {"durable": True}, 201)
    with place.channel() as channel:
        for _ in range(3):
            channel.basic_publish("", name, b"x")
        channel.basic_get(name)
        url = f"amqp://{place.user}:{place.password}@{place.amqp}//"
        broker = Broker(url, f"http://{place.user}:{place.password}@{place.http}/api/")

        def counted() -> bool:
            (line,) = asyncio.run(broker.queues([name, "another"]))
            shown = [line.get(key) for key in ("messages", "messages_unacknowledged", "messages_ready")]
            return shown == [3, 1, 2] and line["consumers"] == 0

        until(counted)
    place.does("DELETE", f"queues/{ROOT}/{name}")


def keda_scales(place: Place) -> None:
    """Length, and the rate of publishing, of one queue and of those that a pattern names."""
    name = f"keda.{place.run}"
    place.does("PUT", f"queues/{ROOT}/{name}", {"durable": True}, 201)
    one = f"queues/{ROOT}/{in_path(name)}"
    words = f"page=1&use_regex=true&pagination=false&name={in_path('^keda[.]')}&page_size=100"
    with place.channel() as channel:

        def grows() -> bool:
            channel.basic_publish("", name, b"x")
            line = place.get(one)
            rate = line.get("message_stats", {}).get("publish_details", {}).get("rate", 0)
            return line.get("messages", 0) >= 2 and line["messages_unacknowledged"] == 0 and rate > 0

        until(grows)
        found = place.get(f"queues/{ROOT}?{words}")
        everywhere = place.get(f"queues?{words}")
    assert _one(found["items"], name)["messages"] >= 2
    assert _one(everywhere["items"], name)["vhost"] == "/"
    assert (found["page"], found["page_count"], found["page_size"]) == (1, 1, 100)
    assert found["filtered_count"] == found["item_count"] == 1 <= found["total_count"]
    place.does("DELETE", one)
    assert place.ask("GET", one).status == 404


def _one(lines: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (line,) = [line for line in lines if line["name"] == name]
    return line
