"""Codes of the `etcd` authority: how etcd answers. See `understudy.shared.codes`."""

from __future__ import annotations

from understudy.shared.codes import Code

ANSWERS = Code(
    "etcd-answers",
    "etcd answers at {endpoint}",
    "The authority commits changes of the in-sync set.",
    "Nothing.",
)
UNREACHABLE = Code(
    "etcd-unreachable",
    "{faults}",
    "No endpoint of etcd answered this node in time. A primary with a backup in sync goes on; nobody is "
    "promoted.",
    "Check that etcd runs, that `ha.etcd.endpoints` are its client URLs, and the network between.",
    example="10.0.0.1:2379: connection refused; 10.0.0.2:2379: no answer within 1 s",
)
NO_QUORUM = Code(
    "etcd-no-quorum",
    "etcd at {endpoint} has no quorum: {fault}",
    "That member of etcd runs, and reaches no majority of its cluster. Nothing can be committed.",
    "Start the other members of etcd. See `etcdctl endpoint status --cluster`.",
)
NO_SPACE = Code(
    "etcd-no-space",
    "etcd at {endpoint} is full: compact and defragment it, then run `etcdctl alarm disarm`: {fault}",
    "The database of etcd has reached its quota and raised the alarm NOSPACE. A whole pair goes on, and its "
    "lease is renewed. Nobody is promoted, included or excluded, and `switchover` is refused.",
    "`etcdctl compact`, `etcdctl defrag --cluster`, then `etcdctl alarm disarm`. The pair goes on by itself.",
)
REFUSED = Code(
    "etcd-refused",
    "etcd at {endpoint} refuses this node: {fault}",
    "The user of `ha.etcd.username` cannot log in, or may not read and write below `ha.etcd.prefix`. Or etcd "
    "has users, and `ha.etcd.username` is empty.",
    "Correct the user and its password, or grant the role: `etcdctl role grant-permission`.",
)
OTHER_VERSION = Code(
    "etcd-other-version",
    "{endpoint} does not speak the API of etcd 3.4 or later: {fault}",
    "Something else listens there, an etcd before 3.4, or an etcd whose JSON gateway is switched off. Or "
    "etcd expects TLS, and the URL begins with `http`.",
    "Correct `ha.etcd.endpoints`, or upgrade etcd.",
)
UNREADABLE = Code(
    "etcd-unreadable",
    "the key {key} of etcd holds no in-sync set: {fault}",
    "Something other than a node wrote the record of who serves. The node commits nothing, and overwrites "
    "nothing.",
    "Find out who uses the prefix. Give each pair a prefix of its own, or put the in-sync set back.",
)
FAULT = Code(
    "etcd-fault",
    "etcd at {endpoint}: {fault}",
    "etcd refused a request for another reason, or the node cannot read the answer.",
    "See the log of etcd.",
)
