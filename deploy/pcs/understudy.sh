#!/bin/sh
# The pair and its address, for pcs. Fill it in with ../fill.sh, run the fencing devices first, then this:
#
#   pcs cluster cib pair.xml
#   sh fencing-ipmilan.sh -f pair.xml
#   sh understudy.sh -f pair.xml
#   pcs cluster cib-push pair.xml
#
# Arguments go to each pcs; without any, each command changes the running cluster. ../crmsh/understudy.crm says
# the same for crmsh, and why each value is what it is; a test compares them.
set -eu

pcs "$@" property set stonith-enabled=true no-quorum-policy=stop priority-fencing-delay=@FENCING_DELAY@
pcs "$@" resource defaults update resource-stickiness=100

pcs "$@" resource create understudy ocf:understudy:understudy \
    config=/etc/understudy/understudy.toml \
    op start interval=0s timeout=120s \
    op stop interval=0s timeout=60s \
    op promote interval=0s timeout=120s on-fail=demote \
    op demote interval=0s timeout=30s \
    op notify interval=0s timeout=20s \
    op monitor interval=1s role=Promoted timeout=20s on-fail=demote \
    op monitor interval=2s role=Unpromoted timeout=20s \
    meta priority=10 migration-threshold=6 failure-timeout=60s \
    promotable understudy-clone promoted-max=1 clone-max=2 notify=true \
    --no-default-ops

pcs "$@" resource create understudy-vip ocf:heartbeat:IPaddr2 \
    ip=@VIP@ cidr_netmask=@VIP_PREFIX@ \
    op start interval=0s timeout=20s \
    op stop interval=0s timeout=20s \
    op monitor interval=5s timeout=20s \
    meta migration-threshold=3 failure-timeout=60s \
    --no-default-ops

pcs "$@" constraint colocation add understudy-vip with Promoted understudy-clone INFINITY \
    id=understudy-vip-with-primary
pcs "$@" constraint order promote understudy-clone "then" start understudy-vip \
    kind=Mandatory id=understudy-primary-then-vip
