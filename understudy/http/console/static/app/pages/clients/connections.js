// All connections, and one of them.
import {html} from "../../core/dom.js";
import {path, remove} from "../../core/api.js";
import {count, duration, octets, plain, when} from "../../core/format.js";
import {usePolled} from "../../core/live.js";
import {go, hrefOf} from "../../core/route.js";
import {Arguments, Badge, ConnectionLink, Fact, Facts, Loading, Panel, Tile, Title, Trouble} from "../../parts/basics.js";
import {useDialogs} from "../../parts/dialogs.js";
import {Listing, Table} from "../../parts/table.js";
import {State} from "../messages/queues.js";
import {CHANNEL_COLUMNS} from "./channels.js";

const perSecond = (details) => (details ? `${octets(details.rate)}/s` : "–");

const COLUMNS = [
  {key: "name", label: "Connection", sort: "name", render: (row) => html`<${ConnectionLink} name=${row.name} />
    ${givenName(row) && html`<span class="faint"> ${plain(givenName(row))}</span>`}`},
  {key: "user", label: "User", sort: "user", render: (row) => plain(row.user ?? "")},
  {key: "vhost", label: "Virtual host", sort: "vhost", render: (row) => plain(row.vhost ?? "")},
  {key: "state", label: "State", sort: "state", render: (row) => html`<${State} of=${row} />`},
  {key: "ssl", label: "TLS", sort: "ssl", render: (row) => (row.ssl ? html`<${Badge} tone="ok">TLS</${Badge}>` : "no")},
  {key: "protocol", label: "Protocol", sort: "protocol", render: (row) => html`<span class="one-line">${plain(row.protocol ?? "")}</span>`},
  {key: "channels", label: "Channels", sort: "channels", isNumber: true, render: (row) => count(row.channels)},
  {key: "in", label: "From client", sort: "recv_oct_details.rate", isNumber: true, render: (row) => perSecond(row.recv_oct_details)},
  {key: "out", label: "To client", sort: "send_oct_details.rate", isNumber: true, render: (row) => perSecond(row.send_oct_details)},
];

const givenName = (row) => row.user_provided_name ?? row.client_properties?.connection_name ?? "";

export const Connections = () => html`
  <${Title}>Connections</${Title}>
  <${Listing} where="connections" isPaged=${true} noun="connections" columns=${COLUMNS} rowKey=${(row) => row.name} />`;

export function Connection({name}) {
  const {confirm} = useDialogs();
  const here = path`connections/${name}`;
  const {data, error} = usePolled(here);
  const channels = usePolled(`${here}/channels`);
  if (data === null) return html`<${Title}>${plain(name)}</${Title}>${error ? html`<${Trouble} error=${error} />` : html`<${Loading} />`}`;
  const close = {
    title: "Close the connection", verb: "Close it", danger: true,
    text: html`<p>The client gets a close (320) with the reason. Its exclusive queues are deleted; messages that it has not
      acked are delivered again. Most clients connect again.</p>`,
    fields: [{name: "reason", label: "Reason", value: "closed by an operator"}],
    act: ({reason}) => remove(here, {more: {"X-Reason": reason.replace(/[^ -~]/g, "?")}}),
    said: () => { go(hrefOf("connections")); return "The connection is closed."; },
  };
  return html`
    <${Title} sub=${plain(givenName(data)) || "Connection"}
      actions=${html`<button type="button" class="button danger" onClick=${() => confirm(close)}>Close it</button>`}>${plain(name)}</${Title}>
    <div class="tiles">
      <${Tile} label="Channels" figure=${count(data.channels)} />
      <${Tile} label="From client" figure=${perSecond(data.recv_oct_details)} note=${octets(data.recv_oct)} />
      <${Tile} label="To client" figure=${perSecond(data.send_oct_details)} note=${octets(data.send_oct)} />
    </div>
    <div class="columns">
      <${Panel} title="What it is"><${Facts}>
        <${Fact} label="State"><${State} of=${data} /></${Fact}>
        <${Fact} label="User">${plain(data.user ?? "")} in ${plain(data.vhost ?? "")}</${Fact}>
        <${Fact} label="Since">${when(data.connected_at)}</${Fact}>
        <${Fact} label="Protocol">${plain(data.protocol ?? "")}</${Fact}>
        <${Fact} label="TLS">${data.ssl ? plain([data.ssl_protocol, data.ssl_cipher].filter(Boolean).join(", ") || "yes") : "no"}</${Fact}>
        ${data.peer_cert_subject && html`<${Fact} label="Certificate">${plain(data.peer_cert_subject)}
          <span class="faint"> ${plain(data.peer_cert_validity ?? "")}</span></${Fact}>`}
        <${Fact} label="Login by">${plain(data.auth_mechanism ?? "")}</${Fact}>
        <${Fact} label="Heartbeat">${data.timeout ? duration(data.timeout) : "off"}</${Fact}>
        <${Fact} label="Largest frame">${octets(data.frame_max)}</${Fact}>
      </${Facts}></${Panel}>
      <${Panel} title="What the client says of itself"><${Arguments} of=${data.client_properties} /></${Panel}>
    </div>
    <${Panel} title="Channels" wide=${true}>
      <${Trouble} error=${channels.error} />
      ${channels.data?.length
        ? html`<${Table} label="Channels" rows=${channels.data} columns=${CHANNEL_COLUMNS} rowKey=${(row) => row.name} />`
        : html`<p class="empty">No channels.</p>`}
    </${Panel}>`;
}
