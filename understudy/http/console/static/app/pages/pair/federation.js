// Federation as this node sees it: a map, the agents, the links and the routes.
import {html} from "../../core/dom.js";
import {count, named, plain} from "../../core/format.js";
import {useLive} from "../../core/live.js";
import {NARROW, useMedia} from "../../core/media.js";
import {Badge, Empty, Panel, Title} from "../../parts/basics.js";
import {Map} from "../../parts/map.js";
import {Table} from "../../parts/table.js";

const tone = (state) => ({running: "ok", open: "ok", off: "plain", connecting: "wait", starting: "wait"})[state] ?? "bad";
const State = ({of: row}) => html`<${Badge} tone=${tone(row.state)}>${plain(row.state)}</${Badge}> <span class="faint">${plain(row.reason ?? "")}</span>`;
const does = ({consume_mode: takes, forward_mode: gives}) =>
  [takes === "all" && "takes", gives !== "none" && `gives ${gives}`].filter(Boolean).join(", ") || "nothing";

const AGENTS = [
  {key: "exchange", label: "Exchange", render: (row) => named(row.exchange, "(default)")},
  {key: "vhost", label: "Virtual host", render: (row) => named(row.vhost)},
  {key: "upstream", label: "Upstream", render: (row) => named(row.upstream)},
  {key: "state", label: "State", render: (row) => html`<${State} of=${row} />`},
  {key: "consume_mode", label: "Way", render: (row) => plain(does(row))},
  {key: "promise", label: "Promise", render: (row) => plain(row.promise)},
  {key: "taken", label: "Taken", isNumber: true, render: (row) => count(row.taken)},
  {key: "given", label: "Given", isNumber: true, render: (row) => count(row.given)},
  {key: "waiting", label: "Waiting", isNumber: true, render: (row) => count(row.waiting)},
  {key: "unrouted", label: "Unrouted", isNumber: true, render: (row) => count(row.unrouted)},
];
const LINKS = [
  {key: "node", label: "Node", render: (row) => named(row.node)},
  {key: "exchange", label: "Exchange", render: (row) => named(row.exchange, "(default)")},
  {key: "vhost", label: "Virtual host", render: (row) => named(row.vhost)},
  {key: "way", label: "Way", render: (row) => plain(row.way ?? "takes")},
  {key: "messages", label: "Waiting", isNumber: true, render: (row) => count(row.messages)},
  {key: "unacknowledged", label: "Under way", isNumber: true, render: (row) => count(row.unacknowledged)},
  {key: "sent", label: "Sent", isNumber: true, render: (row) => count(row.sent)},
];
const ROUTES = [
  {key: "node", label: "Node", render: (row) => named(row.node, "(none)")},
  {key: "path", label: "By way of", render: (row) => plain(row.path).split(" ").join(" → ")},
  {key: "state", label: "State", render: (row) => html`<${State} of=${row} />`},
  {key: "waiting", label: "Waiting", isNumber: true, render: (row) => count(row.waiting)},
];

export function Federation() {
  const {status} = useLive();
  const isNarrow = useMedia(NARROW);
  const found = status?.federation ?? {};
  const {agents = [], links = [], routes = [], upstreams = []} = found;
  const isEmpty = !agents.length && !links.length && !routes.length && !upstreams.length;
  return html`
    <${Title} sub=${found.node ? `This broker is the node ${plain(found.node)} of the federation.` : "This broker has no name in a federation (federation.node)."}>Federation</${Title}>
    ${isEmpty ? html`<${Panel} wide=${true}><${Empty}>No upstream, no agent and no link. <code>understudy federate</code> makes them.</${Empty}></${Panel}>` : html`
      <${Panel} title="Map" wide=${true}><${Map} node=${found.node || status.name} agents=${agents} links=${links} routes=${routes} isNarrow=${isNarrow} /></${Panel}>
      <${Panel} title="Agents" wide=${true}><${Lines} rows=${agents} columns=${AGENTS} label="Agents" /></${Panel}>
      <${Panel} title="Links of other nodes" wide=${true}><${Lines} rows=${links} columns=${LINKS} label="Links" /></${Panel}>
      <${Panel} title="Routes" wide=${true}><${Lines} rows=${routes} columns=${ROUTES} label="Routes" /></${Panel}>`}`;
}

const Lines = ({rows, columns, label}) =>
  (rows.length ? html`<${Table} rows=${rows} columns=${columns} label=${label} />` : html`<${Empty}>None.</${Empty}>`);
