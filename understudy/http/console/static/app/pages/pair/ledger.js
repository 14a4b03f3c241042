// The ledger of this node, and what a watch of it has raised.
import {html} from "../../core/dom.js";
import {count, plain, when} from "../../core/format.js";
import {useLive, usePolled} from "../../core/live.js";
import {Badge, Empty, Fact, Facts, Loading, Panel, Title, Trouble} from "../../parts/basics.js";
import {Table} from "../../parts/table.js";

const TONES = {loss: "bad", warning: "wait", note: "plain"};
const ALARMS = [
  {key: "n", label: "Number", isNumber: true, render: (row) => count(row.n)},
  {key: "ts_us", label: "At", render: (row) => when(row.ts_us / 1000)},
  {key: "kind", label: "Kind", render: (row) => html`<${Badge} tone=${TONES[row.severity] ?? "plain"}>${plain(row.kind)}</${Badge}>`},
  {key: "sentence", label: "What", render: (row) => plain(row.sentence)},
];

export function Ledger() {
  const {status} = useLive();
  const {data, error} = usePolled("watch", 10);
  const ledger = status?.ledger;
  return html`
    <${Title} sub="The ledger proves after a run, or while it runs, that nothing confirmed was lost.">Ledger and watch</${Title}>
    <div class="columns">
      <${Panel} title="Ledger of this node">
        ${!ledger ? html`<${Empty}>This node writes no ledger (<code>ledger.enabled</code>).</${Empty}>` : html`
          <${Facts}>
            <${Fact} label="State" tone=${ledger.failing ? "bad" : ""}>${ledger.failing ? "It cannot be written now." : "It is written."}</${Fact}>
            <${Fact} label="File"><code>${plain(ledger.path)}</code></${Fact}>
            <${Fact} label="Last written">${when(ledger.last_write * 1000)}</${Fact}>
            <${Fact} label="Not written" tone=${ledger.lost ? "bad" : ""}>${count(ledger.lost)} records, ${count(ledger.failures)} failures</${Fact}>
          </${Facts}>`}
      </${Panel}>
      <${Panel} title="Messages that have left">
        <${Facts}>${Object.entries(status?.dequeues?.left ?? {}).map(([reason, times]) =>
          html`<${Fact} label=${plain(reason)}>${count(times)}</${Fact}>`)}</${Facts}>
      </${Panel}>
    </div>
    <${Panel} title="Watch" wide=${true}>
      <${Trouble} error=${error} />
      ${data === null && !error && html`<${Loading} />`}
      ${data && !data.is_there && html`<${Empty}>No <code>understudy watch</code> has a checkpoint at <code>${plain(data.checkpoint)}</code>.
        Another place is the setting <code>console.watch</code>.</${Empty}>`}
      ${data?.is_there && html`
        <${Facts}>
          <${Fact} label="Checkpoint"><code>${plain(data.checkpoint)}</code></${Fact}>
          <${Fact} label="Last batch">${when(data.last_batch_ms)}</${Fact}>
          <${Fact} label="Alarms">${count(data.alarms.length)}${data.more ? " shown, there are more" : ""}</${Fact}>
        </${Facts}>
        ${data.alarms.length ? html`<${Table} label="Alarms of the watch" rows=${data.alarms} columns=${ALARMS} />`
          : html`<${Empty}>The watch has raised no alarm.</${Empty}>`}`}
    </${Panel}>`;
}
