"""Starts Spark for the jobs: finds Java, binds to loopback, keeps logs quiet. Or connects to Spark Connect.

Called by `spark.reconcile`, `spark.insight`, `spark.watch`, the command line and the tests. The transforms
only see DataFrames.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WANTED_JAVA = (17, 21)
_CONNECT = "sc://"
_ANSWERS = 10.0
"""Seconds to wait until a master or server accepts a connection."""
ADVICE = "Spark needs Java 17 or 21, but none was found: install openjdk-17-jre-headless or set JAVA_HOME"
_INSTALL = "pip install 'understudy-amqp[spark]'"


SMALL_BYTES = 256 * 1024 * 1024
"""Up to this total size, ledgers are read faster without Java's optimizing compiler."""


class SparkUnavailable(Exception):
    """Spark cannot be started here. The text is one line that says what to install."""


def said_by_spark(error: Exception) -> str | None:
    """Spark's error in one line, without py4j's line about the call; None if the error is not Spark's."""
    if type(error).__module__.split(".")[0] not in ("pyspark", "py4j"):
        return None
    lines = [line.strip(": ") for line in str(error).splitlines()]
    found = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return f"Spark failed: {found[0] if found else type(error).__name__}"


def java_version(java: Path) -> int | None:
    """Major version of a `java` program; None if it does not run, or does not print one."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else None


def find_java(roots: tuple[Path, ...] = (Path("/usr/lib/jvm"), Path("/opt"))) -> Path:
    """Home of a Java that PySpark 4 runs on: from JAVA_HOME, then PATH, then the usual folders.

    Raises SparkUnavailable if none has the right version.
    """
    candidates = [Path(home) for home in [os.environ.get("JAVA_HOME")] if home]
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    for root in roots:
        if root.is_dir():
            candidates += sorted(path.parent.parent for path in root.glob("*/bin/java"))
    for home in candidates:
        if java_version(home / "bin" / "java") in WANTED_JAVA:
            return home
    raise SparkUnavailable(ADVICE)


def require_pyspark() -> None:
    """Raise SparkUnavailable, which says what to install, if PySpark cannot be imported."""
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise SparkUnavailable(f"PySpark is not installed: {_INSTALL}") from error


def are_small(ledgers: Iterable[Path]) -> bool:
    """Whether these ledgers are so small that an optimizing compiler does not pay off."""
    return sum(path.stat().st_size for path in ledgers) < SMALL_BYTES


def open_session(master: str | None = None, *, small: bool = False) -> SparkSession:
    """A session for `master` (default: two local threads), or the one that spark-submit has set up.

    `sc://HOST:PORT` is a Spark Connect server, which needs no Java here. `small`: see `are_small`. Raises
    SparkUnavailable if PySpark or Java is missing, or if nothing listens at `master`.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    if master is not None:
        _require_listener(master)
    if master is not None and master.startswith(_CONNECT):
        return _connected(master)
    submitted = master is None and "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    where = "local[2]" if master is None else master
    builder = SparkSession.builder.appName("understudy reconcile")
    if not submitted:
        builder = builder.master(where)
    for key, value in _options(local=where.startswith("local"), small=small).items():
        builder = builder.config(key, value)
    if where.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        for key in ("spark.driver.host", "spark.driver.bindAddress"):
            builder = builder.config(key, "127.0.0.1")
    with _QuietStart():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _require_listener(master: str) -> None:
    """Raise SparkUnavailable if nothing listens at `master`; Spark itself would try for minutes.

    One of the masters in `spark://A:7077,B:7077` is enough.
    """
    for scheme, default in ((_CONNECT, 15002), ("spark://", 7077)):
        if not master.startswith(scheme):
            continue
        for each in master.removeprefix(scheme).partition("/")[0].split(","):
            host, _, port = each.rpartition(":") if ":" in each else (each, "", str(default))
            try:
                with socket.create_connection((host.strip("[]"), int(port)), _ANSWERS):
                    return
            except (OSError, ValueError, OverflowError):
                continue
        raise SparkUnavailable(f"cannot connect to Spark at {master}")


def _connected(master: str) -> SparkSession:
    """A session of a Spark Connect server. The server has its own settings; this sets those that a client may
    set."""
    try:
        import pyspark.sql.connect.session  # noqa: F401
    except ImportError as error:
        raise SparkUnavailable(f"Spark Connect is not installed: {_INSTALL}") from error
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(master).getOrCreate()
    for key in ("spark.sql.session.timeZone", "spark.sql.execution.arrow.maxRecordsPerBatch"):
        session.conf.set(key, _options(local=False, small=False)[key])
    return session


def _options(*, local: bool, small: bool) -> dict[str, str]:
    options = {
        "spark.ui.enabled": "false",
        # To note which line of Python made a column takes four calls of the JVM for each one of the API.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # The job generates more classes than the default of 100; each use would compile them again.
        "spark.sql.codegen.cache.maxEntries": "5000",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if local:
        options |= {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions"
            + (" -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m" if small else ""),
        }
    return options


class _QuietStart:
    """Hides what the JVM's launcher prints on stderr during the start. Errors still come as exceptions.

    If the start is interrupted, its JVM is killed. PySpark deletes the file through which the two would
    connect, and the JVM ignores interrupts. It would run for ever, and keep the output open.
    """

    def __enter__(self) -> None:
        from pyspark import java_gateway

        sys.stderr.flush()
        self._saved = os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
        self._started: list[subprocess.Popen[bytes]] = []
        self._popen = vars(java_gateway)["Popen"]
        vars(java_gateway)["Popen"] = self._start

    def _start(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        made: subprocess.Popen[bytes] = self._popen(*arguments, **options)
        self._started.append(made)
        return made

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from pyspark import java_gateway

        vars(java_gateway)["Popen"] = self._popen
        os.dup2(self._saved, 2)
        os.close(self._saved)
        if kind is not None:
            for each in self._started:
                each.kill()
