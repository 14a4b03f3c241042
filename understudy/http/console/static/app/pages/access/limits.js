// Limits of virtual hosts, of users, and of this node.
import {html} from "../../core/dom.js";
import {path, put, remove} from "../../core/api.js";
import {count, named, octets, plain} from "../../core/format.js";
import {useLive, usePolled} from "../../core/live.js";
import {serves} from "../../core/pair.js";
import {Panel, Title, Trouble} from "../../parts/basics.js";
import {useDialogs} from "../../parts/dialogs.js";
import {Table} from "../../parts/table.js";
import {useVhostNames} from "../../parts/vhosts.js";

const KINDS = {
  vhost: {kind: "vhost-limits", of: "vhost", label: "Virtual host", names: ["max-connections", "max-queues"]},
  user: {kind: "user-limits", of: "user", label: "User", names: ["max-connections", "max-channels"]},
};

export function Limits() {
  const {status} = useLive();
  const vhosts = useVhostNames();
  const users = usePolled("users", 60).data;
  const canChange = serves(status);
  return html`
    <${Title}>Limits</${Title}>
    <div class="columns">
      <${Of} ...${KINDS.vhost} choices=${vhosts} canChange=${canChange} />
      <${Of} ...${KINDS.user} choices=${Array.isArray(users) ? users.map((each) => each.name) : []} canChange=${canChange} />
    </div>
    <${Nodes} />`;
}

function Of({kind, of, label, names, choices, canChange}) {
  const {confirm, form} = useDialogs();
  const {data, error, refresh} = usePolled(kind, 10);
  const rows = (Array.isArray(data) ? data : []).flatMap((each) =>
    Object.entries(each.value ?? {}).map(([name, limit]) => ({who: each[of], name, limit})));
  const set = () => form({
    title: "Set a limit", verb: "Set",
    fields: [
      {name: "who", label, kind: "choice", options: choices, value: choices[0]},
      {name: "name", label: "Limit", kind: "choice", options: names, value: names[0]},
      {name: "value", label: "At most", kind: "number", required: true, hint: "A negative number: no limit."},
    ],
    act: ({who, name, value}) => put(`${kind}/${path`${who}/${name}`}`, {value}),
    said: () => { refresh(); return "The limit is set."; },
  });
  const clear = (row) => confirm({
    title: "Clear the limit", verb: "Clear",
    text: html`<p>${plain(row.name)} of <b>${named(row.who)}</b> will have no limit.</p>`,
    act: () => remove(`${kind}/${path`${row.who}/${row.name}`}`),
    said: () => { refresh(); return "The limit is cleared."; },
  });
  const columns = [
    {key: "who", label, render: (row) => named(row.who)},
    {key: "name", label: "Limit", render: (row) => plain(row.name)},
    {key: "limit", label: "At most", isNumber: true, render: (row) => count(row.limit)},
    ...(canChange ? [{key: "clear", label: "", render: (row) => html`<button type="button" class="button quiet" onClick=${() => clear(row)}>Clear</button>`}] : []),
  ];
  return html`
    <${Panel} title=${`Of a ${label.toLowerCase()}`}
      actions=${canChange && choices.length > 0 && html`<button type="button" class="button" onClick=${set}>Set a limit</button>`}>
      <${Trouble} error=${error} />
      ${rows.length ? html`<${Table} label=${`Limits of a ${label.toLowerCase()}`} rows=${rows} columns=${columns} />`
        : !error && html`<p class="empty">No limits.</p>`}
    </${Panel}>`;
}

function Nodes() {
  const {data, error} = usePolled("nodes");
  const rows = (data ?? []).filter((node) => node.mem_limit !== undefined).flatMap((node) => [
    {node: node.name, what: "Memory", used: octets(node.mem_used), limit: octets(node.mem_limit), isOver: node.mem_alarm},
    {node: node.name, what: "Free disk", used: octets(node.disk_free), limit: `at least ${octets(node.disk_free_limit)}`, isOver: node.disk_free_alarm},
    {node: node.name, what: "Open files", used: count(node.fd_used), limit: count(node.fd_total)},
    {node: node.name, what: "Sockets", used: count(node.sockets_used), limit: count(node.sockets_total)},
  ]);
  const columns = [
    {key: "what", label: "What"},
    {key: "node", label: "Node", render: (row) => plain(row.node)},
    {key: "used", label: "Now", isNumber: true, isWide: true},
    {key: "limit", label: "Limit", isNumber: true, isWide: true},
    {key: "isOver", label: "Alarm", render: (row) => (row.isOver ? html`<b class="bad">alarm</b>` : "no")},
  ];
  return html`<${Panel} title="Of a node" wide=${true}>
    <p class="hint">Settings of the configuration file. A node over a limit of memory or disk pauses publishers.</p>
    <${Trouble} error=${error} />
    ${rows.length > 0 && html`<${Table} label="Limits of a node" rows=${rows} columns=${columns} />`}</${Panel}>`;
}
