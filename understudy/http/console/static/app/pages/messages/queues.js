// All queues, and the form that declares one.
import {html} from "../../core/dom.js";
import {path, put} from "../../core/api.js";
import {count, named, plain, rate} from "../../core/format.js";
import {useLive} from "../../core/live.js";
import {serves} from "../../core/pair.js";
import {Badge, QueueLink, Title} from "../../parts/basics.js";
import {useDialogs} from "../../parts/dialogs.js";
import {Listing} from "../../parts/table.js";
import {useVhostNames} from "../../parts/vhosts.js";

const COLUMNS = [
  {key: "name", label: "Name", sort: "name", render: (row) => html`<${QueueLink} ...${row} />`},
  {key: "vhost", label: "Virtual host", sort: "vhost", render: (row) => plain(row.vhost)},
  {key: "features", label: "Features", sort: false, render: (row) => html`<${Features} of=${row} />`},
  {key: "state", label: "State", sort: "state", render: (row) => html`<${State} of=${row} />`},
  {key: "messages_ready", label: "Ready", sort: "messages_ready", isNumber: true, render: (row) => count(row.messages_ready)},
  {key: "messages_unacknowledged", label: "Unacked", sort: "messages_unacknowledged", isNumber: true, render: (row) => count(row.messages_unacknowledged)},
  {key: "messages", label: "Total", sort: "messages", isNumber: true, render: (row) => count(row.messages)},
  {key: "incoming", label: "In", sort: "message_stats.publish_details.rate", isNumber: true, render: (row) => rate(row.message_stats?.publish_details?.rate ?? 0)},
  {key: "deliver", label: "Out", sort: "message_stats.deliver_get_details.rate", isNumber: true, render: (row) => rate(row.message_stats?.deliver_get_details?.rate ?? 0)},
  {key: "consumers", label: "Consumers", sort: "consumers", isNumber: true, render: (row) => count(row.consumers)},
];

export function State({of: {state}}) {
  if (!state || state === "running" || state === "idle") return html`<span class="calm">${plain(state ?? "running")}</span>`;
  return html`<${Badge} tone=${state === "replica" ? "plain" : "wait"}>${plain(state)}</${Badge}>`;
}

/** What a queue or an exchange is, in a few marks with titles. */
export function Features({of: it}) {
  const args = it.arguments ?? {};
  const marks = [
    it.durable ? ["D", "durable"] : ["T", "transient: gone after a restart"],
    it.auto_delete && ["AD", "deleted with its last consumer or binding"],
    it.exclusive && ["Excl", "exclusive to one connection"],
    it.internal && ["I", "internal: clients cannot publish to it"],
    ...Object.entries(args).filter(([key]) => key !== "x-queue-type").map(([key, value]) => [key.replace(/^x-/, ""), `${key} = ${JSON.stringify(value)}`]),
    it.policy && [it.policy, `policy ${it.policy}`],
    it.operator_policy && [it.operator_policy, `operator policy ${it.operator_policy}`],
  ].filter(Boolean);
  return html`<span class="marks">${marks.map(([mark, title]) => html`<span class="mark" title=${plain(title)}>${plain(mark)}</span>`)}</span>`;
}

export function Queues() {
  const {status} = useLive();
  const {form} = useDialogs();
  const vhosts = useVhostNames();
  const columns = vhosts.length > 1 ? COLUMNS : COLUMNS.filter((it) => it.key !== "vhost");
  const declare = () => form({
    title: "Declare a queue",
    verb: "Declare",
    fields: [
      {name: "name", label: "Name", required: true},
      {name: "vhost", label: "Virtual host", kind: "choice", options: vhosts, value: vhosts[0]},
      {name: "durable", label: "Durable: it survives restarts", kind: "flag", value: true},
      {name: "auto_delete", label: "Delete it with its last consumer", kind: "flag"},
      {name: "arguments", label: "Arguments", kind: "pairs", hint: "One a line, such as x-message-ttl = 60000"},
    ],
    act: ({name, vhost, ...rest}) => put(path`queues/${vhost}/${name}`, rest),
    said: (_answer, {name}) => `Queue ${named(name)} is there.`,
  });
  return html`
    <${Title} actions=${serves(status) && html`<button type="button" class="button" onClick=${declare}>Declare a queue</button>`}>Queues</${Title}>
    <${Listing} where="queues" isPaged=${true} noun="queues" columns=${columns}
      rowKey=${(row) => `${row.vhost}/${row.name}`} empty="No queues yet." />`;
}
