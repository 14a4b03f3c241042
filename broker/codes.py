"""Codes for the broker's log lines and for faults that keep it from starting. See `understudy.shared.codes`.

A closed channel or connection has AMQP's own reply code or condition (`broker.errors`), and no code here.
"""

from __future__ import annotations

from understudy.shared.codes import Code

STORE_UNUSABLE = Code(
    "store-unusable",
    "{fault}",
    "The data directory, or a file in it, cannot be created, read or written. The node did not start.",
    "Correct the rights or the path that the line names, or make room on the disk.",
    example="cannot use data directory /var/lib/understudy: Permission denied",
)
STORE_LOCKED = Code(
    "store-locked",
    "{fault}",
    "Another process holds the data directory. The node did not start.",
    "Stop the other process. Two nodes never share one data directory.",
    example="data directory /var/lib/understudy is in use by process 4711; each node needs its own",
)
STORE_DAMAGED = Code(
    "store-damaged",
    "{fault}",
    "Bytes that were on the disk are not what was written. The node did not start, and changed nothing.",
    "Keep the directory. If the other node of the pair has everything, move this one away and let the "
    "node join empty; else restore an archive.",
    example="/var/lib/understudy/store/00000001.segment is damaged at offset 4096: ...",
)
TICK_FAILED = Code(
    "tick-failed",
    "the node stops after an internal error in a tick: {error}",
    "The program raised an error that it does not expect. Its state is unknown, so the node confirms "
    "nothing more and ends. The traceback follows.",
    "Report it, with the traceback. systemd or Pacemaker starts the node again.",
)
NO_PLACE = Code(
    "connection-limit",
    "{connection}: the limit of connections is reached",
    "As many connections are open as `broker.max_connections` and the reserve for peers and operators "
    "allow. The node closed a connection that had not logged in, or refused a new one.",
    "Find clients that leak connections, or raise `broker.max_connections` and the limit of open files.",
)
TLS_HANDSHAKE = Code(
    "tls-handshake-failed",
    "connection {peer}: {fault}",
    "A connection to a TLS port ended before or in the handshake, or sent what is not TLS.",
    "Act on the fault: the client may speak without TLS, distrust the certificate, or lack its own.",
)
TLS_RELOAD = Code(
    "tls-reload-failed",
    "TLS reload failed, still using the previous certificates: {fault}",
    "The new files of the section `tls` cannot be used together, or others would refuse them. Open "
    "connections and the certificate in use stay.",
    "Correct the file that the line names. The node reads the files again by itself.",
)
OVERFLOW = Code(
    "overflow-unwritable",
    "cannot write {directory}: {cause}; messages stay in memory until a restart",
    "The node cannot write paged-out messages to its disk. It loses none, but memory is not freed any "
    "more, so publishers may have to wait.",
    "Make room on the disk or repair it. A restart of the node tries again.",
)
DISK_ALARM = Code(
    "disk-alarm",
    "disk: {free} octets free, below the limit of {limit}",
    "The disk of the data directory has less room than `broker.disk_free_limit`. Publishers wait, and "
    "are told by `connection.blocked`.",
    "Make room on the disk, or consume messages. The alarm ends by itself.",
)
MEMORY_ALARM = Code(
    "memory-alarm",
    "memory: {used} octets ({parts}), above the limit of {limit}",
    "Queues, deliveries and unfinished messages take more than `broker.memory_limit`. Publishers wait, "
    "and are told by `connection.blocked`.",
    "Consume messages, or raise the limit. The alarm ends by itself.",
)
DISK_ALARM_OVER = Code(
    "disk-alarm-over",
    "disk: {free} octets free, above the limit of {limit}",
    "The disk has room again, after `disk-alarm`. Publishers go on.",
    "Nothing.",
)
MEMORY_ALARM_OVER = Code(
    "memory-alarm-over",
    "memory: {used} octets ({parts}), below the limit of {limit}",
    "There is room in memory again, after `memory-alarm`. Publishers go on.",
    "Nothing.",
)
PRODUCER_FORGOTTEN = Code(
    "producer-forgotten",
    "{what}",
    "There were more producers with numbers than `producers.most`, so the one that was away longest is "
    "forgotten. The queues know its numbers no longer: what it sends again may be there twice. At most one "
    "line a second names one, with how many others there were.",
    "If it still sends, raise `producers.most`. If clients make up a name for each process, "
    "give them names that stay the same.",
    example="producer 'shop' of virtual host '/' is forgotten: there may be 10000 (producers.most)",
)
CLOSED_LATE = Code(
    "connections-closed-late",
    "{connections} connections did not close in time",
    "The node was asked to end, and clients did not answer the close. The node ended their connections.",
    "Nothing.",
)
