"""Codes of a node's answers to operators, besides the refusals of its core. See `understudy.shared.codes`."""

from __future__ import annotations

from understudy.shared.codes import Code

# -- any command

PACEMAKER_DECIDES = Code(
    "pacemaker-decides",
    "Pacemaker decides who serves here, and would undo it: ask Pacemaker (crm resource move, or pcs "
    "resource move; crm node standby)",
    "`ha.authority` is `pacemaker`, and somebody asked the node to promote, demote or switch over.",
    "Ask Pacemaker: see the runbook.",
)
BAD_ARGUMENTS = Code(
    "command-bad-arguments",
    "{fault}",
    "The arguments of a management command are wrong. Nothing was changed.",
    "Correct them as the reason says.",
    example="'from' must be the number of a queue, from 0",
)
UNKNOWN_COMMAND = Code(
    "command-unknown",
    "there is no command {command!r} here",
    "The node does not have this management command: it runs another version.",
    "Compare the versions of the command line and the node.",
)
NOT_A_QUESTION = Code(
    "command-unreadable",
    "not a management question",
    "The payload of the management method is no JSON object with `command` and `args`.",
    "Correct the client.",
)
NOT_SERVING = Code(
    "node-not-serving",
    "{node} does not serve: {reason}{primary}",
    "The command needs the primary, and this node is not the primary or its leadership lease has expired.",
    "Ask the primary, which the reason names if the node knows it.",
)

# -- the authority

AUTHORITY_NOT_ASKED = Code(
    "authority-not-asked",
    "it has not been asked yet",
    "The node has just started, and has not had an answer of the authority yet.",
    "Wait a few seconds.",
)

# -- definitions, users, permissions, policies

DEFINITIONS_CHANGED = Code(
    "definitions-changed",
    "definitions were changed while they were listed",
    "A client declared or deleted something between two pieces of a listing.",
    "List again from the beginning. `understudy definitions export` does so by itself.",
)
CHANGE_REFUSED = Code(
    "change-refused",
    "{fault}",
    "A change of virtual hosts, users, permissions or policies is wrong. Nothing was changed.",
    "Correct it as the reason says.",
    example="user 'guest': this user is made in the configuration of a, and is changed there",
)
CHANGE_UNSURE = Code(
    "change-unsure",
    "{node} stopped serving meanwhile: ask the primary whether it is so now",
    "The node stopped serving before the change was safe on every disk. It may hold or not.",
    "List what there is at the primary, and make the change again if it is missing.",
)

# -- operations on queues, exchanges, bindings, messages and connections

OPERATION_REFUSED = Code(
    "operation-refused",
    "{fault}",
    "The broker refuses an operation, for the same reason as it would refuse a client's method.",
    "Correct it as the reason says. The key `amqp` of the answer has AMQP's reply code.",
    example="NOT_FOUND - no queue 'orders' in vhost '/'",
)
OPERATION_DONE = Code(
    "operation-done",
    "{user} from {source}: {command} {names}",
    "An operator has changed an object, published a message or closed a connection, by a command over AMQP.",
    "Nothing. Over HTTP the line is `http-change`.",
)
OPERATIONS_BUSY = Code(
    "operations-busy",
    "{most} operations are under way, and there may be no more",
    "Too many operations of operators wait for disks, backups or dead letters.",
    "Ask again later. If this lasts, look at what `understudy status` waits for.",
)

# -- queue mirrors

MIRROR_BAD_ARGUMENTS = Code(
    "mirror-bad-arguments",
    "{fault}",
    "The source or the name of the queue is wrong.",
    "Correct it as the reason says.",
    example="queue name 'amq.x' contains reserved prefix 'amq.*'",
)
MIRROR_IN_PAIR = Code(
    "mirror-in-pair",
    "{node} belongs to a pair; only a broker of its own follows another's queue",
    "A node of a pair cannot mirror a queue of another broker.",
    "Ask a standalone broker.",
)
MIRROR_IN_CLEAR = Code(
    "mirror-in-clear",
    "{address}: {fault}",
    "The node would send its password to the source unencrypted.",
    "Set `peerings.NAME.tls`, or `ha.tls` without a peering. On a network that you trust, you may allow it "
    "with `auth.allow_plain_without_tls`.",
    example="192.0.2.9:5672: ha.password would go there in the clear: set ha.tls for this broker, or, on a "
    "network that you trust, auth.allow_plain_without_tls",
)
MIRROR_UNDER_WAY = Code(
    "mirror-under-way",
    "queue '{queue}' is being asked for already",
    "Another `understudy replicate` of the same queue waits for its answer.",
    "Wait, and look at `understudy replicate --list`.",
)
MIRROR_NAME_TAKEN = Code(
    "mirror-name-taken",
    "there is a queue '{name}' here already: delete it, or give another --name",
    "There is a queue of that name here, which is no mirror.",
    "Delete it, or give the mirror another name with `--name`.",
)
MIRROR_FOLLOWS_ANOTHER = Code(
    "mirror-follows-another",
    "queue '{name}' follows '{queue}' of {addresses} already",
    "There is a mirror of that name here, and it follows another queue.",
    "Stop it first (`understudy replicate --stop`), or give the mirror another name with `--name`.",
)
MIRROR_REFUSED = Code(
    "mirror-refused",
    "{why}",
    "The source refused, has no such queue, or is not reached. There is no mirror.",
    "Act on the reason, which names the address. For 403, correct the user and password of the peering "
    "(`peerings.NAME`), or without one set the same `ha.password` on both brokers.",
    example="192.0.2.9:5672: nobody answers there",
)
MIRROR_NOT_FOUND_YET = Code(
    "mirror-not-found-yet",
    "'{name}' looks for '{queue}' at {addresses} from now on, and has not found it yet: {why}",
    "The mirror follows new addresses, as asked, and does not reach the queue there.",
    "Check the addresses. The mirror keeps trying, and keeps what it has.",
)
MIRROR_NONE = Code(
    "mirror-none",
    "there is no queue '{queue}' that follows another broker's",
    "The queue to stop is no mirror.",
    "List the mirrors: `understudy replicate --list`.",
)
MIRROR_NOT_SERVING = Code(
    "mirror-not-serving",
    "{node} does not serve",
    "The node that was asked to end a mirror does not serve.",
    "Ask again once it serves.",
)

# -- log events that need no action of themselves

NODE_STOPS = Code(
    "node-stops",
    "stops: {why}",
    "The node ends by itself, because going on could lose or fork data. It writes nothing more.",
    "Act on the reason. systemd or Pacemaker starts the node again; in a pair, the other node takes over.",
)
STORE_READING = Code(
    "store-reading",
    "reading the store: {done} of {total} MiB",
    "The node starts, and reads its data directory.",
    "Wait.",
)
STORE_REPAIRED = Code(
    "store-repaired",
    "repaired the store: {notice}",
    "The process or the machine had ended in the middle of a write. Nothing of what was removed had been "
    "confirmed.",
    "Nothing.",
)
LEVELS_SET = Code(
    "ha-levels-set",
    "{count} queues and exchanges that were declared while this broker was standalone now have a level: "
    "ha.replicate, {level}",
    "A standalone broker has become the primary of a pair. What it had is replicated by `ha.replicate`.",
    "Nothing.",
)
LAST_MAN_BEGINS = Code(
    "ha-last-man-begins",
    "no backup is in sync: transient messages of replicated, durable queues go to the disk, too",
    "`ha.last_man` is `persist`, and this primary has no backup in sync. Confirms of such messages wait for "
    "the disk from now on. Older ones are being written.",
    "Start a backup, or find out why none joins: `understudy status`.",
)
LAST_MAN_KEEPS = Code(
    "ha-last-man-keeps",
    "all transient messages of replicated, durable queues are on disk",
    "The older messages are written, too. A restart of this node alone brings all of them back.",
    "Nothing.",
)
LAST_MAN_ENDS = Code(
    "ha-last-man-ends",
    "no longer the last man: new transient messages stay in memory",
    "A backup is in sync again, or this node no longer serves.",
    "Nothing.",
)
QUEUES_ABANDONED = Code(
    "ha-queues-abandoned",
    "queues ended, because their clients have not come back: {names}",
    "Exclusive queues wait for their clients for `ha.reconnect_grace` after a failover.",
    "Raise `ha.reconnect_grace` if the clients take longer to reconnect.",
)
QUEUES_FORGOT = Code(
    "ha-queues-forgot",
    "queues may take again what they had, because this node was promoted before all of them had come: "
    "{names}",
    "A forced promotion during a join. The queues do not know all numbers of producers, or ids of their "
    "`x-dedup-window`, that the primary had told of them.",
    "Look for messages that are there twice: publishers that send again what was in doubt may double it.",
)
QUEUE_GONE = Code(
    "ha-queue-gone",
    "queue {queue!r} {how}: the one here is deleted, {messages} messages to quarantine",
    "This node has joined a primary that does not have a queue of this node.",
    "List the messages in quarantine: `understudy quarantine list`.",
)
LINK_REFUSED = Code(
    "ha-link-refused",
    "link to {address} refused: {why}",
    "A node of the pair, or the source of a queue mirror, refused the connection or the login. The node "
    "tries again by itself.",
    "Act on the reason: `ha.username`, `ha.password`, the sections `ha` and `tls` of both nodes.",
)
NAME_UNRESOLVED = Code(
    "ha-name-unresolved",
    "link to {address}: {why}",
    "A name in `ha.brokers` has no address. The node tries again by itself.",
    "Correct the name, or the name server of this machine.",
)
DIRECTORY_CHANGED = Code(
    "directory-changed",
    "{who} {what} {entries}",
    "Somebody changed virtual hosts, users, permissions, limits, policies or federation.",
    "Nothing.",
    example="user 'guest' from 192.0.2.1:50124 changes policy 'short'",
)
MIRROR_STATE = Code(
    "mirror-state",
    "replication of queue '{queue}': {state}{why}",
    "A queue mirror has changed its state.",
    "Nothing while it follows. Else act on the reason: `understudy replicate --list` has it, too.",
)
AGENT_STATE = Code(
    "federation-state",
    "federation of exchange '{exchange}' with '{upstream}': {state}{why}",
    "A federation agent has changed its state.",
    "Nothing while it runs. Else act on the reason: `understudy federate list` has it, too.",
)
PAIR_WITHOUT_WITNESS = Code(
    "pair-without-witness",
    "the two nodes decide by themselves, for crashes; a network that is cut in two may make two primaries",
    "The pair has no witness (`ha.witness`).",
    "Nothing, if the network cannot split the clients. Else give the pair a witness.",
)
WITNESS_FILE_FAILED = Code(
    "witness-file-failed",
    "the in-sync set of pair {pair} cannot be kept: {cause}",
    "This broker is the witness of that pair, and cannot read or write its file. It commits nothing for it.",
    "Make room, or mend the file that the sentence names, and restart this broker.",
)
WITNESS_OF_ITS_OWN_PAIR = Code(
    "witness-of-its-own-pair",
    "this broker is a node of that pair itself; a witness is a third broker",
    "`ha.witness` leads to one of the two nodes, perhaps by another name.",
    "Have `ha.witness` name a third broker.",
)
WITNESS_BAD_REQUEST = Code(
    "witness-bad-request",
    "not a request to a witness: {fault}",
    "A node asked the witness for something that it does not know.",
    "Run the same release on the pair and on the witness.",
)
