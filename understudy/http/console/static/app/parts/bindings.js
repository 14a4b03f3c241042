// Bindings, as the bindings of one object or of all.
import {html} from "../core/dom.js";
import {path, post, remove} from "../core/api.js";
import {named, plain} from "../core/format.js";
import {Arguments, ExchangeLink, QueueLink} from "./basics.js";
import {useDialogs} from "./dialogs.js";
import {Table} from "./table.js";

const letter = (row) => (row.destination_type === "exchange" ? "e" : "q");

export const BINDING_COLUMNS = [
  {key: "source", label: "From the exchange", render: (row) => html`<${ExchangeLink} vhost=${row.vhost} name=${row.source} />`},
  {key: "destination", label: "To", render: (row) => html`${row.destination_type === "exchange" ? "exchange " : "queue "}
    <${letter(row) === "e" ? ExchangeLink : QueueLink} vhost=${row.vhost} name=${row.destination} />`},
  {key: "routing_key", label: "Routing key", render: (row) => (row.routing_key === "" ? html`<span class="faint">(empty)</span>` : html`<code>${plain(row.routing_key)}</code>`)},
  {key: "arguments", label: "Arguments", sort: false, render: (row) => html`<${Arguments} of=${row.arguments} />`},
];

export function BindingTable({rows, refresh, canChange, without}) {
  const {confirm} = useDialogs();
  if (!rows.length) return html`<p class="empty">No bindings.</p>`;
  const columns = BINDING_COLUMNS.filter((it) => it.key !== without);
  if (canChange) columns.push(unbinding(confirm, refresh));
  return html`<${Table} label="Bindings" rows=${rows} columns=${columns} rowKey=${keyOf} />`;
}

export const keyOf = (row) => [row.vhost, row.source, row.destination_type, row.destination, row.properties_key].join("\u0000");

export const unbinding = (confirm, refresh) => ({
  key: "unbind", label: "", sort: false,
  render: (row, again) => row.source !== "" && html`<button type="button" class="button quiet" onClick=${() => confirm({
    title: "Unbind", verb: "Unbind", danger: true,
    text: html`<p>Messages of <b>${named(row.source)}</b> with the routing key <code>${plain(row.routing_key)}</code> will
      no longer go to <b>${named(row.destination)}</b> by this binding.</p>`,
    act: () => remove(path`bindings/${row.vhost}/e/${row.source}/${letter(row)}/${row.destination}/${row.properties_key}`),
    said: () => { (refresh ?? again)?.(); return "The binding is deleted."; },
  })}>Unbind</button>`,
});

/** A form that binds `destination` (`kind`: q or e), or from `source`. */
export const bindingForm = ({vhost, source, destination, kind, refresh}) => ({
  title: "Bind", verb: "Bind",
  fields: [
    ...(source === undefined ? [{name: "source", label: "From the exchange", required: true}] : []),
    ...(destination === undefined ? [
      {name: "kind", label: "To a", kind: "choice", options: [["q", "queue"], ["e", "exchange"]], value: "q"},
      {name: "destination", label: "Name", required: true},
    ] : []),
    {name: "routing_key", label: "Routing key"},
    {name: "arguments", label: "Arguments", kind: "pairs", hint: "One a line, such as x-match = all"},
  ],
  act: (values) => post(
    path`bindings/${vhost}/e/${source ?? values.source}/${kind ?? values.kind}/${destination ?? values.destination}`,
    {routing_key: values.routing_key, arguments: values.arguments},
  ),
  said: () => { refresh?.(); return "The binding is there."; },
});
