"""The AMQP broker. It knows nothing of replication: see `hooks`."""

import understudy.shared  # noqa: F401  # first of all: it finds the compiled modules
