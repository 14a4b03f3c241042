"""The thinking half of high availability: synchronous state machines without sockets, clocks, threads or
files.
"""
