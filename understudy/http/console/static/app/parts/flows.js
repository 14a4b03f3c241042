// From where messages come, and where they go: of a queue by exchange and channel, of an exchange by channel and queue.
import {html} from "../core/dom.js";
import {count, rate} from "../core/format.js";
import {ChannelLink, ExchangeLink, Panel, QueueLink} from "./basics.js";
import {Table} from "./table.js";

const numbers = (key, label) => [
  {key, label, isNumber: true, render: (row) => count(row.stats[key])},
  {key: "rate", label: "Now", isNumber: true, render: (row) => rate(row.stats[`${key}_details`]?.rate ?? 0)},
];
const channel = {key: "channel", label: "Channel", render: (row) => html`<${ChannelLink} of=${row.channel_details} />`};

export const FROM_EXCHANGES = [
  {key: "exchange", label: "Exchange", render: (row) => html`<${ExchangeLink} ...${row.exchange} />`}, ...numbers("publish", "Messages"),
];
export const FROM_CHANNELS = [channel, ...numbers("publish", "Messages")];
export const TO_QUEUES = [
  {key: "queue", label: "Queue", render: (row) => html`<${QueueLink} ...${row.queue} />`}, ...numbers("publish", "Messages"),
];
export const TO_CHANNELS = [
  channel, ...numbers("deliver_get", "Delivered"),
  {key: "ack", label: "Acked", isNumber: true, render: (row) => count(row.stats.ack)},
];

const SHOWN = 10;
const messages = (row) => row.stats.publish ?? row.stats.deliver_get;

/** Nothing where no message has passed. */
export function Flows({came = [], cameColumns, went = [], wentColumns}) {
  if (!came.length && !went.length) return null;
  const table = (rows, columns, label) => {
    if (!rows.length) return html`<p class="empty">None yet.</p>`;
    const most = [...rows].sort((a, b) => messages(b) - messages(a)).slice(0, SHOWN);
    return html`<${Table} label=${label} rows=${most} columns=${columns} />
      ${rows.length > SHOWN && html`<p class="hint">Those with most messages, of ${count(rows.length)}.</p>`}`;
  };
  return html`
    <div class="columns">
      <${Panel} title="Incoming">${table(came, cameColumns, "Incoming")}</${Panel}>
      <${Panel} title="Outgoing">${table(went, wentColumns, "Outgoing")}</${Panel}>
    </div>`;
}
