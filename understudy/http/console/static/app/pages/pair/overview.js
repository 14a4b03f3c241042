// The pair as a picture with its sentences, the rates, and the totals.
import {html} from "../../core/dom.js";
import {count, duration, many, octets, plain} from "../../core/format.js";
import {useLive, usePolled} from "../../core/live.js";
import {NARROW, useMedia} from "../../core/media.js";
import {lagWords, pairOf, roleOf, serves} from "../../core/pair.js";
import {hrefOf} from "../../core/route.js";
import {Badge, Fact, Facts, Loading, Panel, Tile, Title} from "../../parts/basics.js";
import {Picture} from "../../parts/picture.js";
import {MessageRates, QueuedMessages} from "../../parts/rates.js";
import {RoleButtons} from "../../parts/roles.js";
import {EventList} from "./events.js";

export function Overview() {
  const {status, overview: told} = useLive();
  const polled = usePolled(told ? null : "overview").data; // users who may not see all are told nothing
  const overview = told ?? polled;
  const isNarrow = useMedia(NARROW);
  if (!status) return html`<${Loading} />`;
  const pair = pairOf(status, overview);
  return html`
    <${Title} sub=${`Node ${plain(status.name)}, epoch ${status.epoch}`} actions=${html`<${RoleButtons} />`}>Overview</${Title}>
    <section class="panel wide pair">
      <div class="verdict ${pair.verdict.tone}" id="verdict">
        <h2>${pair.verdict.title}</h2>
        <p>${plain(status.reason)}</p>
      </div>
      <${Picture} pair=${pair} isNarrow=${isNarrow} />
      <${Sentences} status=${status} pair=${pair} />
    </section>
    <${Totals} overview=${overview} status=${status} />
    <div class="columns">
      <${Panel} title="Message rates"><${MessageRates} /></${Panel}>
      <${Panel} title="Queued messages"><${QueuedMessages} /></${Panel}>
    </div>
    <div class="columns">
      <${Panel} title="Last changes of the pair" actions=${html`<a href=${hrefOf("events")}>All events</a>`}>
        <${EventList} events=${status.recent_events} most=${6} />
      </${Panel}>
      <${Node} />
    </div>`;
}

function Sentences({status, pair}) {
  const {owner, authority, controller} = status;
  const synced = pair.nodes.filter((node) => node.inSync).map((node) => node.name);
  const backups = pair.nodes.filter((node) => !node.serves);
  const last = (status.recent_events ?? []).find((each) => each.event === "promoted");
  return html`
    <${Facts}>
      <${Fact} label="Serves">${serving(status, pair)}</${Fact}>
      <${Fact} label="Ready to take over">${readiness(backups)}</${Fact}>
      <${Fact} label="In-sync record">${owner
        ? `${plain(owner)} owns the record of epoch ${status.epoch}. In sync: ${synced.map(plain).join(", ") || "nobody"}.`
        : "No record yet: nobody has been promoted."}</${Fact}>
      ${serves(status) && html`<${Fact} label="Held confirms">${held(status)}</${Fact}>
        <${Fact} label="Consumer acks">${dequeues(status.dequeues)}</${Fact}>`}
      ${status.confirm && html`<${Fact} label="Confirms">${levelWords(status.confirm)}</${Fact}>`}
      <${Fact} label="Authority" tone=${authority?.ok === false ? "bad" : ""}>${authorityWords(authority)}</${Fact}>
      ${controller && html`<${Fact} label="Controller">${controllerWords(controller)}</${Fact}>`}
      <${Fact} label="Last failover">${last
        ? `${plain(last.node)} was promoted ${ago(last.at_ms)} (${plain(last.reason)}), epoch ${last.epoch}.`
        : "None that this node has seen since its start."}</${Fact}>
      <${Fact} label="Quarantine">${status.quarantined
        ? html`${many(status.quarantined, "message")} set aside since the start: <a href="#/quarantine">look</a>`
        : "Nothing set aside since the start."}</${Fact}>
    </${Facts}>`;
}

function serving(status, pair) {
  const node = pair.nodes.find((each) => each.serves);
  if (!node) return status.primary ? `${plain(status.primary)}, as far as this node knows.` : "Nobody, as far as this node knows.";
  return html`${plain(node.name)} <${Badge} tone=${roleOf(node).tone}>${roleOf(node).word}</${Badge}>
    ${status.withheld ? " Its leadership lease has expired: confirms and deliveries are paused." : ""}`;
}

function readiness(backups) {
  if (!backups.length) return "Nobody: this node has no backup.";
  return html`<ul class="plain">${backups.map((node) => html`<li>
    ${plain(node.name)} <${Badge} tone=${roleOf(node).tone}>${roleOf(node).word}</${Badge}>
    ${" "}${lagWords(node)} ${node.trouble && html`<span class="bad">${plain(node.trouble)}</span>`}</li>`)}</ul>`;
}

function held(status) {
  if (status.withheld) return "All confirms wait: the leadership lease has expired.";
  if (!status.held_channels) return "None: every publisher has its confirms.";
  return `${many(status.held_channels, "channel")} with confirms or replies under way, until all nodes in sync and the disk have them.`;
}

const LEVELS = {
  "all-disks": "wait for the disks of all nodes in sync.",
  "primary-disk": "wait for the disk of the primary and the memory of the others.",
  "all-memory": "wait for no disk: a loss of power of all nodes costs the last of them.",
};

/** What confirms wait for at least: now on a node that serves, else by the record. */
function levelWords({least, record, default: usual}) {
  const level = least ?? record ?? usual;
  return html`<code>${plain(level)}</code>: they ${LEVELS[level] ?? ""}`;
}

function dequeues(found) {
  if (!found) return "–";
  return found.waiting
    ? `${many(found.waiting, "message")} taken by consumers wait to be told to the backup, the oldest for ${duration(found.longest_lag)}.`
    : "The backup knows every message that consumers have taken.";
}

function authorityWords(authority) {
  if (!authority) return "–";
  return html`<code>${plain(authority.kind)}</code> ${authority.ok === false ? plain(authority.reason) : authority.reason ? plain(authority.reason) : "commits changes of the record."}`;
}

function controllerWords({role, state, reason, peer}) {
  const own = [role && `role ${role}`, `state ${state}`].filter(Boolean).join(", ");
  const other = peer?.name ? ` The other node ${plain(peer.name)} is ${plain(peer.state)}.` : "";
  return `${own}.${other} ${plain(reason ?? "")}`;
}

function ago(ms) {
  const seconds = (Date.now() - ms) / 1000;
  return seconds < 1 ? "just now" : `${duration(Math.floor(seconds))} ago`;
}

function Totals({overview, status}) {
  const objects = overview?.object_totals ?? {};
  const queued = overview?.queue_totals ?? {};
  return html`
    <div class="tiles">
      <${Tile} label="Ready" figure=${count(queued.messages_ready)} href=${hrefOf("queues")} />
      <${Tile} label="Unacked" figure=${count(queued.messages_unacknowledged)} href=${hrefOf("queues")} />
      <${Tile} label="Queues" figure=${count(objects.queues ?? status.queues)} href=${hrefOf("queues")} />
      <${Tile} label="Exchanges" figure=${count(objects.exchanges)} href=${hrefOf("exchanges")} />
      <${Tile} label="Connections" figure=${count(objects.connections)} href=${hrefOf("connections")} />
      <${Tile} label="Channels" figure=${count(objects.channels)} href=${hrefOf("channels")} />
      <${Tile} label="Consumers" figure=${count(objects.consumers)} href=${hrefOf("consumers")} />
    </div>`;
}

function Node() {
  const {status} = useLive();
  const {data} = usePolled("nodes");
  const node = data?.find?.((each) => each.name === status.name || each.name?.endsWith(`@${status.name}`)) ?? data?.[0] ?? {};
  const memory = Object.values(status.memory ?? {}).reduce((sum, it) => sum + (typeof it === "number" ? it : 0), 0);
  return html`
    <${Panel} title="This node">
      <${Facts}>
        <${Fact} label="Memory">${octets(node.mem_used ?? memory)}${node.mem_limit ? ` of ${octets(node.mem_limit)}` : ""}${status.alarms?.memory ? " (alarm)" : ""}</${Fact}>
        <${Fact} label="Disk free">${octets(node.disk_free)}${node.disk_free_limit ? `, alarm below ${octets(node.disk_free_limit)}` : ""}</${Fact}>
        <${Fact} label="Open files">${count(node.fd_used)}${node.fd_total ? ` of ${count(node.fd_total)}` : ""}</${Fact}>
        <${Fact} label="On disk">${octets(status.stored_bytes)} in the store, ${many(status.paged ?? 0, "message")} paged out</${Fact}>
        <${Fact} label="Up for">${duration(node.uptime === undefined ? undefined : node.uptime / 1000)}</${Fact}>
        <${Fact} label="Build">${plain(status.build)}, link protocol ${status.version}</${Fact}>
      </${Facts}>
    </${Panel}>`;
}
