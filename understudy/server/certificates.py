"""The node's TLS as configured: read at the start, looked at every second, said when it runs out.

Owner: the daemon. The files are read again by themselves some seconds after they have changed, and at once at
SIGHUP; connections that are open live on, new ones get what is new. A certificate that others would refuse is
taken at the start, with a warning: its node can still serve whoever does not look, and its data. Read again
it is not, while the one in use is better.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from broker.security.tls import Tls, TlsFault, TlsFiles
from understudy import codes
from understudy.config.settings import ConfigError, Settings

LOOK = 1.0
"""Seconds between two looks at the files; each costs a `stat` of four files at most."""
WARN = 14 * 86400.0
"""A certificate that is good for less than so many seconds is spoken of, once a day."""
AGAIN = 86400.0

_LOG = logging.getLogger("understudy")


def tls_of(settings: Settings) -> Tls | None:
    """None: nothing of the configuration needs any. Raises ConfigError, which names the key and the file."""
    tls = settings.tls
    if tls.certificate is None or tls.key is None:
        return None
    try:
        files = TlsFiles(tls.certificate, tls.key, tls.ca, tls.client_ca)
        hosts = [broker.host for broker in settings.ha.brokers] if settings.ha.tls else []
        return Tls(files, _LOG.warning, list(dict.fromkeys(hosts)))
    except TlsFault as fault:
        raise ConfigError(str(fault)) from None


class CertificateWatch:
    """Keeps a `Tls` up to date on the event loop that runs, until `stop`. `wall`: seconds since 1970."""

    def __init__(self, tls: Tls, wall: Callable[[], float] = time.time) -> None:
        self._tls = tls
        self._wall = wall
        self._warned_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        _LOG.info("TLS by %s", self._tls.described())
        self._judge()
        self._warn()
        self._arm()

    def read(self) -> None:
        """At SIGHUP: now, whether they have changed or not."""
        if self._tls.read(self._wall()):
            self._renewed()
        self._warn()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK, self._look)

    def _look(self) -> None:
        if self._tls.look(self._wall()):
            self._renewed()
        self._warn()
        self._arm()

    def _renewed(self) -> None:
        self._warned_at = float("-inf")
        _LOG.info("TLS files were read again: %s", self._tls.described())
        self._judge()

    def _judge(self) -> None:
        """Of what is in use. That it has run out, `_warn` says, and goes on saying."""
        now = self._wall()
        flaw = self._tls.flaw(now)
        if flaw is not None and now < self._tls.expires_at:
            _LOG.warning(codes.TLS_REFUSED_BY_OTHERS.say(fault=flaw))

    def _warn(self) -> None:
        now = self._wall()
        left = self._tls.expires_at - now
        if left < WARN and now - self._warned_at >= AGAIN:
            self._warned_at = now
            described = self._tls.described()
            if left <= 0:
                _LOG.warning(codes.TLS_EXPIRED.say(certificate=described))
            else:
                _LOG.warning(codes.TLS_EXPIRES.say(certificate=described, days=left / 86400))
