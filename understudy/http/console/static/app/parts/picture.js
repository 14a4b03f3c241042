// The pair as a picture: clients, the node that serves, its backups, the link, and what commits the record.
import {html} from "../core/dom.js";
import {count, octets, plain} from "../core/format.js";
import {roleOf} from "../core/pair.js";

const BOX = {width: 250, height: 128};

/** `isNarrow`: one node below the other. */
export function Picture({pair, isNarrow}) {
  const places = pair.nodes.map((node, at) => place(at, pair.nodes.length, isNarrow));
  const size = extent(places, isNarrow);
  const serving = pair.nodes.findIndex((node) => node.serves);
  return html`
    <svg class="picture" viewBox="0 0 ${size.width} ${size.height}" role="img" aria-label=${pair.words}>
      ${pair.nodes.map((node, at) => at !== serving && serving >= 0
        && html`<${Link} from=${places[serving]} to=${places[at]} node=${node} isNarrow=${isNarrow} />`)}
      ${serving >= 0 && html`<${Clients} at=${places[serving]} pair=${pair} isNarrow=${isNarrow} />`}
      ${pair.nodes.map((node, at) => html`<${Node} node=${node} at=${places[at]} />`)}
    </svg>`;
}

function place(at, all, isNarrow) {
  if (isNarrow) return {x: 40, y: 66 + at * (BOX.height + 74)};
  const rows = Math.max(1, all - 1);
  if (at === 0) return {x: 150, y: 16 + ((rows - 1) * (BOX.height + 24)) / 2};
  return {x: 560, y: 16 + (at - 1) * (BOX.height + 24)};
}

function extent(places, isNarrow) {
  const lowest = Math.max(...places.map((each) => each.y));
  return {width: isNarrow ? 330 : 830, height: lowest + BOX.height + 16};
}

function Node({node, at}) {
  const {tone, word} = roleOf(node);
  return html`
    <g class="node ${tone} ${node.serves ? "serves" : ""}" transform="translate(${at.x} ${at.y})">
      <rect class="node-box" width=${BOX.width} height=${BOX.height} rx="10" />
      <rect class="node-edge" width="6" height=${BOX.height} rx="3" />
      <text class="node-name" x="22" y="32">${cut(plain(node.name), 20)}</text>
      <text class="node-word" x="22" y="56">${word}</text>
      <text class="node-line" x="22" y="82">${cut(plain(node.address || "address not known"), 32)}</text>
      <text class="node-line" x="22" y="104">${node.inSync ? "in the in-sync set" : "not in the in-sync set"}${node.self ? " · this page" : ""}</text>
    </g>`;
}

function Link({from, to, node, isNarrow}) {
  const isUp = node.connected && node.status !== "unreachable";
  const kind = isUp ? (node.inSync ? "ok" : "wait") : "bad";
  const [a, b] = isNarrow
    ? [{x: from.x + BOX.width / 2, y: from.y + BOX.height}, {x: to.x + BOX.width / 2, y: to.y}]
    : [{x: from.x + BOX.width, y: from.y + BOX.height / 2}, {x: to.x, y: to.y + BOX.height / 2}];
  const middle = {x: (a.x + b.x) / 2 + (isNarrow ? 12 : 0), y: (a.y + b.y) / 2};
  const anchor = isNarrow ? "start" : "middle";
  return html`
    <g class="link ${kind}">
      <path d="M ${a.x} ${a.y} L ${b.x} ${b.y}" />
      ${isUp ? html`<circle class="pulse" r="4" cx=${b.x} cy=${b.y} />`
        : html`<text class="link-cut" x=${(a.x + b.x) / 2} y=${middle.y + 5} text-anchor="middle">✕</text>`}
      <text class="link-words" x=${middle.x} y=${middle.y - (isNarrow ? 4 : 12)} text-anchor=${anchor}>${isUp ? "link up" : "link lost"}</text>
      <text class="link-words faint" x=${middle.x} y=${middle.y + (isNarrow ? 16 : 24)} text-anchor=${anchor}>${isUp ? lag(node) : ""}</text>
    </g>`;
}

function lag(node) {
  if (node.lag === undefined) return "";
  return node.lag ? `${count(node.lag)} behind, ${octets(node.lagBytes)}` : "nothing behind";
}

function Clients({at, pair, isNarrow}) {
  const [a, b] = isNarrow
    ? [{x: at.x + BOX.width / 2, y: 34}, {x: at.x + BOX.width / 2, y: at.y}]
    : [{x: 96, y: at.y + BOX.height / 2}, {x: at.x, y: at.y + BOX.height / 2}];
  const words = pair.clients === null ? "clients" : `${count(pair.clients)} ${pair.clients === 1 ? "client" : "clients"}`;
  return html`
    <g class="clients ${pair.isPaused ? "wait" : "ok"}">
      <path d="M ${a.x} ${a.y} L ${b.x} ${b.y}" />
      <text x=${isNarrow ? a.x : 48} y=${isNarrow ? 22 : a.y + 5} text-anchor="middle">${words}</text>
    </g>`;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
