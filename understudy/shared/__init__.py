"""Shared by the client kit and the brokers: the codec of AMQP 1.0, and texts for errors of files and TLS.

This package is below all others and imports none of them. So an application with the kit imports no broker.
"""

from understudy.shared import compiled_modules

compiled_modules.install()
