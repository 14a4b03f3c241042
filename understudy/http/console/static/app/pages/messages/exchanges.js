// All exchanges, and one of them.
import {html} from "../../core/dom.js";
import {path, put, remove} from "../../core/api.js";
import {named, plain, rate} from "../../core/format.js";
import {useLive, usePolled} from "../../core/live.js";
import {serves} from "../../core/pair.js";
import {go, hrefOf} from "../../core/route.js";
import {Arguments, ExchangeLink, Fact, Facts, Loading, None, Panel, Title, Trouble} from "../../parts/basics.js";
import {BindingTable, bindingForm} from "../../parts/bindings.js";
import {useDialogs} from "../../parts/dialogs.js";
import {FROM_CHANNELS, Flows, TO_QUEUES} from "../../parts/flows.js";
import {publishing} from "../../parts/messages.js";
import {ObjectRates, SAMPLES} from "../../parts/rates.js";
import {Listing} from "../../parts/table.js";
import {useVhostNames} from "../../parts/vhosts.js";
import {Features} from "./queues.js";

const KINDS = ["direct", "fanout", "topic", "headers"];
const RATES = [["publish_in", "Published in"], ["publish_out", "Routed out"]];
const COLUMNS = [
  {key: "name", label: "Name", sort: "name", render: (row) => html`<${ExchangeLink} ...${row} />`},
  {key: "vhost", label: "Virtual host", sort: "vhost", render: (row) => plain(row.vhost)},
  {key: "type", label: "Type", sort: "type", render: (row) => plain(row.type)},
  {key: "features", label: "Features", sort: false, render: (row) => html`<${Features} of=${row} />`},
  {key: "in", label: "In", sort: "message_stats.publish_in_details.rate", isNumber: true, render: (row) => rate(row.message_stats?.publish_in_details?.rate ?? 0)},
  {key: "out", label: "Out", sort: "message_stats.publish_out_details.rate", isNumber: true, render: (row) => rate(row.message_stats?.publish_out_details?.rate ?? 0)},
];
export function Exchanges() {
  const {status} = useLive();
  const {form} = useDialogs();
  const vhosts = useVhostNames();
  const overview = usePolled("overview", 3600).data;
  const kinds = overview?.exchange_types?.map((each) => each.name) ?? KINDS;
  const declare = () => form({
    title: "Declare an exchange", verb: "Declare",
    fields: [
      {name: "name", label: "Name", required: true},
      {name: "vhost", label: "Virtual host", kind: "choice", options: vhosts, value: vhosts[0]},
      {name: "type", label: "Type", kind: "choice", options: kinds, value: "direct"},
      {name: "durable", label: "Durable: it survives restarts", kind: "flag", value: true},
      {name: "auto_delete", label: "Delete it with its last binding", kind: "flag"},
      {name: "internal", label: "Internal: only other exchanges publish to it", kind: "flag"},
      {name: "arguments", label: "Arguments", kind: "pairs", hint: "One a line, such as alternate-exchange = unrouted"},
    ],
    act: ({name, vhost, ...rest}) => put(path`exchanges/${vhost}/${name}`, rest),
    said: (_answer, {name}) => `Exchange ${named(name)} is there.`,
  });
  return html`
    <${Title} actions=${serves(status) && html`<button type="button" class="button" onClick=${declare}>Declare an exchange</button>`}>Exchanges</${Title}>
    <${Listing} where="exchanges" isPaged=${true} noun="exchanges" columns=${COLUMNS} rowKey=${(row) => `${row.vhost}/${row.name}`} />`;
}

export function Exchange({vhost, name}) {
  const {status} = useLive();
  const {confirm, form} = useDialogs();
  const here = path`exchanges/${vhost}/${name || "amq.default"}`;
  const {data, error} = usePolled(`${here}?${SAMPLES}`);
  const from = usePolled(`${here}/bindings/source`);
  const to = usePolled(`${here}/bindings/destination`);
  if (data === null) return html`<${Title}>${named(name, "(default)")}</${Title}>${error ? html`<${Trouble} error=${error} />` : html`<${Loading} />`}`;
  const canChange = serves(status);
  const isOwn = name !== "" && !name.startsWith("amq.");
  const erase = {
    title: "Delete the exchange", verb: "Delete", danger: true,
    text: html`<p><b>${named(name)}</b> will be deleted with its bindings, on all nodes. Publishers to it get an error (404).</p>`,
    fields: [{name: "unused", label: "Only if nothing is bound to it", kind: "flag"}],
    act: ({unused}) => remove(here + (unused ? "?if-unused=true" : "")),
    said: () => { go(hrefOf("exchanges")); return `Exchange ${named(name)} is deleted.`; },
  };
  const actions = canChange && html`
    ${!data.internal && html`<button type="button" class="button" onClick=${() => form(publishing({vhost, exchange: name}))}>Publish</button>`}
    ${name !== "" && html`<button type="button" class="button" onClick=${() => form(bindingForm({vhost, source: name, refresh: from.refresh}))}>Bind</button>`}
    ${isOwn && html`<button type="button" class="button danger" onClick=${() => confirm(erase)}>Delete</button>`}`;
  return html`
    <${Title} sub=${`Exchange of type ${plain(data.type)} in virtual host ${plain(vhost)}`} actions=${actions}>${named(name, "(default)")}</${Title}>
    <${Trouble} error=${error} />
    <div class="columns">
      <${Panel} title="Rates"><${ObjectRates} stats=${data.message_stats} keys=${RATES} /></${Panel}>
      <${Panel} title="What it is">
        <${Facts}>
          <${Fact} label="Features"><${Features} of=${data} /></${Fact}>
          <${Fact} label="Arguments"><${Arguments} of=${data.arguments} /></${Fact}>
          <${Fact} label="Policy">${data.policy ? plain(data.policy) : html`<${None} />`}</${Fact}>
        </${Facts}>
      </${Panel}>
    </div>
    <${Flows} came=${data.incoming} cameColumns=${FROM_CHANNELS} went=${data.outgoing} wentColumns=${TO_QUEUES} />
    ${name === "" && html`<${Panel} title="Bindings" wide=${true}><p class="empty">Every queue is bound to this exchange by its name.</p></${Panel}>`}
    ${name !== "" && html`
      <${Panel} title="Bindings from it" wide=${true}><${Trouble} error=${from.error} />
        <${BindingTable} rows=${from.data ?? []} refresh=${from.refresh} canChange=${canChange} without="source" /></${Panel}>
      <${Panel} title="Bindings to it" wide=${true}><${Trouble} error=${to.error} />
        <${BindingTable} rows=${to.data ?? []} refresh=${to.refresh} canChange=${canChange} without="destination" /></${Panel}>`}`;
}
