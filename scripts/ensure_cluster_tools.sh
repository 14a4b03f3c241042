#!/bin/sh
# What the tests of deploy/ hold its files against: the tools of Pacemaker, corosync, crmsh and pcs, HAProxy, keepalived,
# systemd and others. As root with apt-get, those that are missing are installed, and no service of theirs is started;
# otherwise one line names them. The exit code is 0 either way: without them the tests say why they are skipped.
set -u
PATH="${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export PATH

missing=
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need corosync corosync
need pacemakerd pacemaker
need crm_simulate pacemaker-cli-utils
need crm crmsh
need pcs pcs
need fence_ipmilan fence-agents
need haproxy haproxy
need etcd etcd-server
need etcdctl etcd-client
need keepalived keepalived
need logrotate logrotate
need systemd-analyze systemd
need xmllint libxml2-utils
need shellcheck shellcheck
need promtool prometheus
need strace strace
need curl curl
need ip iproute2
need debootstrap debootstrap
need chromium chromium
need chromedriver chromium-driver
[ -e /usr/lib/ocf/resource.d/heartbeat/IPaddr2 ] || missing="$missing resource-agents"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$missing" >&2
    # Debian starts what it installs, unless this file forbids it.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    # shellcheck disable=SC2086  # one word a package
    apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq \
        --no-install-recommends $missing >&2 && exit 0
fi
echo "the tests of deploy/ need$missing" >&2
exit 0
