"""What the client kit and the brokers share: the codec of AMQP 1.0, and words for faults of files and TLS.

This package lies below all others and imports none of them. So an application with the kit loads no broker.
"""
