#!/bin/sh
# Print the path of a Python of 3.11 or newer that can make virtual environments, or one line saying what to
# install. $PYTHON, when set, is tried first. As root on a Debian-like machine a missing venv module is
# installed. Called by the Makefile.
set -u
PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
export PATH

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
makes_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

without_venv=
for name in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3.14 python3 python; do
    found=$(command -v "$name" 2>/dev/null) || continue
    new_enough "$found" || continue
    if makes_venvs "$found"; then
        "$found" -c "import sys; print(sys.executable)"
        exit 0
    fi
    without_venv=${without_venv:-$found}
done

if [ -z "$without_venv" ]; then
    echo "understudy needs Python 3.11 or newer; install python3 and python3-venv" >&2
    exit 1
fi
package=$("$without_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    {
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq "$package" ||
            DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq python3-venv
    } >&2
    if makes_venvs "$without_venv"; then
        "$without_venv" -c "import sys; print(sys.executable)"
        exit 0
    fi
fi
echo "$without_venv cannot make virtual environments; install $package (or python3-venv)" >&2
exit 1
