"""The OCF resource agent: lets Pacemaker start, watch, promote, demote and stop a broker of a pair.

Standard library only, for Python 3.9 and later: it runs on the system's Python, outside the broker's virtual
environment, and uses the broker's command line and control socket. `understudy agent install` installs the
script `understudy` and these modules.
"""
