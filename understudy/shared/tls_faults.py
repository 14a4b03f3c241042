"""Explains TLS errors in a few words for the log. Called by the shell."""

from __future__ import annotations

import ssl

_NOT_TLS = frozenset(
    ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "BAD_RECORD_TYPE",
     "PACKET_LENGTH_TOO_LONG", "RECORD_TOO_SMALL")
)  # fmt: skip
_TOO_OLD = frozenset(("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW"))


def fault_of(error: BaseException, *, open_: bool = False) -> str:
    """Why TLS with the other end, called "it", failed. `open_`: the handshake was complete."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {_lower(error.verify_message)}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in _NOT_TLS and not open_:
            return "what it sent is not TLS"
        if reason in _TOO_OLD:
            return "it does not support TLS 1.2 or above"
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "it showed no certificate, and needs one here"
        if "_ALERT_" in reason:
            return f"it refuses this node: {words(reason.partition('_ALERT_')[2])}"
        if isinstance(error, ssl.SSLEOFError) or "EOF" in reason:
            return "it left in the middle of the TLS handshake"
        what = "what it sent is not the TLS that was agreed on" if open_ else "the TLS handshake failed"
        return f"{what}: {words(reason) or error}"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "it left in the middle of the TLS handshake"
    if isinstance(error, TimeoutError | ConnectionAbortedError):
        return "it did not finish the TLS handshake in time"
    return f"the TLS handshake failed: {error}"


def words(reason: str | None) -> str:
    """OpenSSL's name of an error, as words for a sentence."""
    return (reason or "").lower().replace("_", " ")


def _lower(text: str) -> str:
    text = text.rstrip(".")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
