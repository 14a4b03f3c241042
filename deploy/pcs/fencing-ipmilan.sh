#!/bin/sh
# What switches a silent node off, for pcs: here by its management board, with fence_ipmilan (fence-agents). Fill it
# in with ../fill.sh; arguments go to each pcs, as in understudy.sh. ../crmsh/fencing-ipmilan.crm says the same for
# crmsh, and which other devices fit.
set -eu

pcs "$@" stonith create fence-@NODE_A@ fence_ipmilan \
    pcmk_host_list=@NODE_A@ ip=@BOARD_A@ username=@BOARD_USER@ \
    password_script=@BOARD_PASSWORD_SCRIPT@ lanplus=true privlvl=operator \
    op monitor interval=60s timeout=60s
pcs "$@" stonith create fence-@NODE_B@ fence_ipmilan \
    pcmk_host_list=@NODE_B@ ip=@BOARD_B@ username=@BOARD_USER@ \
    password_script=@BOARD_PASSWORD_SCRIPT@ lanplus=true privlvl=operator \
    op monitor interval=60s timeout=60s

# No node has to fence itself.
pcs "$@" constraint location fence-@NODE_A@ avoids @NODE_A@=INFINITY
pcs "$@" constraint location fence-@NODE_B@ avoids @NODE_B@=INFINITY
