"""Codes of the configuration, HTTP and the commands. See `understudy.shared.codes`."""

from __future__ import annotations

from understudy.shared.codes import Code

# -- a command and its node

NODE_UNREACHABLE = Code(
    "node-unreachable",
    "{cause}",
    "The command got no connection to the node, or the node closed it before the command asked. "
    "Nothing was asked, so nothing was changed.",
    "Check that the node runs, and check `--broker` and the `--tls` options.",
    example="cannot reach 127.0.0.1:5672: Connection refused",
)
NODE_REFUSED_CONNECTION = Code(
    "node-refused-connection",
    "{address} refused the connection of user {user!r}: {why}",
    "The node closed the connection with an AMQP reply code, such as 403 for a wrong password or for a "
    "user who is no administrator. Nothing was asked.",
    "Act on the text. After 403 check `--user` and `--password`. The log of the node says why it refused.",
)
NODE_NO_ANSWER = Code(
    "node-no-answer",
    "{cause}",
    "The node got the question, and no answer came. It may have done what was asked, or may still do it.",
    "Look before you ask again: `understudy status` tells who serves.",
    example="127.0.0.1:5672 did not answer within 5 s",
)
QUESTION_TOO_LARGE = Code(
    "question-too-large",
    "the question has {octets} octets, and {address} takes {room}",
    "The question does not fit into one frame of the node. Nothing was asked.",
    "Ask for less at once, or raise `broker.frame_max`.",
)
NO_REASON = Code(
    "refused-without-reason",
    "the node refused without a reason",
    "The node answered no and gave no reason: it runs another version.",
    "Compare the versions of the command and the node.",
)
BAD_ANSWER = Code(
    "node-bad-answer",
    "cannot use the answer of the node: {fault}",
    "The node answered with something that this version does not understand.",
    "Compare the versions of the command and the node.",
)
NOT_READY = Code(
    "node-not-ready",
    "{name} is {status}{but}: {reason}",
    "`understudy ready` asked until its time was over. The node does not serve, and could not serve at once.",
    "Act on the reason. While a node catches up, wait.",
)
NODE_REFUSES = Code(
    "node-refused",
    "{reason}",
    "The node refused the command, and gave a reason without a code.",
    "Act on the reason. A node of this version gives a code with most reasons.",
    example="a does not serve",
)
NOT_THERE = Code(
    "object-not-found",
    "{address}: there is no {what}",
    "The virtual host, user, permission or policy that the command names does not exist.",
    "List what there is, for example with `understudy user list`. Check the spelling.",
)
USER_EXISTS = Code(
    "user-exists",
    "{address}: user {name!r} exists already: {way}",
    "`understudy user add` changes no user that exists.",
    "Use `understudy user password` and `tags`, or change the configuration if the user is made there.",
)

MESSAGE_UNROUTED = Code(
    "message-unrouted",
    "{address}: the message is not in every queue that it was for: {why}",
    "`understudy publish` reached no queue, or a queue that rejects publishes at its limit.",
    "Look at the bindings of the exchange, or at the length of the queue.",
)

# -- starting a node

CONFIG_INVALID = Code(
    "config-invalid",
    "{fault}",
    "A key, a value or a file of the configuration is wrong, or two keys contradict each other. The "
    "node did not start, and a command did not begin.",
    "Correct the key that the line names. The configuration page has every key.",
    example="tls.key: /etc/understudy/node.key: is not the key of the certificate",
)
LISTEN_FAILED = Code(
    "listen-failed",
    "cannot listen on {address}: {cause}",
    "The node cannot open one of its listeners, and did not start.",
    "Stop the process that uses the port, or correct the address. `ss -ltnp` shows the listeners.",
)
NO_CIBADMIN = Code(
    "cibadmin-missing",
    "ha.authority is 'pacemaker', but this machine has no cibadmin: install pacemaker-cli-utils",
    "The node keeps its in-sync set in Pacemaker's configuration, and cannot reach it without `cibadmin`.",
    "Install the package `pacemaker-cli-utils`, or set `ha.authority` to `manual`.",
)
ETCD_FILE = Code(
    "etcd-file-unusable",
    "{key}: {file} cannot be used: {cause}",
    "The node needs this file for TLS with etcd, and did not start.",
    "Correct the path, the file or its permissions.",
)
LEDGER_FAILED = Code(
    "ledger-unusable",
    "{fault}",
    "The node cannot open its ledger, and did not start.",
    "Make the folder of `ledger.dir` writable, or make room on the disk.",
    example="cannot open ledger /var/lib/understudy/ledger: Permission denied",
)

# -- a node that runs

NODE_STARTED = Code(
    "node-started",
    "{node} is {status}, with its data in {folder}",
    "The node has read its data directory and opened its listeners.",
    "Nothing.",
)
BUILD = Code(
    "node-build",
    "runs {build}",
    "The node runs compiled modules, which are faster, or those of plain Python, and why. Both do the same.",
    "Nothing. A wheel for this Python and machine has compiled modules.",
)
NODE_ENDED = Code(
    "node-ended",
    "stopped, with everything flushed",
    "The node was asked to end, and has ended in order.",
    "Nothing.",
)
LISTENS = Code(
    "listener-open",
    "{what} on {address}",
    "The node takes connections at this address.",
    "Nothing.",
)
CLIENTS_LIMITED = Code(
    "clients-limited",
    "accepts at most {clients} clients: the limit of open files is low",
    "The process may open fewer files than `broker.max_connections` and the reserve need.",
    "Raise the limit of open files (`LimitNOFILE` in the unit).",
)
NO_AMQP10 = Code(
    "amqp10-not-installed",
    "no AMQP 1.0: python-qpid-proton is not installed (pip install 'understudy-amqp[amqp10]')",
    "The node speaks AMQP 0-9-1 only.",
    "Nothing, or install the extra `amqp10`.",
)
NOTHING_TO_READ = Code(
    "sighup-without-tls",
    "SIGHUP: there are no files of TLS to read again, and nothing else is read again",
    "The node got SIGHUP and has no section `tls`.",
    "Restart the node after a change of its configuration.",
)
TLS_IN_USE = Code(
    "tls-in-use",
    "TLS by {certificate}",
    "The node has read the files of the section `tls`.",
    "Nothing.",
)
TLS_READ_AGAIN = Code(
    "tls-read-again",
    "TLS files were read again: {certificate}",
    "The files of the section `tls` have changed, or the node got SIGHUP. New connections use them.",
    "Nothing.",
)

NODE_STOPPED = Code(
    "node-stopped",
    "stopped: {reason}",
    "The node ended by itself, because going on could lose or fork data, or after a fault of the program.",
    "Act on the reason. systemd or Pacemaker starts the node again; in a pair, the other node takes over.",
)
FILES_EXHAUSTED = Code(
    "open-files-exhausted",
    "cannot accept connections: {cause}",
    "The process or the machine has no free file descriptor or memory for one more connection. The "
    "node tries again every second.",
    "Raise the limit of open files (`LimitNOFILE` in the unit), or close idle connections.",
)
TLS_REFUSED_BY_OTHERS = Code(
    "tls-certificate-flawed",
    "others refuse this node's certificate: {fault}",
    "The node uses the certificate, but whoever checks it refuses the node: wrong authority, host or date.",
    "Replace the file of `tls.certificate`. The node reads it again by itself.",
)
TLS_EXPIRES = Code(
    "tls-certificate-expires",
    "{certificate}, expires in {days:.1f} days",
    "The node's certificate expires within 14 days. The line comes once a day.",
    "Replace the file of `tls.certificate`. The node reads it again by itself.",
)
TLS_EXPIRED = Code(
    "tls-certificate-expired",
    "{certificate}, has expired: whoever checks it refuses this node",
    "The node's certificate has expired. Clients and peers that check it cannot connect.",
    "Replace the file of `tls.certificate` now. The node reads it again by itself.",
)

# -- HTTP

HTTP_LOGIN = Code(
    "http-login-required",
    "log in as a user who may do this",
    "The request has no user name and password, or they are wrong.",
    "Send HTTP basic authentication of a user who has the tag for this: mostly `administrator`.",
)
HTTP_NOT_ADMINISTRATOR = Code(
    "http-not-administrator",
    "{user} is not an administrator",
    "The login is right, but the user may not manage the node.",
    "Log in as another user, or add the tag: `understudy user tags`.",
)
HTTP_NO_TAG = Code(
    "http-no-tag",
    "{user} has none of the tags that may ask for this: {tags}",
    "The login is right, but the tags of the user do not allow this request.",
    "Log in as another user, or add a tag: `understudy user tags`.",
)
HTTP_NOT_FOUND = Code(
    "http-not-found",
    "there is no {what}",
    "A request names something that does not exist.",
    "Correct the name in the path. Names are percent-encoded: the virtual host / is %2F.",
)
HTTP_NO_VHOST = Code(
    "http-no-virtual-host",
    "{user} has no permission in the virtual host {vhost!r:.300}",
    "The user of the request may not see this virtual host.",
    "Log in as another user, or give it a permission: `understudy permission set`.",
)
HTTP_PAGE = Code(
    "http-page-out-of-range",
    "Page out of range, page: {page} page size: {size}, len: {length}",
    "The list has fewer pages.",
    "Ask for an earlier page.",
)
AUDIT = Code(
    "http-change",
    "{user} from {host}: {what} {names}",
    "Somebody changed something over HTTP. This is the audit log.",
    "Nothing to do.",
)
HTTP_LOGINS_BUSY = Code(
    "http-logins-busy",
    "{cause}",
    "Too many passwords wait for their check.",
    "Ask again after a second. If it lasts, find out who sends wrong passwords: the log names addresses.",
    example="too many passwords wait to be checked; try again in a second",
)
HTTP_BUSY = Code(
    "http-busy",
    "too many requests of administrators are under way: ask again",
    "Every place for requests of administrators is taken.",
    "Ask again. Send fewer requests at once.",
)
HTTP_NO_FILE = Code(
    "http-no-file",
    "there is no such file",
    "The console has no file of this name, or the folder of reports has none.",
    "Look at the address. Reports: the setting `console.reports`.",
)
HTTP_EVENTS_FULL = Code(
    "http-events-full",
    "{listeners} listeners follow the events of this node: ask again",
    "The number of open streams of `/api/events` is limited.",
    "Close pages of the console that nobody looks at, then ask again.",
)
HTTP_REPUBLISHING = Code(
    "http-republishing",
    "a republish from the quarantine of this node is under way",
    "Only one republish at a time runs over HTTP.",
    "Wait until it has ended, then look at what is left.",
)
HTTP_FULL = Code(
    "http-full",
    "all {places} places are taken: the longest silent goes, {peer}",
    "As many HTTP connections are open as the node takes. It closed one that had not logged in.",
    "Find out who opens connections and keeps them.",
)
HTTP_ALL_VOUCHED = Code(
    "http-full-of-administrators",
    "connection refused: {places} are open, all of administrators",
    "As many HTTP connections are open as the node takes, all with a request of an administrator under way.",
    "Send fewer requests at once.",
)
HTTP_REQUESTS_FULL = Code(
    "http-request-refused",
    "request refused: {requests} of administrators are under way",
    "The node answered `http-busy` to a request of an administrator.",
    "Send fewer requests at once.",
)
HTTP_SLOW = Code(
    "http-request-slow",
    "{peer}: its request was not whole within {limit:g} s",
    "An HTTP client sent its request too slowly. The node closed the connection.",
    "Find out what the client does, or whether the network is slow.",
)
HTTP_BAD_ARGUMENTS = Code(
    "http-bad-arguments",
    "{fault}",
    "The body or the query of the request is wrong. Nothing was changed.",
    "Correct the request as the reason says.",
    example="the request must have exactly one Host header",
)
HTTP_TIMEOUT = Code(
    "http-body-timeout",
    "the body did not come in time",
    "The client did not send the whole body within the limit. Nothing was changed.",
    "Send the body at once.",
)
HTTP_NOT_JSON = Code(
    "http-not-json",
    "the body must be JSON: send Content-Type: application/json",
    "The request does not call its body JSON. The node refuses it, because a page in a browser can "
    "send other types without being asked.",
    "Add the header `Content-Type: application/json`.",
)
HTTP_UNKNOWN_HOST = Code(
    "http-unknown-host",
    "this node is not known as {host}: use its address, or add the name to broker.http_hosts",
    "The `Host` of the request is no name of this node. This keeps pages of other sites out.",
    "Use an address of the node, or add the name to `broker.http_hosts`.",
)
HTTP_FOREIGN_PAGE = Code(
    "http-foreign-page",
    "a page of another site may not ask for this",
    "A page of another site sent the request from a browser.",
    "Send commands from pages of the node's own address, or by a client that is no browser.",
)
HTTP_FOREIGN_ORIGIN = Code(
    "http-foreign-origin",
    "a page of {origin} may not ask {host} for this: a proxy in between must pass on Host, and "
    "broker.http_hosts must have that name",
    "The `Origin` of the request is no name of this node: a page of another site sent it, or a proxy changed "
    "the `Host`.",
    "Behind a proxy, pass on `Host`, and add that name to `broker.http_hosts`.",
)
HTTP_FAILED = Code(
    "http-internal-error",
    "a request of HTTP failed: {cause}",
    "The node failed while it answered a request of HTTP. The traceback follows.",
    "Report it, with the traceback.",
)

# -- definitions

DEFINITIONS_INVALID = Code(
    "definitions-invalid",
    "{fault}",
    "The file of definitions is wrong. Nothing was changed.",
    "Correct the place that the line names.",
    example="rabbit.json: not a definitions file: it is no JSON object",
)
DEFINITIONS_UNSUPPORTED = Code(
    "definitions-unsupported",
    "{fault}; nothing was changed",
    "The file has definitions that Understudy does not support, and `--strict` was given.",
    "Remove them from the file, or import without `--strict`.",
)
DEFINITIONS_STOPPED = Code(
    "definitions-stopped",
    "{address}: stopped after {done:,} of {all:,}: {cause}; you may import the file again",
    "The broker went away, or stopped serving, during the import. A part of the file is declared.",
    "Import the same file again at the primary: what is there already stays.",
)
NO_AMQP_LISTENER = Code(
    "http-no-amqp-listener",
    "this node has no AMQP listener",
    "An import over HTTP declares over AMQP, and this node has no listener for clients.",
    "Set `broker.listen`, or import at another node.",
)

# -- files and programs of a command

FILE_FAILED = Code(
    "file-unusable",
    "{fault}",
    "A command cannot read or write the file that the line names.",
    "Correct the path or the rights, or make room on the disk.",
    example="orders.json: No such file or directory",
)
ARCHIVE_FAILED = Code(
    "archive-failed",
    "{fault}",
    "`understudy backup` or `restore` stopped: something would be lost, the archive is damaged, or the "
    "disk fails.",
    "Act on the line. Take a new archive if this one is damaged.",
    example="/backup/monday/manifest.json is damaged: ...",
)
QUARANTINE_NONE = Code(
    "quarantine-no-message",
    "no {what} in {folder}",
    "The quarantine has no message of that queue or number.",
    "List the messages: `understudy quarantine list`.",
)
QUARANTINE_UNREADABLE = Code(
    "quarantine-unreadable",
    "{fault}",
    "A file of the quarantine, or the notes of what was republished, cannot be used.",
    "Act on the line, which names the file and the place in it.",
    example="/var/lib/understudy: no such folder",
)
REPUBLISH_STOPPED = Code(
    "republish-stopped",
    "stopped: {why} ({confirmed:,} confirmed, {noted:,} noted, {in_doubt:,} in doubt, {not_sent:,} not sent)",
    "`understudy quarantine republish` ended before it had published every message. Messages in doubt were "
    "sent and not confirmed. The files of the quarantine stay as they are.",
    "Remove the cause, and run the same command again: it leaves out messages that are noted as confirmed. "
    "Give `--in-doubt` only if duplicates do no harm.",
)
AGENT_FAILED = Code(
    "agent-not-installed",
    "cannot install the agent: {fault}",
    "`understudy agent install` stopped. Pacemaker keeps using what was installed before.",
    "Act on the line, and install again.",
)
DEPLOY_EXISTS = Code(
    "deploy-file-exists",
    "{path} exists and differs: --force replaces it",
    "`understudy deploy show --output` found a file that it would have to replace. It wrote nothing.",
    "Compare the two files. Then choose another folder, or give `--force`.",
)
PAIR_ENDED = Code(
    "pair-ended",
    "node {node} ended: {cause}",
    "A node of `understudy pair` ended before the pair was whole.",
    "Act on the cause, or read the logs in the folder that the command uses.",
)
PAIR_BOTH_ENDED = Code(
    "pair-both-ended",
    "both nodes have ended",
    "Somebody or something ended both nodes of `understudy pair`.",
    "Start the pair again.",
)
PAIR_LATE = Code(
    "pair-not-in-time",
    "waited {seconds:.0f} s for {what}; see {logs}",
    "A node of `understudy pair` did not get as far as it should.",
    "Read the logs in the folder that the line names.",
)
DEMO_FAILED = Code(
    "demo-failed",
    "{fault}",
    "`understudy demo` stopped before it had a verdict.",
    "Read the logs in the folder that the line names.",
    example="reconcile ended with exit code 1 and no answer; see /tmp/demo/logs",
)
SPARK_MISSING = Code(
    "spark-missing",
    "{fault}",
    "The command needs PySpark and Java, and one of them is missing.",
    "Install what the line names.",
    example="PySpark is not installed: pip install 'understudy-amqp[spark]'",
)
