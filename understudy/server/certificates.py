"""The node's TLS files: read at the start, checked for changes every second, with a warning before the
certificate expires.

Owner: the daemon. Changed files are read again some seconds after the change, and at once on SIGHUP. Open
connections stay as they are; new ones use the new files. At the start, a certificate that others would refuse
is used, with a warning: the node still has its data, and can serve clients that do not check it. When files
are read again, such a certificate is refused while the one in use is better.
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
"""Seconds between two checks of the files. Each check is a `stat` of at most four files."""
WARN = 14 * 86400.0
"""Seconds before the expiry of the certificate from which on there is a warning once a day."""
AGAIN = 86400.0

_LOG = logging.getLogger("understudy")


def tls_of(settings: Settings) -> Tls | None:
    """None if the configuration has no certificate. Raises ConfigError, which names the key and the file."""
    tls = settings.tls
    if tls.certificate is None or tls.key is None:
        return None
    try:
        files = TlsFiles(tls.certificate, tls.key, tls.ca, tls.client_ca)
        hosts = [address.host for address in settings.ha.routes] if settings.ha.tls else []
        return Tls(files, _LOG.warning, list(dict.fromkeys(hosts)))
    except TlsFault as fault:
        raise ConfigError(str(fault)) from None


class CertificateWatch:
    """Keeps a `Tls` up to date on the running event loop until `stop`. `wall`: seconds since 1970."""

    def __init__(self, tls: Tls, wall: Callable[[], float] = time.time) -> None:
        self._tls = tls
        self._wall = wall
        self._warned_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        _LOG.info(codes.TLS_IN_USE.say(certificate=self._tls.described()))
        self._judge()
        self._warn()
        self._arm()

    def read(self) -> None:
        """On SIGHUP: read the files now, changed or not."""
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
        _LOG.info(codes.TLS_READ_AGAIN.say(certificate=self._tls.described()))
        self._judge()

    def _judge(self) -> None:
        """Warn if others refuse the certificate in use. `_warn` reports an expired one, repeatedly."""
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
