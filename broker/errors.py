"""The broker's error tree: the class decides what is closed, and carries the AMQP reply code.

`ChannelError` closes a channel, `ConnectionError_` a connection. The model and the protocol machine raise
both without class and method ids; the channel that executes the method fills them in.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.shared.text import short


class AmqpError(Exception):
    """An error that is reported to the peer. `code`: the AMQP 0-9-1 reply code (section 1.2 of its XML)."""

    code = 541
    label = "INTERNAL_ERROR"

    def __init__(self, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.class_id = class_id
        self.method_id = method_id
        self.logged = False
        """A line of the log has said it already."""

    @property
    def reply_text(self) -> str:
        """`LABEL - text`, cut to the size of a short string."""
        return short(f"{self.label} - {self.text}")


class ChannelError(AmqpError):
    """Closes the channel; the connection stays open."""


class ConnectionError_(AmqpError):
    """Closes the connection."""


class ContentTooLarge(ChannelError):
    code, label = 311, "CONTENT_TOO_LARGE"


class AccessRefused(ChannelError):
    code, label = 403, "ACCESS_REFUSED"


class NotFound(ChannelError):
    code, label = 404, "NOT_FOUND"


class ResourceLocked(ChannelError):
    code, label = 405, "RESOURCE_LOCKED"


class DeadLettersPending(ResourceLocked):
    """A queue is about to be deleted, but messages that it held must first become dead letters. `after`:
    takes a callback for that time."""

    def __init__(self, text: str, after: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(text)
        self.after = after


class PreconditionFailed(ChannelError):
    code, label = 406, "PRECONDITION_FAILED"


class ConnectionForced(ConnectionError_):
    code, label = 320, "CONNECTION_FORCED"


class LoginRefused(ConnectionError_):
    """`cause`: for the log only, because the peer is not to learn which names exist."""

    code, label = 403, "ACCESS_REFUSED"

    def __init__(self, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(text, class_id, method_id)
        self.cause = ""


class FrameError(ConnectionError_):
    code, label = 501, "FRAME_ERROR"


class SyntaxError_(ConnectionError_):
    code, label = 502, "SYNTAX_ERROR"


class CommandInvalid(ConnectionError_):
    code, label = 503, "COMMAND_INVALID"


class BadChannel(ConnectionError_):
    code, label = 504, "CHANNEL_ERROR"


class UnexpectedFrame(ConnectionError_):
    code, label = 505, "UNEXPECTED_FRAME"


class ResourceError(ConnectionError_):
    code, label = 506, "RESOURCE_ERROR"


class NotAllowed(ConnectionError_):
    code, label = 530, "NOT_ALLOWED"


class NotImplemented_(ConnectionError_):
    code, label = 540, "NOT_IMPLEMENTED"


class InternalError(ConnectionError_):
    code, label = 541, "INTERNAL_ERROR"
