"""Codes of the `pacemaker` authority: how the CIB stands, and the helper that asks it. See
`understudy.shared.codes`."""

from __future__ import annotations

from understudy.shared.codes import Code

# -- this node's copy counts

AGREED = Code(
    "pacemaker-agreed",
    "all other nodes have the same record, or are shut down or fenced",
    "The authority commits changes of the in-sync set.",
    "Nothing.",
)
QUORUM = Code(
    "pacemaker-quorum",
    "{nodes} lost, but this side has quorum of {votes} votes",
    "The authority commits changes of the in-sync set, although cluster nodes are lost and not fenced yet.",
    "Nothing for now. Get the lost node back, or make its fencing succeed.",
)

# -- this node's copy does not count for now

NO_NODE = Code(
    "pacemaker-node-unknown",
    "the CIB has no node {node}",
    "Pacemaker's configuration does not have this node. The authority commits nothing here.",
    "Add the node to the cluster. Check that `crm_node --name` says the name that the CIB has.",
)
ALONE = Code(
    "pacemaker-node-alone",
    "the CIB has no node but {node}",
    "The cluster has one node, or has not heard of the other one yet. The authority commits nothing.",
    "Start Pacemaker on the other node, or add that node to the cluster.",
)
NOT_JOINED = Code(
    "pacemaker-not-joined",
    "this node, {node}, has not joined the cluster",
    "Pacemaker runs here, and is not a member of the cluster yet. The authority commits nothing here.",
    "Wait. If it lasts, look at `crm_mon` and at the logs of corosync and Pacemaker.",
)
LEAVING = Code(
    "pacemaker-leaving",
    "this node, {node}, is leaving the cluster, or was fenced",
    "Pacemaker is being stopped on this node, or the node was fenced. The authority commits nothing here.",
    "Nothing after a planned stop. Else find out why the node was fenced, and start Pacemaker again.",
)
UNSEEN = Code(
    "pacemaker-node-unseen",
    "{node} was not seen since the cluster started, and not fenced",
    "That node may know more than this copy of the CIB. The authority commits nothing.",
    "Start that node. If it is gone for good, see the runbook.",
)
MEMBER_SILENT = Code(
    "pacemaker-member-silent",
    "{node} is a member, but its own CIB does not answer: {cause}",
    "A member of the cluster did not show its copy of the CIB. The authority commits nothing for now.",
    "Nothing if it lasts for seconds. Else look at Pacemaker on that node and at the network.",
)
MEMBER_DISAGREES = Code(
    "pacemaker-member-disagrees",
    "{node} is a member, but has not got this node as one",
    "A member of the cluster has given this node up, or has not taken it in yet. The authority commits "
    "nothing for now.",
    "Nothing if it lasts for seconds. Else compare `crm_mon` of both nodes.",
)
RECORD_DIFFERS = Code(
    "pacemaker-record-differs",
    "{node} has another copy of the record than this node",
    "A change of the in-sync set is on its way between the copies of the CIB. The authority commits nothing "
    "for now.",
    "Nothing if it lasts for seconds. Else compare `cibadmin --query --local` of both nodes.",
)
ADMIN_EPOCH_DIFFERS = Code(
    "pacemaker-admin-epoch-differs",
    "{node} has another admin_epoch than this node",
    "A change of the `admin_epoch` is on its way between the copies of the CIB. The authority commits "
    "nothing for now.",
    "Nothing if it lasts for seconds. Else compare `cibadmin --query --local` of both nodes.",
)
VOTES_UNKNOWN = Code(
    "pacemaker-votes-unknown",
    "{lost}, and corosync does not tell of quorum: {cause}",
    "A node is lost and not fenced, and `corosync-quorumtool` has not told the votes. The authority commits "
    "nothing.",
    "Wait for the fencing. With a quorum device, let the broker's user ask corosync: name it in `uidgid` in "
    "corosync.conf.",
)
NO_QUORUM = Code(
    "pacemaker-no-quorum",
    "{lost}, and there is no quorum here",
    "A node is lost and not fenced, and this side has no quorum. The authority commits nothing here.",
    "Find out why this node is cut off. The other side is about to fence it.",
)
TWO_VOTES = Code(
    "pacemaker-two-votes",
    "{lost}, and quorum of two votes proves nothing",
    "A node is lost and not fenced. With two votes each side of a partition has quorum, so the authority "
    "commits nothing.",
    "Wait for the fencing, and see the runbook if it fails. With a third vote the node goes on by itself.",
)
PARTITIONS_DIFFER = Code(
    "pacemaker-partitions-differ",
    "{lost}, and corosync has others in this partition than the CIB",
    "A node is lost and not fenced, and corosync and Pacemaker do not agree on the members. The authority "
    "commits nothing for now.",
    "Nothing if it lasts for seconds. Else wait for the fencing.",
)
UNREADABLE = Code(
    "pacemaker-cib-unreadable",
    "this node's CIB cannot be read: {cause}",
    "`cibadmin` failed, did not end in time, or printed what is no CIB. The authority commits nothing here.",
    "Check that Pacemaker runs here, and that the broker's user is in the group `haclient`.",
)
RECORD_DAMAGED = Code(
    "pacemaker-record-damaged",
    "{damage}; it is left as it is",
    "Somebody changed the in-sync set in the CIB by hand. The authority commits nothing.",
    "Put back the value that the set had.",
)

# -- a swap

NODE_JOINING = Code(
    "pacemaker-node-joining",
    "{nodes} has not joined the cluster yet, and is included then",
    "The broker has caught up before Pacemaker took its node in. Confirms do not wait for it yet.",
    "Wait. If it lasts, look at Pacemaker on that node.",
)
CONFLICT = Code(
    "pacemaker-record-held",
    "the CIB holds {held}",
    "The CIB did not have the in-sync set that was to be replaced. Nothing was written.",
    "Nothing: the node acts by what the CIB holds.",
)
ADMIN_EPOCH_STUCK = Code(
    "pacemaker-admin-epoch-stuck",
    "the CIB's admin_epoch cannot be raised: {cause}",
    "A node is away, and may come back with an old copy of the CIB. A raised `admin_epoch` outranks that "
    "copy. Without it the authority commits nothing.",
    "Check that the broker's user may change the CIB. The node tries again by itself.",
)
WRITE_UNSURE = Code(
    "pacemaker-write-unsure",
    "the CIB may have the new record or not: {cause}",
    "`cibadmin` failed, or did not end in time, while it wrote the in-sync set.",
    "Act on the cause. The node asks for the same change again by itself.",
)
WRITE_UNDONE = Code(
    "pacemaker-write-undone",
    "the CIB holds the record of before the swap",
    "`cibadmin` wrote the in-sync set, and the CIB has the old one: another copy has replaced it.",
    "Nothing: the node asks for the same change again by itself.",
)

# -- the helper

HELPER_BUSY = Code(
    "pacemaker-helper-busy",
    "too many questions at once",
    "The helper process has as many open questions as it takes: `cibadmin` hangs.",
    "Look at Pacemaker on this node. The node asks again by itself.",
)
HELPER_FAILED = Code(
    "pacemaker-helper-failed",
    "the helper failed: {error}",
    "The helper process raised an error that it does not expect.",
    "Report it. The node asks again by itself.",
)
NAME_UNKNOWN = Code(
    "pacemaker-name-unknown",
    "this node's name in the cluster is not known: {cause}",
    "`crm_node --name` failed. The authority commits nothing here.",
    "Check that Pacemaker runs here, and that the broker's user is in the group `haclient`.",
)
CIB_SLOW = Code(
    "pacemaker-cib-slow",
    "the CIB was not asked through within {limit:g} s",
    "The commands of one question took longer than the limit. The authority commits nothing for now.",
    "Nothing if it lasts for seconds. Else look at Pacemaker and at the load of this machine.",
)
HELPER_NOT_RUNNING = Code(
    "pacemaker-helper-down",
    "the helper that asks the CIB is not running",
    "The helper process has ended or does not run yet. The node starts it again within a second.",
    "Nothing if it lasts for seconds. Else read the log.",
)
HELPER_NOT_READING = Code(
    "pacemaker-helper-stuck",
    "the helper that asks the CIB does not read",
    "The helper process does not take questions. The node ends it and starts it again.",
    "Nothing if it lasts for seconds. Else look at the load of this machine.",
)
HELPER_SILENT = Code(
    "pacemaker-helper-silent",
    "the helper that asks the CIB does not answer",
    "The helper process did not answer in time. The node ends it and starts it again.",
    "Nothing if it lasts for seconds. Else look at the load of this machine.",
)
HELPER_NOT_STARTED = Code(
    "pacemaker-helper-not-started",
    "the helper that asks the CIB cannot be started: {cause}",
    "The system refused to start the helper process. The node tries again by itself.",
    "Act on the cause: the limit of processes, the memory, or the installation.",
)
HELPER_NONSENSE = Code(
    "pacemaker-helper-nonsense",
    "the helper that asks the CIB said what is no answer: {fault}",
    "The helper process printed what the node does not understand. The node ends it and starts it again.",
    "Restart the node after an upgrade, so that both are of one version. If it lasts, report it.",
)
HELPER_ENDED = Code(
    "pacemaker-helper-ended",
    "the helper that asks the CIB has ended ({how}); it is started again",
    "Somebody or something ended the helper process.",
    "Nothing if it happens once. Else find out what ends it: the log of the system names the OOM killer.",
)
