// The federation around this node, as a picture: neighbours on a ring, and farther nodes beyond them by their routes.
import {html} from "../core/dom.js";
import {plain} from "../core/format.js";

const MARGIN = {x: 100, y: 32};
/** Half the width and height of the ring of neighbours; farther nodes are on a wider one. */
const RING = {wide: {x: 230, y: 105}, narrow: {x: 95, y: 120}};
const FARTHER = 1.35;

export function Map({node, agents, links, routes, isNarrow}) {
  const edges = edgesOf(node, agents, links, routes);
  const places = placed(node, edges, isNarrow ? RING.narrow : RING.wide);
  const xs = [...places.values()].map((at) => at.x);
  const ys = [...places.values()].map((at) => at.y);
  const [left, top] = [Math.min(...xs) - MARGIN.x, Math.min(...ys) - MARGIN.y];
  const box = [left, top, Math.max(...xs) + MARGIN.x - left, Math.max(...ys) + MARGIN.y - top];
  const words = edges.map((edge) => `${edge.from} to ${edge.to}: ${edge.state}`).join("; ");
  return html`
    <svg class="picture map" viewBox=${box.map(Math.round).join(" ")} role="img" aria-label=${`Federation of ${plain(node)}. ${plain(words)}`}>
      ${edges.map((edge) => html`<${Edge} edge=${edge} a=${places.get(edge.from)} b=${places.get(edge.to)} />`)}
      ${[...places].map(([name, at]) => html`<${Node} name=${name} at=${at} isSelf=${name === node} />`)}
    </svg>`;
}

/** Messages flow from `from` to `to`. */
function edgesOf(node, agents, links, routes) {
  const found = new globalThis.Map();
  const add = (from, to, state) => {
    const key = JSON.stringify([from, to]);
    const old = found.get(key);
    if (!old || old.state === "running") found.set(key, {from, to, state});
  };
  for (const agent of agents) {
    const other = agent.source.split(" at ")[0] || agent.upstream;
    if (agent.consume_mode !== "none") add(other, node, agent.state);
    if (agent.forward_mode && agent.forward_mode !== "none") add(node, other, agent.state);
  }
  for (const link of links) {
    if (link.way === "gives") add(link.node, node, "running");
    else add(node, link.node, "running");
  }
  for (const route of routes.filter((each) => each.node)) {
    const steps = [node, ...route.path.split(" ").filter(Boolean)];
    if (steps.at(-1) !== route.node) steps.push(route.node);
    for (let at = 1; at < steps.length; at += 1) {
      if (!found.has(JSON.stringify([steps[at], steps[at - 1]]))) add(steps[at - 1], steps[at], route.state);
    }
  }
  return [...found.values()].filter((edge) => edge.from !== edge.to);
}

function placed(node, edges, ring) {
  const near = new Set();
  const all = new Set();
  for (const {from, to} of edges) {
    all.add(from).add(to);
    if (from === node) near.add(to);
    if (to === node) near.add(from);
  }
  all.delete(node);
  const places = new globalThis.Map([[node, {x: 0, y: 0}]]);
  const names = [...all].sort((a, b) => Number(near.has(b)) - Number(near.has(a)) || a.localeCompare(b));
  names.forEach((name, at) => {
    const angle = (2 * Math.PI * at) / names.length - Math.PI * 0.85;
    const far = near.has(name) ? 1 : FARTHER;
    places.set(name, {x: far * ring.x * Math.cos(angle), y: far * ring.y * Math.sin(angle)});
  });
  return places;
}

function Edge({edge, a, b}) {
  const kind = edge.state === "running" ? "ok" : edge.state === "off" ? "off" : "bad";
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const unit = {x: (b.x - a.x) / length, y: (b.y - a.y) / length};
  const tip = {x: a.x + unit.x * length * 0.62, y: a.y + unit.y * length * 0.62};
  const wing = (side) => `${tip.x - unit.x * 12 - side * unit.y * 6} ${tip.y - unit.y * 12 + side * unit.x * 6}`;
  return html`<g class="link ${kind}">
    <path d="M ${a.x} ${a.y} L ${b.x} ${b.y}" />
    <path class="tip" d="M ${wing(1)} L ${tip.x} ${tip.y} L ${wing(-1)}" /></g>`;
}

function Node({name, at, isSelf}) {
  const shown = plain(name);
  const text = shown.length > 18 ? `${shown.slice(0, 17)}…` : shown;
  const width = Math.max(70, text.length * 8.5 + 26);
  return html`<g class="node ${isSelf ? "ok serves" : ""}" transform="translate(${at.x} ${at.y})">
    <rect class="node-box" x=${-width / 2} y="-19" width=${width} height="38" rx="19" />
    <text class="node-line strong" text-anchor="middle" y="5">${text}</text></g>`;
}
