# A machine of the lab: Debian with Pacemaker, corosync and their tools, and nothing of the project's yet.
ARG PARENT
FROM $PARENT
ENV DEBIAN_FRONTEND=noninteractive
RUN printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d \
 && apt-get update -qq \
 && apt-get install -qq -y --no-install-recommends \
      corosync corosync-qdevice corosync-qnetd crmsh curl iproute2 iputils-arping libxml2-utils nftables \
      pacemaker pacemaker-cli-utils pacemaker-resource-agents procps python3 python3-venv resource-agents \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
