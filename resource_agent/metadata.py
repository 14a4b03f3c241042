"""The agent's meta-data and usage, as the OCF Resource Agent API 1.1 wants them."""

from __future__ import annotations

from resource_agent.parameters import PARAMETERS

VERSION = "1.0"
METHODS = (
    "start", "stop", "monitor", "promote", "demote", "notify", "reload-agent", "validate-all", "meta-data",
    "usage", "methods",
)  # fmt: skip
_ACTIONS = (
    '<action name="start" timeout="120s" />',
    '<action name="stop" timeout="60s" />',
    '<action name="monitor" depth="0" timeout="20s" interval="2s" role="Unpromoted" />',
    '<action name="monitor" depth="0" timeout="20s" interval="1s" role="Promoted" />',
    '<action name="promote" timeout="120s" />',
    '<action name="demote" timeout="30s" />',
    '<action name="notify" timeout="20s" />',
    '<action name="reload-agent" timeout="10s" />',
    '<action name="validate-all" timeout="10s" />',
    '<action name="meta-data" timeout="5s" />',
)
_DTD_OF_1_1 = """\
<!ATTLIST action name
  (start|stop|monitor|promote|demote|notify|reload-agent|validate-all|meta-data) #REQUIRED>
<!ATTLIST parameter reloadable (1|0) "0" unique-group CDATA #IMPLIED>"""
"""The published DTD is still that of API 1.0: what 1.1 has in addition, so that documents of it are valid."""
_LONG = """
Runs a broker of an Understudy pair, a hot-standby AMQP broker, as a promotable clone. The promoted instance
serves clients; the others follow it, and those that hold every confirmed message are promotable, by the
brokers' own record. Put a virtual IP where the promoted instance is, set notify=true on the clone, and have
fencing: without it nothing is promoted in place of a node that has merely fallen silent.
"""


def metadata(binary: str) -> str:
    """The XML document. `binary`: the default of that parameter, where the program was installed from."""
    parameters = "\n".join(
        _parameter(p.name, binary if p.name == "binary" else p.default, p.short, p.long, p.reloadable,
                   p.unique_group)
        for p in PARAMETERS
    )  # fmt: skip
    return f"""<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd" [
{_DTD_OF_1_1}
]>
<resource-agent name="understudy" version="{VERSION}">
<version>1.1</version>
<longdesc lang="en">{_escape(_LONG)}</longdesc>
<shortdesc lang="en">Manages a broker of an Understudy pair</shortdesc>
<parameters>
{parameters}
</parameters>
<actions>
{chr(10).join(_ACTIONS)}
</actions>
</resource-agent>
"""


def _parameter(name: str, default: str, short: str, long: str, reloadable: bool, group: str) -> str:
    more = (f' unique-group="{group}"' if group else "") + (' reloadable="1"' if reloadable else "")
    return (
        f'<parameter name="{name}"{more} required="0">\n'
        f'<longdesc lang="en">\n{_escape(long)}\n</longdesc>\n'
        f'<shortdesc lang="en">{_escape(short)}</shortdesc>\n'
        f'<content type="string" default="{_escape(default)}" />\n</parameter>'
    )


def _escape(text: str) -> str:
    for raw, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(raw, entity)
    return text


def usage() -> str:
    return f"""usage: understudy {{{"|".join(METHODS)}}}

An OCF resource agent (API 1.1) for a broker of an Understudy pair. Parameters come in the environment, as
OCF_RESKEY_name; the action meta-data lists them.
"""
