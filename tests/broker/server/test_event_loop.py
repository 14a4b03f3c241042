"""A tick runs in the turn of the loop that had its input, after all of that input."""

from __future__ import annotations

import asyncio
import socket

from broker.server.event_loop import TickLoop


def test_the_callback_follows_all_input_of_its_turn() -> None:
    seen: list[str] = []
    pairs = [socket.socketpair() for _ in range(3)]

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TickLoop)
        done = asyncio.Event()

        def readable(end: socket.socket) -> None:
            seen.append(f"input {end.recv(10).decode()}, before the tick {loop.handles_input}")
            loop.call_soon(seen.append, "the next turn")

        def tick() -> None:
            seen.append(f"tick, the callback is to come {loop.handles_input}")
            if len(seen) > 2:
                loop.call_soon(done.set)

        loop.after_input(tick)
        for here, there in pairs:
            loop.add_reader(here, readable, here)
            there.send(b"x")
        await asyncio.wait_for(done.wait(), 10)
        for here, _ in pairs:
            loop.remove_reader(here)

    with asyncio.Runner(loop_factory=TickLoop) as runner:
        runner.run(run())
    for end in (end for pair in pairs for end in pair):
        end.close()
    inputs = ["input x, before the tick True"] * 3
    assert seen == [*inputs, "tick, the callback is to come False", *["the next turn"] * 3]
