#!/bin/sh
# Print the home of a Java of 17 or 21, which Spark 4 needs, installing one when none is found and we may.
#
# Looked for in this order: JAVA_HOME, the java on PATH, every home below /usr/lib/jvm (or $JVM_DIRS). Then, as
# root with apt-get, openjdk-17-jre-headless is installed, or 21 where a release has no 17. Otherwise one line
# names what to install, and the exit code is 1. Only the path goes to standard output.
set -u
PATH="${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export PATH
jvm_dirs=${JVM_DIRS:-/usr/lib/jvm}

fits() {
    [ -n "$1" ] && [ -x "$1/bin/java" ] || return 1
    case $("$1/bin/java" -version 2>&1) in
        *'version "17'[.\"]* | *'version "21'[.\"]*) return 0 ;;
    esac
    return 1
}

offer() {
    if fits "$1"; then
        echo "$1"
        exit 0
    fi
}

search() {
    offer "${JAVA_HOME:-}"
    on_path=$(command -v java 2>/dev/null) && offer "$(dirname "$(dirname "$(readlink -f "$on_path")")")"
    for dir in $jvm_dirs; do
        for home in "$dir"/*17* "$dir"/*21* "$dir"/*; do
            offer "$home"
        done
    done
}

search
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && [ -z "${ENSURE_JAVA_OFFLINE:-}" ]; then
    echo "no Java 17 or 21 found: installing openjdk-17-jre-headless" >&2
    {
        apt-get update -qq
        for version in 17 21; do
            DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq \
                --no-install-recommends "openjdk-$version-jre-headless" && break
        done
    } >&2
    search
fi
echo "Spark needs Java 17 or 21: install openjdk-17-jre-headless, or set JAVA_HOME to one" >&2
exit 1
