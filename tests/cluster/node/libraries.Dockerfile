# A virtual environment with what the broker needs. The wheels lie beside this file: no index is asked.
ARG PARENT
FROM $PARENT
COPY wheels /tmp/wheels
RUN python3 -m venv /opt/understudy \
 && /opt/understudy/bin/pip install --quiet --no-index --no-deps /tmp/wheels/*.whl \
 && rm -rf /tmp/wheels
