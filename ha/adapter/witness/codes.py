"""What the driver of the witness says: see understudy.shared.codes."""

from __future__ import annotations

from understudy.shared.codes import Code

ANSWERS = Code(
    "witness-answers",
    "the witness answers at {address}",
    "The witness commits changes of the in-sync set.",
    "Nothing.",
)
UNREACHABLE = Code(
    "witness-unreachable",
    "the witness at {address} is not reached: {cause}",
    "The witness did not answer this node in time. A primary with a backup in sync goes on; nobody is "
    "promoted.",
    "Check that the witness runs, that `ha.witness` is its address for AMQP, and the network between.",
)
REFUSED = Code(
    "witness-refused",
    "the witness at {address} refuses this node: {cause}",
    "The login failed, or the broker there is no witness for this pair.",
    "Correct `ha.witness_name` or `ha.witness_password` of this node: the name is one of the witness's "
    "`ha.witness_for`, and the password its `ha.witness_password`. Restart this node.",
)
CANNOT_ANSWER = Code(
    "witness-cannot-answer",
    "the witness at {address} gives no answer: {cause}",
    "The witness runs, and cannot keep the in-sync set, or does not understand this node.",
    "Act on what the sentence says.",
)
