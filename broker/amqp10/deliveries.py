"""Deliveries of Proton's engine by their C pointers.

An object of Proton's Python binding, with its references and attributes, costs more than all that the broker
does with a delivery. So links keep the pointers themselves. Rule: a pointer is valid until its delivery is
settled here or its link is freed, and may then be that of another delivery. So `Incoming` settles each
delivery once, `Outgoing` forgets a pointer when it settles it, and neither uses a pointer after its link is
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cproton_ffi import ffi, lib
from proton import Condition, Event, Link
from proton import Delivery as Wrapped

from understudy.shared.amqp10.conditions import INTERNAL, Fault

Delivery = Any
"""A pointer `pn_delivery_t *`. Equal pointers are equal and have the same hash."""
Pointer = Any

DELIVERY: int = lib.PN_DELIVERY
"""The number of the event of a delivery."""
ACCEPTED, REJECTED, RELEASED, MODIFIED = (
    int(outcome) for outcome in (Wrapped.ACCEPTED, Wrapped.REJECTED, Wrapped.RELEASED, Wrapped.MODIFIED)
)
FLOW: int = lib.PN_LINK_FLOW
"""The same of a link's credit."""
_EOS: int = lib.PN_EOS

next_event = lib.pn_collector_peek
"""The collector's first event, false if there is none."""
drop_event = lib.pn_collector_pop
kind_of = lib.pn_event_type
delivery_of = lib.pn_event_delivery
link_of_flow = lib.pn_event_link
link_of = lib.pn_delivery_link

readable = lib.pn_delivery_readable
updated = lib.pn_delivery_updated
aborted = lib.pn_delivery_aborted
partial = lib.pn_delivery_partial
settled = lib.pn_delivery_settled
"""Whether the client has settled it."""
remote_state = lib.pn_delivery_remote_state
update = lib.pn_delivery_update
settle = lib.pn_delivery_settle
advance = lib.pn_link_advance
credit: Callable[[Pointer], int] = lib.pn_link_credit
draining = lib.pn_link_get_drain


def pointer(wrapped: Any) -> Pointer:
    """The pointer in an object of the binding."""
    return wrapped._impl


def event_of(event: Pointer) -> Event:
    """The binding's object for an event."""
    untyped: Any = Event  # its own annotations are partial
    found: Event = untyped.wrap(event)
    return found


def received(link: Pointer, delivery: Delivery) -> bytes:
    """Take the octets of the link's current delivery that have arrived."""
    size = lib.pn_delivery_pending(delivery)
    room = bytearray(size)
    got = lib.pn_link_recv(link, ffi.from_buffer(room), size)
    if got == _EOS:
        return b""
    if got < 0:
        raise Fault(INTERNAL, f"the protocol engine gives no octets of a transfer: {got}")
    return bytes(room) if got == size else bytes(room[:got])


def sent(link: Pointer, tag: bytes, payload: bytes) -> Delivery:
    """Begin a delivery with all of its octets; `advance` ends it."""
    delivery = lib.pn_delivery(link, (len(tag), ffi.from_buffer(tag)))
    if lib.pn_link_send(link, ffi.from_buffer(payload), len(payload)) < 0:
        raise Fault(INTERNAL, "the protocol engine takes no octets of a transfer")
    return delivery


def refuse(delivery: Delivery, condition: Condition | None) -> None:
    """Reject for a reason, without settling."""
    untyped: Any = Wrapped  # its own annotations are partial
    wrapped = untyped(delivery)
    wrapped.local.condition = condition
    wrapped.update(Wrapped.REJECTED)


def failed(delivery: Delivery) -> bool:
    """Whether the client's outcome `modified` counts as a failed delivery."""
    return bool(lib.pn_disposition_is_failed(lib.pn_delivery_remote(delivery)))


def undeliverable(delivery: Delivery) -> bool:
    return bool(lib.pn_disposition_is_undeliverable(lib.pn_delivery_remote(delivery)))


def link_at(link: Pointer) -> Link:
    """The binding's object for a link."""
    untyped: Any = Link
    found: Link = untyped.wrap(link)
    return found
