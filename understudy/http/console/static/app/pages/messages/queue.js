// One queue: its figures, charts, messages, consumers and bindings, and what can be done to it.
import {html, useState} from "../../core/dom.js";
import {path, post, remove} from "../../core/api.js";
import {count, many, named, octets, plain} from "../../core/format.js";
import {useLive, usePolled} from "../../core/live.js";
import {serves} from "../../core/pair.js";
import {go, hrefOf} from "../../core/route.js";
import {Arguments, Fact, Facts, Loading, None, Panel, Tile, Title, Trouble} from "../../parts/basics.js";
import {BindingTable, bindingForm} from "../../parts/bindings.js";
import {useDialogs} from "../../parts/dialogs.js";
import {FROM_EXCHANGES, Flows, TO_CHANNELS} from "../../parts/flows.js";
import {Messages, getting, publishing} from "../../parts/messages.js";
import {ObjectLengths, ObjectRates, QUEUE_RATES, SAMPLES} from "../../parts/rates.js";
import {Table} from "../../parts/table.js";
import {CONSUMER_COLUMNS} from "../clients/consumers.js";
import {Features, State} from "./queues.js";

export function Queue({vhost, name}) {
  const {status} = useLive();
  const here = path`queues/${vhost}/${name}`;
  const {data, error, refresh} = usePolled(`${here}?${SAMPLES}`);
  const bindings = usePolled(`${here}/bindings`);
  const [got, setGot] = useState(null);
  if (data === null) return html`<${Title}>${named(name)}</${Title}>${error ? html`<${Trouble} error=${error} />` : html`<${Loading} />`}`;
  const canChange = serves(status);
  return html`
    <${Title} sub=${`Queue in virtual host ${plain(vhost)}`}
      actions=${canChange && html`<${Actions} queue=${data} refresh=${refresh} show=${setGot} />`}>${named(name)}</${Title}>
    <${Trouble} error=${error} />
    <div class="tiles">
      <${Tile} label="Ready" figure=${count(data.messages_ready)} />
      <${Tile} label="Unacked" figure=${count(data.messages_unacknowledged)} />
      <${Tile} label="Total" figure=${count(data.messages)} />
      <${Tile} label="Consumers" figure=${count(data.consumers)} />
      <${Tile} label="Payload" figure=${octets(data.message_bytes)} />
    </div>
    ${got && html`<${Panel} wide=${true} title=${`${many(got.length, "message")} of this queue`}
      actions=${html`<button type="button" class="button quiet" onClick=${() => setGot(null)}>Close</button>`}>
      <${Messages} of=${got} /></${Panel}>`}
    <div class="columns">
      <${Panel} title="Messages"><${ObjectLengths} of=${data} /></${Panel}>
      <${Panel} title="Rates"><${ObjectRates} stats=${data.message_stats} keys=${QUEUE_RATES} /></${Panel}>
    </div>
    <${Panel} title="What it is" wide=${true}>
      <${Facts}>
        <${Fact} label="State"><${State} of=${data} /></${Fact}>
        <${Fact} label="Features"><${Features} of=${data} /></${Fact}>
        <${Fact} label="Policy">${data.policy ? plain(data.policy) : html`<${None} />`}${data.operator_policy ? `, operator policy ${plain(data.operator_policy)}` : ""}</${Fact}>
        <${Fact} label="Policy says"><${Arguments} of=${data.effective_policy_definition} /></${Fact}>
        <${Fact} label="Arguments"><${Arguments} of=${data.arguments} /></${Fact}>
        <${Fact} label="Node">${plain(data.node ?? "")}</${Fact}>
      </${Facts}>
    </${Panel}>
    <${Flows} came=${data.incoming} cameColumns=${FROM_EXCHANGES} went=${data.deliveries} wentColumns=${TO_CHANNELS} />
    <${Panel} title="Consumers" wide=${true}>
      ${data.consumer_details?.length
        ? html`<${Table} label="Consumers" rows=${data.consumer_details} columns=${CONSUMER_COLUMNS.filter((it) => it.key !== "queue")} />`
        : html`<p class="empty">Nobody consumes from this queue.</p>`}
    </${Panel}>
    <${Bindings} vhost=${vhost} name=${name} bindings=${bindings} canChange=${canChange} />`;
}

function Bindings({vhost, name, bindings, canChange}) {
  const {form} = useDialogs();
  const bind = () => form(bindingForm({vhost, destination: name, kind: "q", refresh: bindings.refresh}));
  return html`
    <${Panel} title="Bindings to it" wide=${true}
      actions=${canChange && html`<button type="button" class="button" onClick=${bind}>Bind</button>`}>
      <${Trouble} error=${bindings.error} />
      <${BindingTable} rows=${bindings.data ?? []} refresh=${bindings.refresh} canChange=${canChange} without="destination" />
    </${Panel}>`;
}

/** The node moves a bounded number at a time. */
async function moveAll(here, to) {
  let moved = 0;
  for (;;) {
    const answer = await post(`${here}/move`, {to});
    moved += answer.moved;
    if (!answer.left || !answer.moved || answer.full) return {...answer, moved};
  }
}

function Actions({queue, refresh, show}) {
  const {confirm, form} = useDialogs();
  const {vhost, name} = queue;
  const here = path`queues/${vhost}/${name}`;
  const publish = publishing({vhost, exchange: "", key: name, title: "Publish to this queue"});
  const purge = {
    title: "Purge the queue", verb: "Purge", danger: true,
    text: html`<p>${many(queue.messages_ready, "ready message")} of <b>${named(name)}</b> will be deleted, on all nodes.
      Unacked ones stay. This cannot be undone.</p>`,
    act: () => remove(`${here}/contents`), said: () => { refresh(); return `Queue ${named(name)} is empty.`; },
  };
  const erase = {
    title: "Delete the queue", verb: "Delete", danger: true,
    text: html`<p><b>${named(name)}</b> will be deleted with ${many(queue.messages, "message")} and its bindings, on all
      nodes. ${many(queue.consumers, "consumer")} will be cancelled. This cannot be undone.</p>`,
    fields: [
      {name: "unused", label: "Only if nobody consumes from it", kind: "flag"},
      {name: "empty", label: "Only if it is empty", kind: "flag"},
    ],
    act: ({unused, empty}) => {
      const flags = [unused && "if-unused=true", empty && "if-empty=true"].filter(Boolean).join("&");
      return remove(here + (flags && `?${flags}`));
    },
    said: () => { go(hrefOf("queues")); return `Queue ${named(name)} is deleted.`; },
  };
  const move = {
    title: "Move messages", verb: "Move",
    text: html`<p>All messages that are ready now go to another queue of ${plain(vhost)}, in their order. None is lost or
      doubled, also if the primary fails meanwhile.</p>`,
    fields: [{name: "to", label: "To the queue", required: true}],
    act: ({to}) => moveAll(here, to),
    said: ({moved, left, full}) => {
      refresh();
      return `${many(moved, "message")} moved.${full ? ` ${many(left, "message")} stay: the other queue takes no more.` : ""}`;
    },
  };
  return html`
    <button type="button" class="button" onClick=${() => form(getting({vhost, name, show}))}>Get</button>
    <button type="button" class="button" onClick=${() => form(publish)}>Publish</button>
    <button type="button" class="button" onClick=${() => form(move)}>Move</button>
    <button type="button" class="button" onClick=${() => confirm(purge)}>Purge</button>
    <button type="button" class="button danger" onClick=${() => form(erase)}>Delete</button>`;
}
