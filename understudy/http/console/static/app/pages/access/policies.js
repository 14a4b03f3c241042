// Policies, and those of the operator.
import {html} from "../../core/dom.js";
import {path, put, remove} from "../../core/api.js";
import {count, named, plain} from "../../core/format.js";
import {useLive, usePolled} from "../../core/live.js";
import {serves} from "../../core/pair.js";
import {Arguments, Panel, Title, Trouble} from "../../parts/basics.js";
import {useDialogs} from "../../parts/dialogs.js";
import {Listing, Table} from "../../parts/table.js";
import {useVhostNames} from "../../parts/vhosts.js";

const KINDS = ["queues", "exchanges", "all", "classic_queues", "quorum_queues"];
const COLUMNS = [
  {key: "name", label: "Name", render: (row) => named(row.name)},
  {key: "vhost", label: "Virtual host", render: (row) => named(row.vhost)},
  {key: "pattern", label: "Pattern", render: (row) => html`<code>${plain(row.pattern)}</code>`},
  {key: "apply-to", label: "Applies to", render: (row) => plain(row["apply-to"] ?? "")},
  {key: "definition", label: "Definition", sort: false, render: (row) => html`<${Arguments} of=${row.definition} />`},
  {key: "priority", label: "Priority", isNumber: true, render: (row) => count(row.priority)},
];

function usePolicyForms(kind, noun) {
  const {confirm, form} = useDialogs();
  const vhosts = useVhostNames();
  const set = (refresh) => form({
    title: `Set ${noun}`, verb: "Set",
    fields: [
      {name: "name", label: "Name", required: true},
      {name: "vhost", label: "Virtual host", kind: "choice", options: vhosts, value: vhosts[0]},
      {name: "pattern", label: "Pattern", required: true, hint: "A regular expression of names, such as ^orders\\."},
      {name: "apply-to", label: "Applies to", kind: "choice", options: kind === "policies" ? KINDS : ["queues"], value: "queues"},
      {name: "definition", label: "Definition", kind: "pairs", required: true, hint: "One a line, such as message-ttl = 60000"},
      {name: "priority", label: "Priority", kind: "number", value: "0", hint: "The highest one that matches holds."},
    ],
    act: ({name, vhost, priority, ...rest}) => put(`${kind}/${path`${vhost}/${name}`}`, {...rest, priority: priority ?? 0}),
    said: (_answer, {name}) => { refresh?.(); return `Policy ${named(name)} is set.`; },
  });
  const erase = (row, refresh) => confirm({
    title: `Delete ${noun}`, verb: "Delete", danger: true,
    text: html`<p><b>${named(row.name)}</b> will no longer hold. Queues and exchanges that match get the next one that matches.</p>`,
    act: () => remove(`${kind}/${path`${row.vhost}/${row.name}`}`),
    said: () => { refresh(); return `Policy ${named(row.name)} is deleted.`; },
  });
  return {set, erase};
}

const erasing = (erase, refresh) => ({
  key: "delete", label: "", sort: false,
  render: (row, again) => html`<button type="button" class="button quiet" onClick=${() => erase(row, refresh ?? again)}>Delete</button>`,
});

export function Policies() {
  const {status} = useLive();
  const canChange = serves(status);
  const own = usePolicyForms("policies", "a policy");
  const theirs = usePolicyForms("operator-policies", "an operator policy");
  const operator = usePolled("operator-policies", 10);
  return html`
    <${Title} sub="Settings for all queues and exchanges whose names match."
      actions=${canChange && html`<button type="button" class="button" onClick=${() => own.set()}>Set a policy</button>`}>Policies</${Title}>
    <${Listing} where="policies" noun="policies" rowKey=${(row) => `${row.vhost}/${row.name}`}
      columns=${canChange ? [...COLUMNS, erasing(own.erase)] : COLUMNS} />
    <${Panel} title="Operator policies" wide=${true}
      actions=${canChange && html`<button type="button" class="button" onClick=${() => theirs.set(operator.refresh)}>Set an operator policy</button>`}>
      <p class="hint">They hold beside a policy; of a limit that both set, the smaller one counts.</p>
      <${Trouble} error=${operator.error} />
      ${operator.data?.length
        ? html`<${Table} label="Operator policies" rows=${operator.data} columns=${canChange ? [...COLUMNS, erasing(theirs.erase, operator.refresh)] : COLUMNS} />`
        : html`<p class="empty">None.</p>`}
    </${Panel}>`;
}
