"""Understudy: an AMQP 0-9-1 and 1.0 broker with a synchronous hot standby.

This package holds the program: command line, configuration, daemon, HTTP, client kit, ledger and demo. It is
the only package that imports both the broker and the replication layer.
"""

from __future__ import annotations

__version__ = "0.1.0"
