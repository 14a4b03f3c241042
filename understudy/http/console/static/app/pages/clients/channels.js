import {html} from "../../core/dom.js";
import {count, plain, rate} from "../../core/format.js";
import {ConnectionLink, Title} from "../../parts/basics.js";
import {Listing} from "../../parts/table.js";
import {State} from "../messages/queues.js";

const unacked = (row) => row.messages_unacknowledged;

export const CHANNEL_COLUMNS = [
  {key: "name", label: "Channel", sort: "name", render: (row) => html`
    <${ConnectionLink} name=${row.connection_details?.name ?? ""} /> <span class="faint">channel ${row.number}</span>`},
  {key: "user", label: "User", sort: "user", render: (row) => plain(row.user ?? "")},
  {key: "vhost", label: "Virtual host", sort: "vhost", render: (row) => plain(row.vhost ?? "")},
  {key: "mode", label: "Mode", sort: false, render: (row) => [row.confirm && "confirms", row.transactional && "transactions"].filter(Boolean).join(", ") || "plain"},
  {key: "state", label: "State", sort: "state", render: (row) => html`<${State} of=${row} />`},
  {key: "consumer_count", label: "Consumers", sort: "consumer_count", isNumber: true, render: (row) => count(row.consumer_count)},
  {key: "prefetch_count", label: "Prefetch", sort: "prefetch_count", isNumber: true, render: (row) => (row.prefetch_count ? count(row.prefetch_count) : "no limit")},
  {key: "unacked", label: "Unacked", sort: "messages_unacknowledged", isNumber: true, render: (row) => count(unacked(row))},
  {key: "unconfirmed", label: "Unconfirmed", sort: "messages_unconfirmed", isNumber: true, render: (row) => count(row.messages_unconfirmed)},
  {key: "publish", label: "In", sort: "message_stats.publish_details.rate", isNumber: true, render: (row) => rate(row.message_stats?.publish_details?.rate ?? 0)},
  {key: "deliver", label: "Out", sort: "message_stats.deliver_get_details.rate", isNumber: true, render: (row) => rate(row.message_stats?.deliver_get_details?.rate ?? 0)},
];

export const Channels = () => html`
  <${Title}>Channels</${Title}>
  <${Listing} where="channels" isPaged=${true} noun="channels" columns=${CHANNEL_COLUMNS} rowKey=${(row) => row.name} />`;
