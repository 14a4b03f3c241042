// Virtual hosts.
import {html} from "../../core/dom.js";
import {path, put, remove} from "../../core/api.js";
import {count, named, plain, rate} from "../../core/format.js";
import {useLive} from "../../core/live.js";
import {serves} from "../../core/pair.js";
import {Title} from "../../parts/basics.js";
import {useDialogs} from "../../parts/dialogs.js";
import {Listing} from "../../parts/table.js";

export function Vhosts() {
  const {status} = useLive();
  const {confirm, form} = useDialogs();
  const canChange = serves(status);
  const add = () => form({
    title: "Add a virtual host", verb: "Add",
    fields: [{name: "name", label: "Name", required: true}, {name: "description", label: "Description"}],
    act: ({name, description}) => put(path`vhosts/${name}`, description ? {description} : {}),
    said: (_answer, {name}) => `Virtual host ${named(name)} is there.`,
  });
  const erase = (row, refresh) => confirm({
    title: "Delete the virtual host", verb: "Delete", danger: true,
    text: html`<p><b>${named(row.name)}</b> will be deleted with all its queues, ${count(row.messages ?? 0)} messages,
      exchanges, permissions and policies, on all nodes. Its clients lose their connections. This cannot be undone.</p>`,
    fields: [{name: "name", label: "Its name, to be sure", required: true}],
    act: ({name}) => {
      if (name !== row.name) throw new Error("This is not its name.");
      return remove(path`vhosts/${row.name}`);
    },
    said: () => { refresh(); return `Virtual host ${named(row.name)} is deleted.`; },
  });
  const columns = [
    {key: "name", label: "Name", sort: "name", render: (row) => named(row.name)},
    {key: "description", label: "Description", render: (row) => plain(row.description ?? row.metadata?.description ?? "")},
    {key: "messages_ready", label: "Ready", isNumber: true, render: (row) => count(row.messages_ready)},
    {key: "messages_unacknowledged", label: "Unacked", isNumber: true, render: (row) => count(row.messages_unacknowledged)},
    {key: "in", label: "In", isNumber: true, sort: "message_stats.publish_details.rate", render: (row) => rate(row.message_stats?.publish_details?.rate ?? 0)},
    {key: "out", label: "Out", isNumber: true, sort: "message_stats.deliver_get_details.rate", render: (row) => rate(row.message_stats?.deliver_get_details?.rate ?? 0)},
  ];
  if (canChange) {
    columns.push({key: "delete", label: "", sort: false, render: (row, refresh) => row.name !== "/"
      && html`<button type="button" class="button quiet" onClick=${() => erase(row, refresh)}>Delete</button>`});
  }
  return html`
    <${Title} actions=${canChange && html`<button type="button" class="button" onClick=${add}>Add a virtual host</button>`}>Virtual hosts</${Title}>
    <${Listing} where="vhosts" noun="virtual hosts" columns=${columns} rowKey=${(row) => row.name} />`;
}
