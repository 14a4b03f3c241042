"""The `pacemaker` authority: the in-sync record lives in Pacemaker's CIB, as a compare-and-set register.

`cib`, `standing` and `procedure` are pure; `commands` and `helper` are a process of their own, which the
daemon's `driver` starts and asks.
"""
