// Users, and the permissions of one.
import {html} from "../../core/dom.js";
import {path, put, remove} from "../../core/api.js";
import {named, plain} from "../../core/format.js";
import {useLive, usePolled} from "../../core/live.js";
import {serves} from "../../core/pair.js";
import {go, hrefOf} from "../../core/route.js";
import {Badge, None, Panel, Title, Trouble} from "../../parts/basics.js";
import {useDialogs} from "../../parts/dialogs.js";
import {tagsOf} from "../../parts/roles.js";
import {Listing, Table} from "../../parts/table.js";
import {useVhostNames} from "../../parts/vhosts.js";

const TAGS = "Any of administrator, monitoring, policymaker, management, with commas between them. None: no access to this console.";

function Tags({of}) {
  const tags = tagsOf(of).filter(Boolean);
  if (!tags.length) return html`<${None} />`;
  return html`<span class="marks">${tags.map((tag) =>
    html`<${Badge} tone=${tag === "administrator" ? "note" : "plain"}>${plain(tag)}</${Badge}>`)}</span>`;
}

export function Users() {
  const {status} = useLive();
  const {form} = useDialogs();
  const add = () => form({
    title: "Add a user", verb: "Add",
    fields: [
      {name: "name", label: "Name", required: true},
      {name: "password", label: "Password", kind: "password", required: true},
      {name: "tags", label: "Tags", hint: TAGS},
    ],
    act: ({name, password, tags}) => put(path`users/${name}`, {password, tags}),
    said: (_answer, {name}) => { go(hrefOf("users", name)); return `User ${named(name)} is there. Now give permissions.`; },
  });
  const columns = [
    {key: "name", label: "Name", render: (row) => html`<a href=${hrefOf("users", row.name)}>${named(row.name)}</a>`},
    {key: "tags", label: "Tags", sort: (row) => tagsOf(row).join(), render: (row) => html`<${Tags} of=${row} />`},
  ];
  return html`
    <${Title} actions=${serves(status) && html`<button type="button" class="button" onClick=${add}>Add a user</button>`}>Users</${Title}>
    <${Listing} where="users" noun="users" columns=${columns} rowKey=${(row) => row.name} />`;
}

export function User({name}) {
  const {status, who} = useLive();
  const {confirm, form} = useDialogs();
  const vhosts = useVhostNames();
  const here = path`users/${name}`;
  const {data, error, refresh} = usePolled(here);
  const permissions = usePolled(`${here}/permissions`);
  const topics = usePolled(`${here}/topic-permissions`);
  const canChange = serves(status) && data !== null;
  const change = {
    title: "Change password or tags", verb: "Change",
    fields: [
      {name: "password", label: "New password", kind: "password", required: true, hint: "The node keeps only a hash, so a change of tags needs the password again."},
      {name: "tags", label: "Tags", value: tagsOf(data).join(","), hint: TAGS},
    ],
    act: (values) => put(here, values),
    said: () => { refresh(); return `User ${named(name)} is changed.`; },
  };
  const erase = {
    title: "Delete the user", verb: "Delete", danger: true,
    text: html`<p><b>${named(name)}</b> and all permissions of this user will be deleted, on all nodes.
      ${who?.name === name ? " This is the user you are logged in as." : ""}</p>`,
    act: () => remove(here),
    said: () => { go(hrefOf("users")); return `User ${named(name)} is deleted.`; },
  };
  const actions = canChange && html`
    <button type="button" class="button" onClick=${() => form(change)}>Password and tags</button>
    <button type="button" class="button danger" onClick=${() => confirm(erase)}>Delete</button>`;
  return html`
    <${Title} sub=${data ? html`<${Tags} of=${data} />` : "User"} actions=${actions}>${named(name)}</${Title}>
    <${Trouble} error=${error} />
    <${Permissions} name=${name} found=${permissions} vhosts=${vhosts} canChange=${canChange} />
    <${Topics} name=${name} found=${topics} vhosts=${vhosts} canChange=${canChange} />`;
}

const pattern = (key, label) => ({key, label, sort: false, render: (row) => html`<code>${row[key] === "" ? "(nothing)" : plain(row[key])}</code>`});

function Permissions({name, found, vhosts, canChange}) {
  const {confirm, form} = useDialogs();
  const set = () => form({
    title: "Set permissions", verb: "Set",
    text: html`<p>Patterns of names of queues and exchanges. <code>.*</code> is all of them, an empty pattern none.</p>`,
    fields: [
      {name: "vhost", label: "Virtual host", kind: "choice", options: vhosts, value: vhosts[0]},
      {name: "configure", label: "Configure: declare and delete", value: ".*"},
      {name: "write", label: "Write: publish, bind", value: ".*"},
      {name: "read", label: "Read: consume, get, purge", value: ".*"},
    ],
    act: ({vhost, ...rest}) => put(path`permissions/${vhost}/${name}`, rest),
    said: () => { found.refresh(); return "The permissions are set."; },
  });
  const clear = (row) => confirm({
    title: "Clear permissions", verb: "Clear", danger: true,
    text: html`<p><b>${named(name)}</b> will have no access to <b>${named(row.vhost)}</b>.</p>`,
    act: () => remove(path`permissions/${row.vhost}/${name}`),
    said: () => { found.refresh(); return "The permissions are cleared."; },
  });
  const columns = [
    {key: "vhost", label: "Virtual host", render: (row) => named(row.vhost)},
    pattern("configure", "Configure"), pattern("write", "Write"), pattern("read", "Read"),
    ...(canChange ? [{key: "clear", label: "", render: (row) => html`<button type="button" class="button quiet" onClick=${() => clear(row)}>Clear</button>`}] : []),
  ];
  return html`
    <${Panel} title="Permissions" wide=${true} actions=${canChange && html`<button type="button" class="button" onClick=${set}>Set</button>`}>
      <${Trouble} error=${found.error} />
      ${found.data?.length ? html`<${Table} label="Permissions" rows=${found.data} columns=${columns} />`
        : html`<p class="empty">No access to any virtual host.</p>`}
    </${Panel}>`;
}

function Topics({name, found, vhosts, canChange}) {
  const {confirm, form} = useDialogs();
  const set = () => form({
    title: "Set topic permissions", verb: "Set",
    text: html`<p>Patterns of routing keys at one topic exchange. <code>{username}</code>, <code>{vhost}</code> and
      <code>{client_id}</code> stand for those of the connection.</p>`,
    fields: [
      {name: "vhost", label: "Virtual host", kind: "choice", options: vhosts, value: vhosts[0]},
      {name: "exchange", label: "Topic exchange", value: "amq.topic", required: true},
      {name: "write", label: "Write: publish with keys", value: ".*"},
      {name: "read", label: "Read: bind with keys", value: ".*"},
    ],
    act: ({vhost, ...rest}) => put(path`topic-permissions/${vhost}/${name}`, rest),
    said: () => { found.refresh(); return "The topic permissions are set."; },
  });
  const clear = (row) => confirm({
    title: "Clear topic permissions", verb: "Clear", danger: true,
    text: html`<p>Routing keys at <b>${named(row.exchange)}</b> are no longer limited for <b>${named(name)}</b>.</p>`,
    act: () => remove(path`topic-permissions/${row.vhost}/${name}/${row.exchange}`),
    said: () => { found.refresh(); return "The topic permissions are cleared."; },
  });
  const columns = [
    {key: "exchange", label: "Exchange", render: (row) => named(row.exchange)},
    {key: "vhost", label: "Virtual host", render: (row) => named(row.vhost)},
    pattern("write", "Write"), pattern("read", "Read"),
    ...(canChange ? [{key: "clear", label: "", render: (row) => html`<button type="button" class="button quiet" onClick=${() => clear(row)}>Clear</button>`}] : []),
  ];
  return html`
    <${Panel} title="Topic permissions" wide=${true} actions=${canChange && html`<button type="button" class="button" onClick=${set}>Set</button>`}>
      <${Trouble} error=${found.error} />
      ${found.data?.length ? html`<${Table} label="Topic permissions" rows=${found.data} columns=${columns} />`
        : html`<p class="empty">None: routing keys are not limited.</p>`}
    </${Panel}>`;
}
