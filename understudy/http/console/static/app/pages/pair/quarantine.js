// Messages that this node set aside when it rejoined: list, show, republish.
import {html} from "../../core/dom.js";
import {path, post} from "../../core/api.js";
import {count, many, named, octets, plain, when} from "../../core/format.js";
import {usePolled} from "../../core/live.js";
import {hrefOf} from "../../core/route.js";
import {Badge, Empty, Loading, Panel, Title, Trouble} from "../../parts/basics.js";
import {useDialogs} from "../../parts/dialogs.js";
import {Messages} from "../../parts/messages.js";
import {Table} from "../../parts/table.js";

const ABOUT = "Messages that this node held when it came back, and that the primary's history never had. Their publishers may have sent them again: look before you republish.";

const shape = (queue) => [
  {key: "name", label: "Queue", render: (row) => html`<a href=${hrefOf("quarantine", row.queue)}>${named(row.name)}</a>`},
  {key: "messages", label: "Messages", isNumber: true, render: (row) => count(row.messages)},
  {key: "bytes", label: "Size", isNumber: true, render: (row) => octets(row.bytes)},
  {key: "republished", label: "Republished", isNumber: true, render: (row) => count(row.republished)},
  {key: "in_doubt", label: "In doubt", isNumber: true, render: (row) => count(row.in_doubt)},
  {key: "oldest_ms", label: "Oldest", render: (row) => when(row.oldest_ms)},
  {key: "newest_ms", label: "Newest", render: (row) => when(row.newest_ms)},
  {key: "republish", label: "", render: (row) => row.republished < row.messages
    && html`<button type="button" class="button quiet" onClick=${() => queue(row)}>Republish</button>`},
];

export function Quarantine() {
  const {form} = useDialogs();
  const {data, error, refresh} = usePolled("quarantine", 15);
  const republish = (row) => form(republishing(row, refresh));
  return html`
    <${Title} sub=${ABOUT}>Quarantine</${Title}>
    <${Trouble} error=${error} />
    ${data === null ? !error && html`<${Loading} />` : html`
      ${data.queues.length === 0 && html`<${Panel} wide=${true}><${Empty}>Nothing is in quarantine at this node.</${Empty}></${Panel}>`}
      ${data.queues.length > 0 && html`<${Panel} wide=${true}><${Table} label="Quarantined queues" rows=${data.queues} columns=${shape(republish)} rowKey=${(row) => row.queue} /></${Panel}>`}
      ${data.damage.map((line) => html`<p class="trouble">${plain(line)}</p>`)}
      <p class="hint">Folder: <code>${plain(data.folder)}</code>. The files stay after a republish.</p>`}`;
}

const republishing = (row, refresh) => ({
  title: "Republish", verb: "Republish",
  text: html`<p>${many(row.messages - row.republished - row.in_doubt, "message")} of <b>${named(row.name)}</b> will be
    published again to the primary, as you, with confirms. Each has a header <code>x-quarantined</code>. Messages that were
    republished before are left out.</p>`,
  fields: [
    {name: "to", label: "To the queue", hint: "Empty: the queue with the original queue's name."},
    {name: "in_doubt", label: `Also ${many(row.in_doubt, "message")} sent earlier but never confirmed (may create duplicates)`, kind: "flag"},
  ],
  act: ({to, in_doubt: inDoubt}) => post("quarantine/republish", {queue: row.queue, in_doubt: inDoubt, ...(to ? {to} : {})}),
  said: (answer) => { refresh(); return `${many(answer.republished, "message")} republished and confirmed.`; },
});

/** A message of the quarantine, as one that came out of a queue. */
function readable(it) {
  const {application_headers: headers, ...properties} = it.properties;
  return {
    ...it, properties: {...properties, headers}, payload_bytes: it.bytes,
    payload: it.body ?? it.body_hex, payload_encoding: it.body === null ? "hex" : "string",
  };
}

export function QuarantinedQueue({queue}) {
  const {form} = useDialogs();
  const {data, error, refresh} = usePolled(path`quarantine/${queue}`, 60);
  if (data === null) return html`<${Title}>Quarantine</${Title}>${error ? html`<${Trouble} error=${error} />` : html`<${Loading} />`}`;
  const {summary} = data;
  return html`
    <${Title} sub=${`${many(summary.messages, "message")} in quarantine, ${count(summary.republished)} republished`}
      actions=${html`<button type="button" class="button" onClick=${() => form(republishing(summary, refresh))}>Republish</button>`}>${named(summary.name)}</${Title}>
    <${Panel} wide=${true} title=${data.more ? `The first ${count(data.messages.length)}` : "Messages"}>
      <${Messages} of=${data.messages.map(readable)} tag=${(it) => html`<code>${plain(it.id)}</code>
        ${it.republished && html`<${Badge} tone="ok">republished</${Badge}>`}${it.in_doubt && html`<${Badge} tone="wait">in doubt</${Badge}>`}`} />
    </${Panel}>`;
}
