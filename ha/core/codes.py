"""Codes of what the core refuses: promotions, demotions, switchovers, joins. See `understudy.shared.codes`.

The way out that a refusal names is not in the sentence: the core adds it, by what it knows of the others.
"""

from __future__ import annotations

from understudy.shared.codes import Code

# -- promote

PROMOTE_LEASE_EXPIRED = Code(
    "promote-lease-expired",
    "{already}, but its leadership lease has expired: confirms and deliveries are paused",
    "The node is the primary already, but its leadership lease has expired, so it pauses confirms and "
    "deliveries. A promotion does not renew the lease.",
    "Restore the connection to a backup or to the authority. If that fails, end the node and promote a "
    "backup.",
)
PROMOTE_PENDING = Code(
    "promote-pending",
    "{state}",
    "Another promotion of this node is under way.",
    "Wait, and look at `understudy status`.",
    example="being promoted; waits until the lease of b has run out",
)
PROMOTE_UNDECIDED = Code(
    "promote-undecided",
    "{state}; this node keeps asking the authority",
    "The authority has not said whether it took the new in-sync set. The node may still become the primary.",
    "Check that the authority runs and can be reached. Look at `understudy status`.",
)
PROMOTE_GIVEN_UP = Code(
    "promote-given-up",
    "{cause}",
    "Something else ended the promotion: a forced promotion, a demotion, or another node that became "
    "primary.",
    "Look at `understudy status` of all nodes. If no node serves, ask again.",
    example="an operator forces it",
)
PROMOTE_AUTHORITY_SILENT = Code(
    "promote-authority-silent",
    "the authority does not answer",
    "The node cannot read the in-sync set of the authority, such as Pacemaker's CIB. It promotes "
    "nothing without it.",
    "Check that the authority runs and can be reached from this node. Then ask again.",
)
PROMOTE_AUTHORITY_FAILS = Code(
    "promote-authority-fails",
    "the authority does not say who may serve: {trouble}",
    "The node asked the authority for the in-sync set, and got a refusal or an answer that it cannot use. It "
    "promotes nothing without it.",
    "Act on what the sentence says. This node goes on asking.",
)
TAKES_OVER = Code(
    "ha-takes-over",
    "takes over from {primary}: {why}",
    "The primary is gone, and this node holds every confirmed message, so it promotes itself. The next lines "
    "say how that goes.",
    "Nothing at once. Find out why the primary failed, and start it again: it joins as a backup.",
)
PAIR_TAKES_OVER = Code(
    "ha-pair-takes-over",
    "takes over: {why}",
    "Nobody serves, as far as this node of the pair sees, and it holds every confirmed message. So it "
    "promotes itself. The next lines say how that goes.",
    "Nothing at once. Find out what became of the other node, and start it again: it joins as a backup.",
)
CONTROLLER_STATE = Code(
    "ha-controller-state",
    "the pair controller goes from {before} to {after}",
    "This node's part in the pair has changed: `pending` looks for the other node, `active` serves, "
    "`passive` stands by, `ordered` stands by because an operator wants it.",
    "Nothing.",
)
ORDER_ENDS = Code(
    "ha-order-ends",
    "no longer ordered passive: {other} is there and may not serve, and only this node has every message",
    "An operator wanted this node passive, and the other node to serve. That one was started again since, or "
    "lacks messages, so it never could. The order is dropped, and this node takes over.",
    "Nothing. When the other node is `ready`, `understudy controller passive` is a switchover.",
)
ROLES_EQUAL = Code(
    "ha-roles-equal",
    "{other} has ha.role = {role}, too",
    "Both nodes of the pair have the same `ha.role`. Without a witness, neither promotes itself, and nobody "
    "takes over when the primary is gone.",
    "Give one of the two the other role, and start it again.",
)
NO_CONTROLLER = Code(
    "no-controller",
    "this node does not promote itself, so it has no controller",
    "Only a pair that fails over by itself has a controller.",
    "Use `understudy promote`, `demote` and `switchover`, or set `ha.authority`.",
)
SERVES_FIRST = Code(
    "ha-serves-first",
    "no broker of this pair has ever served: this one begins",
    "The authority has no in-sync set yet, all brokers of the list answer, and none has data.",
    "Nothing.",
)
PROMOTE_RECORD_GONE = Code(
    "promote-record-gone",
    "the authority no longer holds an in-sync set",
    "The authority had an in-sync set when the promotion began, and has none now.",
    "Find out who removed it. Then ask again.",
)
PROMOTE_RECORD_CHANGED = Code(
    "promote-record-changed",
    "the in-sync set changed during the promotion: {owner} owns epoch {epoch}",
    "Another node changed the in-sync set while this node asked.",
    "Look at `understudy status` of the node that the sentence names: it may serve.",
)
PROMOTE_RECORD_NEWER = Code(
    "promote-record-newer",
    "a newer in-sync set arrived while this node waited for the old lease to expire",
    "Another node was promoted while this node waited for the lease of the old primary.",
    "Look at `understudy status` of the others.",
)
PROMOTE_REGISTER_BEHIND = Code(
    "promote-register-behind",
    "the authority lacks an in-sync set that this node knows, and may lack a later one",
    "The in-sync set was lost or replaced while nobody served: the file of the witness, the key in etcd, or "
    "the cluster's configuration.",
    "If you have a newer copy of what the authority held, put it back. Otherwise do what the sentence says: "
    "it names the node that has the most of those that answer.",
)
PROMOTE_OTHER_HAS_MORE = Code(
    "promote-other-has-more",
    "the authority lacks an in-sync set that this node knows, and {other} {has}",
    "The in-sync set was lost or replaced while nobody served, and another node that answers has more than "
    "this one. A forced promotion of this node is refused, too.",
    "Promote the node that the sentence names with `--force-lossy`. Only if its data is to be given up: end "
    "that node, and force this one.",
)
PROMOTE_IDENTITY_COPIED = Code(
    "promote-identity-copied",
    "{fault}",
    "Two nodes run on copies of one data directory.",
    "Give one of the two an empty data directory.",
    example="192.0.2.2:5672 has the identity of this very node: one of the two data directories is a copy of "
    "the other; give one of the two nodes an empty one",
)
PROMOTE_CATCHING_UP = Code(
    "promote-catching-up",
    "this node is catching up with {primary}, which serves in epoch {epoch}",
    "The primary serves, and this node does not have every message yet.",
    "Wait until this node is `ready`, then switch over.",
)
PROMOTE_OTHER_SERVES = Code(
    "promote-other-serves",
    "{primary} is serving in epoch {epoch}",
    "Another node is the primary and answers.",
    "Switch over, or demote the primary first. If it hangs, end it, start it again and ask once more.",
)
PROMOTE_OTHER_PROMOTING = Code(
    "promote-other-promoting",
    "another promotion is under way: of {other}",
    "Somebody else promotes another node of the pair.",
    "Look at `understudy status` of that node. Ask again if its promotion is refused.",
)
PROMOTE_SAME_NUMBER = Code(
    "promote-same-number",
    "{other} and this node have the same node number {number}",
    "Two nodes that have been promoted before have the same number, and could mint the same epoch.",
    "Start the newer of the two with an empty data directory.",
)
PROMOTE_FOREIGN_NODE = Code(
    "promote-foreign-node",
    "{fault}",
    "An address of `ha.brokers` is a broker of another cluster.",
    "Take it out of `ha.brokers`, or give this node its right data directory.",
    example="192.0.2.9:5672 belongs to another cluster, 5f1c0e, and not into ha.brokers here",
)
PROMOTE_FOREIGN_RECORD = Code(
    "promote-foreign-record",
    "the newest in-sync set belongs to another cluster, {cluster}",
    "The authority holds the in-sync set of another cluster.",
    "Give this pair a place of its own (`ha.cib_set`, `ha.etcd.prefix`), or start this node with an "
    "empty data directory.",
)
PROMOTE_NEVER_JOINED = Code(
    "promote-never-joined",
    "the authority has an in-sync set of {owner}, and this node has never joined it",
    "This node has an empty data directory. The in-sync set in the authority is that of its pair, or of "
    "another pair.",
    "Start the node that it names: this node joins it. If it belongs to another pair, give this pair a place "
    "of its own (`ha.cib_set`, `ha.etcd.prefix`).",
)
PROMOTE_RECORD_LOST = Code(
    "promote-record-lost",
    "insync.json is missing, although this node was in a cluster: this node may lack confirmed messages",
    "Somebody removed the file `insync.json` of this node.",
    "Put the file back, or promote another node. Only if neither is possible: `--force-lossy`.",
)
PROMOTE_NOT_LISTED = Code(
    "promote-not-listed",
    "no address in ha.brokers is this node's: {how}",
    "This node does not find its own address in `ha.brokers`.",
    "Add it, with the same list on all nodes, and start this node again.",
)
PROMOTE_PEERS_SILENT = Code(
    "promote-peers-silent",
    "{peers} and may hold data",
    "No primary is known, and a node of the pair is not reached. It may have data that this node lacks.",
    "Start the other node, or let this one in, and ask again. Only if it is lost for good: `--force-lossy`.",
)
PROMOTE_OTHER_HOLDS_DATA = Code(
    "promote-other-holds-data",
    "{other} holds data, and this node was never a backup of {other}",
    "The other node was a primary or a standalone broker. This node does not have its messages.",
    "Promote the other node. If each says so of the other, choose the one whose data is to go on, and "
    "promote it with `--force-lossy`: what only the other one holds goes to its quarantine.",
)
PROMOTE_QUEUES_INCOMPLETE = Code(
    "promote-queues-incomplete",
    "this node had to fetch {queues} of its queues again, and their messages are incomplete",
    "The node is in sync, but had to fetch queues again, and has not got all of them.",
    "Start the old primary again, and promote it. Only if it is lost for good: `--force-lossy`.",
)
PROMOTE_QUEUES_DELETED = Code(
    "promote-queues-deleted",
    "{queues} of this node's queues were deleted while it caught up, and it may lack messages that had "
    "moved from there",
    "Messages moved, as dead letters do, from queues that were deleted while this node caught up.",
    "Start the old primary again, and promote it. Only if it is lost for good: `--force-lossy`.",
)
PROMOTE_LINK_UP = Code(
    "promote-link-up",
    "the link to the primary {primary} is up",
    "The primary did not answer, but its connection stands, so it may serve.",
    "Switch over, or demote the primary first. If it hangs, end it, start it again and ask once more.",
)
PROMOTE_EXCLUDED = Code(
    "promote-excluded",
    "{primary} has excluded this node from the in-sync set",
    "The primary went on without this node, which may lack confirmed messages.",
    "Start the primary again, and promote it. Only if it is lost for good: `--force-lossy`.",
)
PROMOTE_PRIMARY_MAY_SERVE = Code(
    "promote-primary-may-serve",
    "{doubt}",
    "The node is in sync, but nothing proves that the old primary serves no more: it may have gone on "
    "without this node.",
    "Start the old primary again, after ending it if it hangs, and ask once more. Only if it is off "
    "for certain and does not start: `--force-lossy`.",
    example="the link to b went silent instead of closing, so that it may still serve",
)
PROMOTE_SUCCESSOR_UNKNOWN = Code(
    "promote-successor-unknown",
    "{members} does not answer, and may have been promoted since this node was the primary",
    "This node was the last primary. A backup that does not answer may have taken over since.",
    "Start that node and ask again. Only if it is off for certain and does not start: `--force-lossy`.",
)
PROMOTE_PRIMARY_HANGS = Code(
    "promote-primary-hangs",
    "this node is catching up with {primary}, whose link is up, and may lack confirmed messages",
    "The primary did not answer, but its connection stands. This node does not have every message yet.",
    "Wait until this node is `ready`. If the primary hangs, end it, start it again and promote it.",
)
PROMOTE_NOT_IN_RECORD = Code(
    "promote-not-in-record",
    "the in-sync set of epoch {epoch} does not name this node, which may lack confirmed messages",
    "The in-sync set does not name this node. The nodes that it names have more.",
    "Start and promote a node that the set names. Only if those are lost for good: `--force-lossy`.",
)
PROMOTE_MEMBER_SILENT = Code(
    "promote-member-silent",
    "{members} of the in-sync set of epoch {epoch} does not answer, and may hold later messages",
    "All nodes were down. A node of the in-sync set does not answer, and may have the later copy.",
    "Start that node and ask again. Only if it is lost for good: `--force-lossy`.",
)
PROMOTE_COPY_INCOMPLETE = Code(
    "promote-copy-incomplete",
    "this node's copy is incomplete: this node stopped while catching up",
    "This node ended before it had every message.",
    "Start and promote the other node. Only if it is lost for good: `--force-lossy`.",
)
PROMOTE_OTHER_LATER = Code(
    "promote-other-later",
    "{other} has a later copy: position {position}, this node {own}",
    "All nodes were down, and another node has more of the history.",
    "Promote that node.",
)
PROMOTE_OTHER_RUNS_ON = Code(
    "promote-other-runs-on",
    "{other} has run without a restart since the in-sync set was written, and holds everything in memory",
    "Another node has everything in memory, also what is not on disk.",
    "Promote that node.",
)

# -- demote and switchover

DEMOTE_STANDALONE = Code(
    "demote-standalone",
    "this node is a standalone broker without ha.brokers, and cannot be demoted",
    "The node belongs to no pair.",
    "Check `--broker`.",
)
SWITCHOVER_STANDALONE = Code(
    "switchover-standalone",
    "this node is a standalone broker without ha.brokers, and has no backup to switch over to",
    "The node belongs to no pair.",
    "Check `--broker`.",
)
SWITCHOVER_UNDER_WAY = Code(
    "switchover-under-way",
    "a switchover to {target} is under way",
    "The node carries out another switchover.",
    "Wait for it, and look at `understudy status`.",
)
SWITCHOVER_NOT_PRIMARY = Code(
    "switchover-not-primary",
    "{node} is not the primary: {primary} serves",
    "Only the primary hands over.",
    "Ask the primary. If no node serves, promote one.",
)
SWITCHOVER_LEASE_EXPIRED = Code(
    "switchover-lease-expired",
    "cannot switch over: this node's leadership lease has expired",
    "The primary's leadership lease has expired, so another node may serve.",
    "Ask again when the lease is renewed. If it is not, end the node and promote the backup.",
)
SWITCHOVER_TARGET_NOT_READY = Code(
    "switchover-target-not-ready",
    "{target} cannot take over: {state}",
    "The node that was named is no backup in sync.",
    "Ask again when its status is `ready`, or name another backup.",
)
SWITCHOVER_NO_BACKUP = Code(
    "switchover-no-backup",
    "no backup is in sync, so none can take over without loss",
    "The primary serves alone.",
    "Start a backup, and ask again when its status is `ready`.",
)
SWITCHOVER_AUTHORITY_AWAY = Code(
    "switchover-authority-away",
    "not switched over to {target}: {trouble}",
    "The authority has to agree before the target may serve. It does not answer now, so a handover would "
    "leave nobody serving. Nothing was handed over.",
    "Nothing is lost. Look at `authority` in `understudy status`, and ask again when it answers.",
)
SWITCHOVER_TAKEN_BACK = Code(
    "switchover-taken-back",
    "not switched over to {target}: {cause}",
    "The target did not get everything in time, or something else ended the switchover. Nothing was "
    "handed over.",
    "Nothing is lost. Ask again.",
)
SWITCHOVER_RETURNED = Code(
    "switchover-returned",
    "not switched over: {cause}; {node} serves in epoch {epoch}",
    "The target did not begin to serve, so the old primary was promoted again.",
    "Nothing is lost. Read the log of the target before you ask again.",
)
SWITCHOVER_OTHER_PROMOTED = Code(
    "switchover-other-promoted",
    "{node} was promoted in place of the target, and serves in epoch {epoch}",
    "Somebody promoted a third node during the switchover.",
    "Look at `understudy status`, and switch over again if you still want to.",
)
SWITCHOVER_NOBODY_SERVES = Code(
    "switchover-nobody-serves",
    "not switched over: {cause}; {refusal}",
    "The target did not begin to serve, and the old primary was not promoted again.",
    "No node serves. Look at `understudy status` of all nodes, and promote the one that it advises.",
)

# -- join

JOIN_NOT_PRIMARY = Code(
    "join-not-primary",
    "{node} is not the primary ({status})",
    "The node asked a node that does not serve.",
    "Nothing: it finds the primary by itself.",
)
JOIN_LINK_VERSION = Code(
    "join-link-version",
    "the joining node has link version {its}, this node has {ours}: run the same release on both",
    "The nodes run releases whose links differ.",
    "Upgrade the older node.",
)
JOIN_FOREIGN_CLUSTER = Code(
    "join-foreign-cluster",
    "the joining node belongs to cluster {its}, this node to {ours}: take the joining node out of "
    "ha.brokers, or start it with an empty data directory",
    "The node has the data directory of another cluster.",
    "Take it out of `ha.brokers`, or start it with an empty data directory.",
)
JOIN_LATER_EPOCH = Code(
    "join-later-epoch",
    "the joining node claims epoch {its} without an in-sync set to prove it: {node} serves in {epoch}",
    "The node knows of a later primary than the one that it asks.",
    "If it lasts, look at `understudy status` of all nodes: two may serve.",
)
JOIN_FOREIGN_HISTORY = Code(
    "join-foreign-history",
    "the joining node holds data of epoch {holds} from outside this pair, and {node} serves in {epoch}; "
    "demote and promote {node}, for a later epoch, or start the joining node with an empty data directory",
    "The node was a standalone broker, or was restored from an archive.",
    "Demote and promote the primary, for a later epoch, or start the node with an empty data directory.",
)
JOIN_OWN_IDENTITY = Code(
    "join-own-identity",
    "the joining node has the identity of this node: {way}",
    "The node runs on a copy of the primary's data directory.",
    "Start it with an empty data directory.",
)
JOIN_IDENTITY_COPIED = Code(
    "join-identity-copied",
    "another process has the identity of {name}: {way}",
    "Two backups run on copies of one data directory.",
    "Start one of them with an empty data directory.",
)
JOIN_SAME_NUMBER = Code(
    "join-same-number",
    "both nodes have the node number {number}: give one an empty data directory",
    "A node that has been promoted before has the number of the primary, and could mint the same epoch.",
    "Start it with an empty data directory.",
)
JOIN_SAME_NAME = Code(
    "join-same-name",
    "both nodes are called {name}: change broker.name of one",
    "Two nodes of a pair need two names.",
    "Change `broker.name` of one.",
)
JOIN_BACKUP_SAME_NUMBER = Code(
    "join-backup-same-number",
    "backup {name} already has the node number {number}: give one node an empty data directory",
    "A node that has been promoted before has the number of another backup.",
    "Start one of the two with an empty data directory.",
)
JOIN_BACKUP_SAME_NAME = Code(
    "join-backup-same-name",
    "another backup is already called {name}: change broker.name of one",
    "Two nodes of a pair need two names.",
    "Change `broker.name` of one.",
)

# -- log events

JOIN_REFUSED = Code(
    "ha-join-refused",
    "{primary} does not take this node in: {why}",
    "The node asked to become a backup, and the other node refused. The log of the other node has the "
    "same reason with a code of its own, such as `join-same-name`.",
    "Act on the reason. The node asks again by itself.",
)

LEASE_EXPIRED = Code(
    "ha-lease-expired",
    "leadership lease expired: confirms and deliveries are paused until it is renewed",
    "The primary's leadership lease has expired: no backup or authority answered in time. Confirms and "
    "deliveries are paused.",
    "Restore the connection to the backups or to the authority. The primary goes on by itself once one "
    "of them answers. If another node serves, this node steps down.",
)
BACKUP_LOST = Code(
    "ha-backup-lost",
    "backup {backup} lost: {why}; confirms wait until it is back or excluded",
    "The link of a backup in sync has ended. Confirms wait for at most `ha.ack_timeout`, or longer "
    "while nobody can exclude it.",
    "Find out why the backup or the network failed. Nothing is lost.",
)
BACKUP_EXCLUDED = Code(
    "ha-backup-excluded",
    "{backup} is excluded from the in-sync set: {why}",
    "The primary goes on without the backup, which joins again by itself. With no other backup in "
    "sync, the next fault stops the service.",
    "Get the backup to run and to be reached. Do not promote it before it is `ready`.",
)
EXCLUDED = Code(
    "ha-excluded",
    "this node is excluded by {primary}: {why}",
    "The primary goes on without this node, which joins again by itself.",
    "Act on the reason. Wait until this node is `ready` before you promote it.",
)
STOPS_SERVING = Code(
    "ha-stops-serving",
    "this node stops serving: {why}",
    "The node was the primary, and is none any more: a demotion, a switchover, or another node that serves.",
    "Nothing after a planned change. Else look at `understudy status` of all nodes.",
)
SETTINGS_DIFFER = Code(
    "ha-settings-differ",
    "{node} does not join: {why}",
    "The nodes disagree on keys that change what a confirm promises, such as `ha.replicate`.",
    "Make the keys that the sentence names the same on all nodes.",
)
LINK_SILENT = Code(
    "ha-link-silent",
    "no data from {primary} for {seconds:.3g} s: link closed",
    "The primary hangs, or the network between the nodes is cut. The primary may still serve.",
    "Look at the primary and at the network. Promote only if the primary is off for certain.",
)
LINK_MOVES = Code(
    "ha-link-moves",
    "no data from {primary} for {seconds:.3g} s on this route, but it answers on another one: joins it there",
    "One of several networks between the nodes has failed. The link moves to an address of the primary on "
    "another network. Nobody is promoted.",
    "Look at the network that has failed. `understudy status` names the address that does not answer.",
)
LINK_MISUSED = Code(
    "ha-link-misused",
    "link closed: {peer}: {fault}",
    "A peer sent what no node of this version sends.",
    "Compare the versions of the nodes. If they are the same, report it.",
)

# -- log events that need no action of themselves

NUMBER_DRAWN = Code(
    "ha-number-drawn",
    "{peer} has the node number {old} too; the number of this node is now {number}",
    "Each node draws a number for its epochs, and a new node found its own at another node.",
    "Nothing.",
)
LOOKING = Code(
    "ha-looking",
    "joining: looking for the other brokers",
    "The node has started, or serves no more, and looks for the primary.",
    "Nothing. If no node serves, promote one.",
)
CATCHING_UP = Code(
    "ha-catching-up",
    "catching up with {primary} in epoch {epoch}",
    "The primary has taken this node in, and sends what this node lacks.",
    "Wait for `ha-ready` before you promote this node.",
)
READY = Code(
    "ha-ready",
    "ready: holds every confirmed message of {primary}",
    "This node is in sync and may be promoted.",
    "Nothing.",
)
READY_AGAIN = Code(
    "ha-ready-again",
    "ready again: holds every confirmed message of {primary}",
    "The queues that were fetched again are whole. This node is in sync and may be promoted.",
    "Nothing.",
)
LINK_CLOSED = Code(
    "ha-link-closed",
    "the link to {primary} closed",
    "The primary closed the link, or its process ended.",
    "Look at the primary unless its end was planned. This node looks for a primary by itself.",
)
LINK_LOST = Code(
    "ha-link-lost",
    "the link to {primary} was lost",
    "The link ended without a close of the primary: the machine or the network failed, or the primary hangs.",
    "Look at the primary and at the network. This node looks for a primary by itself.",
)
NEWER_PRIMARY = Code(
    "ha-newer-primary",
    "{primary} is followed no more: there is the newer epoch {epoch}",
    "This node followed a primary, and another node has been promoted since.",
    "Nothing: this node joins the new primary by itself.",
)
HANDS_OVER = Code(
    "ha-hands-over",
    "{primary} hands over at {at}",
    "The primary's switchover has this node as its target, and this node has every message.",
    "Nothing: this node is promoted by itself.",
)
DOES_NOT_JOIN = Code(
    "ha-does-not-join",
    "does not join {primary}: {why}",
    "The primary and this node disagree on keys that change what a confirm promises, such as `ha.replicate`.",
    "Make the keys that the sentence names the same on all nodes.",
)
QUEUE_FETCHED_AGAIN = Code(
    "ha-queue-fetched-again",
    "{why}; it is fetched again from {primary}",
    "This node's copy of a queue differs from the primary's. This node is not promotable until it has that "
    "queue again.",
    "Wait for `ha-ready-again`. Report it if it comes back.",
)
QUEUES_DELETED = Code(
    "ha-queues-deleted",
    "{queues} of this node's queues are deleted with the messages they held: it is not promotable before "
    "all that {primary} has is here",
    "Messages may have moved from these queues, as dead letters do, to queues that this node lacks.",
    "Wait for `ha-ready` before you promote this node.",
)
MESSAGES_DROPPED = Code(
    "ha-messages-dropped",
    "queue {queue!r}: dropped {messages} messages the primary has not, {kept} of them to quarantine",
    "This node had messages that the primary lacks: they were never confirmed, or a forced promotion gave "
    "them up.",
    "List the messages in quarantine: `understudy quarantine list`.",
)
BACKUP_JOINS = Code(
    "ha-backup-joins",
    "{backup} joins, holding {queues} queues",
    "A node has become a backup. It gets what it lacks.",
    "Nothing.",
)
BACKUP_DEFERRED = Code(
    "ha-backup-deferred",
    "{backup} has caught up, and is not included yet: {why}",
    "The authority does not take the backup into the in-sync set yet. Confirms do not wait for it.",
    "Act on the reason, which has a code of its own in the status of the authority.",
)
BACKUP_IN_SYNC = Code(
    "ha-backup-in-sync",
    "{backup} is in sync from {at} on",
    "The backup holds every confirmed message. Confirms wait for it.",
    "Nothing.",
)
CONFIRM_LEVEL = Code(
    "ha-confirm-level",
    "confirms of persistent messages wait for {level} or more from now on, by the record",
    "`ha.confirm` or a policy (`ha-confirm`) wants another level than before, and the authority has "
    "committed it. Under `primary-disk` and `all-memory` a loss of power may cost confirmed messages.",
    "Nothing, if you want that level. Else look at `ha.confirm` and at the policies.",
)
BACKUP_STALLS = Code(
    "ha-backup-stalls",
    "{backup} stalls while catching up",
    "A backup that catches up has not acknowledged anything for `ha.ack_timeout`. It goes on by itself.",
    "Look at the disk of the backup and at the network if it comes back.",
)
JOINER_GONE = Code(
    "ha-joiner-gone",
    "{backup} is gone before it was in sync: {why}",
    "A backup that was catching up is lost. Confirms never waited for it.",
    "Find out why, if it does not join again by itself.",
)
QUEUE_SENT_AGAIN = Code(
    "ha-queue-sent-again",
    "{backup} gets a queue again: {why}",
    "The backup's copy of a queue differs from the primary's. It is not promotable until it has that queue.",
    "Nothing. Report it if it comes back.",
)
CONFIRMS_HELD = Code(
    "ha-confirms-held",
    "confirms are held until {wanted}; {step}; to go on without, restart this broker with {keys} and promote "
    "it",
    "`ha.min_backups` or `ha.on_backup_loss` wants more backups in sync than there are.",
    "Start a backup. Only if none can run: change the key that the sentence names.",
)
LEASE_RENEWED = Code(
    "ha-lease-renewed",
    "leadership lease renewed: confirms and deliveries go on",
    "A backup or the authority has answered after `ha-lease-expired`.",
    "Nothing.",
)
CLOCKS_DIFFER = Code(
    "ha-clocks-differ",
    "the clock of {node} is {seconds:,.1f} s {way} this node's: set both by NTP",
    "The wall clocks of two nodes differ. After a failover, messages with a TTL expire by the clock of the "
    "last primary.",
    "Set both clocks by NTP.",
)
CLOCKS_AGREE = Code(
    "ha-clocks-agree",
    "the clock of {node} is within {seconds} s of this node's again",
    "The clocks agree again, after `ha-clocks-differ`.",
    "Nothing.",
)
AUTHORITY_UNREADABLE = Code(
    "ha-authority-unreadable",
    "the authority's answer cannot be read: {fault}",
    "The authority holds what is no in-sync set. It counts as no answer.",
    "Find out who changed the in-sync set, and put it back.",
)
RECORD_LOST = Code(
    "ha-record-lost",
    "the authority has lost the record",
    "Somebody removed the in-sync set of the authority, or put back an older one. No other node was promoted "
    "since, so the primary writes it again.",
    "Find out who changed it.",
)
FOREIGN_CLUSTER = Code(
    "ha-foreign-cluster",
    "belongs to another cluster, {cluster}, and not into ha.brokers here",
    "An address of `ha.brokers` is a broker of another cluster. This node ignores it.",
    "Take the address out of `ha.brokers`, or give that node the right data directory.",
)
PEER_DOUBTED = Code(
    "ha-peer-doubted",
    "is not believed: it {why}",
    "A node of the pair tells of epochs that cannot be. This node ignores it.",
    "Look at `understudy status` of that node. Start it with an empty data directory if its copy is damaged.",
)
IDENTITY_COPIED = Code(
    "ha-identity-copied",
    "has the identity of {other}: {way}",
    "Two nodes run on copies of one data directory. This node ignores the other one.",
    "Give one of the two an empty data directory.",
)
ROUTES_DIFFER = Code(
    "ha-routes-differ",
    "is another node than {other}, and ha.brokers has both as addresses of one node",
    "Two addresses with `|` between them in `ha.brokers` are of different nodes. This node ignores the one "
    "named first.",
    "Correct `ha.brokers` on all nodes: `|` between the addresses of one node, commas between nodes.",
)
PROMOTION_COMMITTED = Code(
    "ha-promotion-committed",
    "the record of epoch {epoch} is this node's; {state}",
    "The authority has taken the new in-sync set. This node serves once the last condition holds.",
    "Wait, and look at `understudy status`.",
)
PROMOTED = Code(
    "ha-promoted",
    "promoted in epoch {epoch} ({how}): {why}",
    "This node is the primary and serves.",
    "Nothing. After `force-lossy` look at the quarantine of the nodes that join.",
)
SWITCHOVER_BEGINS = Code(
    "ha-switchover-begins",
    "switchover to {target}: client input is paused until {target} has everything",
    "The primary hands over. It takes nothing new from clients until the target has every message.",
    "Nothing.",
)
SWITCHOVER_CALLED_OFF = Code(
    "ha-switchover-called-off",
    "goes on serving: {target} could not take over: {why}",
    "The target did not get everything in time. Nothing was handed over, and nothing is lost.",
    "Act on the reason, then switch over again.",
)
SWITCHOVER_RETURNS = Code(
    "ha-switchover-returns",
    "wants to be primary again: {why}",
    "The target did not begin to serve, so the old primary asks to be promoted again.",
    "Read the log of the target before you switch over again.",
)
