// Which page an address is.
import {html} from "../core/dom.js";
import {Limits} from "./access/limits.js";
import {Policies} from "./access/policies.js";
import {User, Users} from "./access/users.js";
import {Vhosts} from "./access/vhosts.js";
import {Channels} from "./clients/channels.js";
import {Connection, Connections} from "./clients/connections.js";
import {Consumers} from "./clients/consumers.js";
import {Bindings} from "./messages/bindings.js";
import {Exchange, Exchanges} from "./messages/exchanges.js";
import {Queue} from "./messages/queue.js";
import {Queues} from "./messages/queues.js";
import {Events} from "./pair/events.js";
import {Federation} from "./pair/federation.js";
import {Ledger} from "./pair/ledger.js";
import {Overview} from "./pair/overview.js";
import {Quarantine, QuarantinedQueue} from "./pair/quarantine.js";
import {Reports} from "./pair/reports.js";

const PAGES = {
  overview: ["Overview", Overview],
  queues: ["Queues", Queues],
  exchanges: ["Exchanges", Exchanges],
  bindings: ["Bindings", Bindings],
  connections: ["Connections", Connections],
  channels: ["Channels", Channels],
  consumers: ["Consumers", Consumers],
  vhosts: ["Virtual hosts", Vhosts],
  users: ["Users", Users],
  policies: ["Policies", Policies],
  limits: ["Limits", Limits],
  events: ["Events", Events],
  quarantine: ["Quarantine", Quarantine],
  federation: ["Federation", Federation],
  ledger: ["Ledger and watch", Ledger],
  reports: ["Reports", Reports],
};

/** `{name, title, view}` of the parts of an address. A key, so that another object is another page. */
export function pageOf([name, ...parts]) {
  const key = parts.join("\u0000");
  const one = (title, view) => ({name, title, view: html`<div key=${`${name} ${key}`}>${view}</div>`});
  switch (`${name} ${parts.length}`) {
    case "queues 2": return one(`Queue ${parts[1]}`, html`<${Queue} vhost=${parts[0]} name=${parts[1]} />`);
    case "exchanges 2": return one(`Exchange ${parts[1]}`, html`<${Exchange} vhost=${parts[0]} name=${parts[1]} />`);
    case "connections 1": return one("Connection", html`<${Connection} name=${parts[0]} />`);
    case "users 1": return one(`User ${parts[0]}`, html`<${User} name=${parts[0]} />`);
    case "quarantine 1": return one("Quarantine", html`<${QuarantinedQueue} queue=${parts[0]} />`);
    default:
  }
  const [title, page] = PAGES[name || "overview"] ?? ["No such page", Unknown];
  return {name: name || "overview", title, view: html`<div key=${name || "overview"}><${page} /></div>`};
}

const Unknown = () => html`<h1>No such page</h1><p><a href="#/overview">To the overview</a></p>`;
