#!/bin/sh
# What the tests with network namespaces need: `ip` (iproute2) and `nft` (nftables). As root with apt-get, those
# that are missing are installed; otherwise one line names them. The exit code is 0 either way: without them the
# tests say why they are skipped.
set -u
PATH="${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export PATH

missing=
command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
command -v nft >/dev/null 2>&1 || missing="$missing nftables"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$missing" >&2
    # shellcheck disable=SC2086  # one word a package
    apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq \
        --no-install-recommends $missing >&2 && exit 0
fi
echo "partitions need$missing, as root" >&2
