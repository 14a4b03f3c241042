"""Check an installed wheel: `python -P scripts/compiled/check_wheel.py` in the environment that has it.

A broker of that environment runs compiled modules, confirms messages and delivers them; with
`UNDERSTUDY_PURE=1` it runs plain Python, and does the same. Nothing of the source tree is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kombu import Connection, Consumer, Queue

BODIES = [{"order": number} for number in range(100)]
PATIENCE = 30


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="understudy-wheel-") as folder:
        _check(Path(folder, "compiled"), "compiled modules", {})
        _check(Path(folder, "pure"), "plain Python", {"UNDERSTUDY_PURE": "1"})


def _check(folder: Path, expected: str, environment: dict[str, str]) -> None:
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "understudy", "serve", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(folder / "data")]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("UNDERSTUDY_")}
    with subprocess.Popen(
        command, cwd=folder, env=inherited | environment, stderr=subprocess.PIPE, text=True
    ) as broker:
        try:
            log = _until_started(broker)
            (build,) = [line for line in log if "(node-build)" in line]
            if f"runs {expected}" not in build:
                raise SystemExit(f"not {expected}: {build.strip()}")
            (address,) = [line.split()[-2] for line in log if "AMQP on " in line]
            _messages(address)
        finally:
            broker.kill()
    print(f"{expected}: {len(BODIES)} messages were confirmed and consumed")


def _until_started(broker: subprocess.Popen[str]) -> list[str]:
    assert broker.stderr is not None
    log: list[str] = []
    for line in broker.stderr:
        log.append(line)
        if "(node-started)" in line:
            return log
    raise SystemExit(f"the broker did not start: {''.join(log)}")


def _messages(address: str) -> None:
    got: list[object] = []
    queue = Queue("orders", durable=True)
    with Connection(
        f"amqp://guest:guest@{address}//", transport_options={"confirm_publish": True}
    ) as connection:
        producer = connection.Producer()
        for body in BODIES:
            producer.publish(body, routing_key=queue.name, declare=[queue])
        with Consumer(
            connection, [queue], callbacks=[lambda body, message: (got.append(body), message.ack())]
        ):
            while len(got) < len(BODIES):
                connection.drain_events(timeout=PATIENCE)
    if got != BODIES:
        raise SystemExit(f"{address}: other messages came back than were sent")


if __name__ == "__main__":
    main()
