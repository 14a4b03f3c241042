"""Understudy: a hot-standby AMQP 0-9-1 broker pair in which the standby knows every line.

The program itself lives here: command line, configuration, daemon, HTTP, client kit, ledger and demo. It is
the only package that imports both the broker and the replication layer.
"""

from __future__ import annotations

__version__ = "0.1.0"
