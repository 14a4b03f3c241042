# A node: the wheel of this checkout, its agent, and the same wheel with another version, for upgrades.
ARG PARENT
FROM $PARENT
COPY wheels /opt/wheels
COPY root /
RUN /opt/understudy/bin/pip install --quiet --no-index --no-deps $(ls /opt/wheels/*.whl | grep -v next) \
 && ln -s /opt/understudy/bin/understudy /usr/bin/understudy \
 && /usr/local/sbin/lab-install
ENTRYPOINT ["/usr/local/sbin/lab-init"]
