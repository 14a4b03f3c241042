"""The OCF resource agent: lets Pacemaker start, watch, promote, demote and stop a broker of a pair.

Standard library only, for Python 3.9 and later: it runs on the system's Python, apart from the broker's
virtual environment, and meets the broker at its command line and its control socket. `understudy agent
install` puts the script `understudy` and these modules in place.
"""
