// Reports in the folder of this node: each is one HTML file.
import {html} from "../../core/dom.js";
import {path, stream} from "../../core/api.js";
import {octets, plain, when} from "../../core/format.js";
import {usePolled} from "../../core/live.js";
import {Badge, Empty, Loading, Panel, Title, Trouble} from "../../parts/basics.js";
import {useDialogs} from "../../parts/dialogs.js";
import {Table} from "../../parts/table.js";

const TONES = {proven: "ok", violated: "bad", "not provable": "wait"};

export function Reports() {
  const {notify} = useDialogs();
  const {data, error} = usePolled("reports", 30);
  const save = async (name) => {
    try {
      const address = URL.createObjectURL(await (await stream(path`reports/${name}`)).blob());
      const link = Object.assign(document.createElement("a"), {href: address, download: name});
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    } catch (fault) {
      notify(fault.message, "bad");
    }
  };
  const columns = [
    {key: "name", label: "Report", render: (row) => plain(row.name)},
    {key: "verdict", label: "Verdict", render: (row) => (row.verdict ? html`<${Badge} tone=${TONES[row.verdict] ?? "plain"}>${plain(row.verdict)}</${Badge}>` : "–")},
    {key: "at_ms", label: "Written", render: (row) => when(row.at_ms)},
    {key: "octets", label: "Size", isNumber: true, render: (row) => octets(row.octets)},
    {key: "save", label: "", render: (row) => html`<button type="button" class="button quiet" onClick=${() => save(row.name)}>Save</button>`},
  ];
  return html`
    <${Title} sub="A report is one HTML file. The commands understudy reconcile and understudy report write it.">Reports</${Title}>
    <${Trouble} error=${error} />
    ${data === null && !error && html`<${Loading} />`}
    ${data && html`<${Panel} wide=${true}>
      ${data.reports.length ? html`<${Table} label="Reports" rows=${data.reports} columns=${columns} rowKey=${(row) => row.name} />`
        : html`<${Empty}>No report in <code>${plain(data.folder)}</code>. Write one with <code>understudy reconcile … --output ${plain(data.folder)}/run.html</code>,
            or set <code>console.reports</code> to another folder.</${Empty}>`}
    </${Panel}>`}`;
}
