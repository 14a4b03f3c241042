import {html} from "../../core/dom.js";
import {count, plain} from "../../core/format.js";
import {Arguments, Badge, ConnectionLink, QueueLink, Title} from "../../parts/basics.js";
import {Listing} from "../../parts/table.js";

export const CONSUMER_COLUMNS = [
  {key: "consumer_tag", label: "Tag", render: (row) => plain(row.consumer_tag)},
  {key: "queue", label: "Queue", sort: (row) => row.queue?.name, render: (row) => html`<${QueueLink} ...${row.queue} />`},
  {key: "channel", label: "Connection", sort: (row) => row.channel_details?.connection_name, render: (row) => html`
    <${ConnectionLink} name=${row.channel_details?.connection_name ?? ""} /> <span class="faint">channel ${row.channel_details?.number}</span>`},
  {key: "ack_required", label: "Acks", render: (row) => (row.ack_required ? "by the consumer" : "automatic")},
  {key: "prefetch_count", label: "Prefetch", isNumber: true, render: (row) => (row.prefetch_count ? count(row.prefetch_count) : "no limit")},
  {key: "active", label: "Active", sort: false, render: (row) => (row.active === false ? html`<${Badge} tone="plain">waiting</${Badge}>` : html`<${Badge} tone="ok">active</${Badge}>`)},
  {key: "exclusive", label: "Exclusive", render: (row) => (row.exclusive ? "yes" : "no")},
  {key: "arguments", label: "Arguments", sort: false, render: (row) => html`<${Arguments} of=${row.arguments} />`},
];

export const Consumers = () => html`
  <${Title}>Consumers</${Title}>
  <${Listing} where="consumers" noun="consumers" columns=${CONSUMER_COLUMNS}
    rowKey=${(row) => [row.channel_details?.name, row.consumer_tag].join("\u0000")} />`;
