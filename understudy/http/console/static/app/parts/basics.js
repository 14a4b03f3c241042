// Small pieces that all pages use.
import {html} from "../core/dom.js";
import {named, plain, value} from "../core/format.js";
import {hrefOf} from "../core/route.js";

/** `tone`: ok, wait, bad, note or plain. The text says the same as the colour. */
export const Badge = ({tone = "plain", title, children}) =>
  html`<span class="badge ${tone}" title=${title}>${children}</span>`;

export const Fact = ({label, children, tone}) =>
  html`<div class="fact"><dt>${label}</dt><dd class=${tone}>${children}</dd></div>`;

export const Facts = ({children}) => html`<dl class="facts">${children}</dl>`;

export const Tile = ({label, figure, note, href, tone = ""}) => {
  const inside = html`<span class="tile-label">${label}</span><span class="tile-figure ${tone}">${figure}</span>
    ${note && html`<span class="tile-note">${note}</span>`}`;
  return href ? html`<a class="tile" href=${href}>${inside}</a>` : html`<div class="tile">${inside}</div>`;
};

export const Panel = ({title, actions, children, wide = false}) => html`
  <section class="panel ${wide ? "wide" : ""}">
    ${title && html`<header class="panel-head"><h2>${title}</h2>${actions}</header>`}
    ${children}
  </section>`;

export const Empty = ({children}) => html`<p class="empty">${children}</p>`;

export const None = () => html`<span class="faint">none</span>`;

/** What a page says in place of its data. A backup names the primary. */
export function Trouble({error}) {
  if (!error) return null;
  const elsewhere = error.primary ? ` The primary is ${plain(error.primary)}.` : "";
  return html`<p class="trouble" role="alert">${plain(error.message)}${elsewhere}</p>`;
}

export const Loading = () => html`<p class="loading" role="status">Loading</p>`;

export const QueueLink = ({vhost, name}) => html`<a href=${hrefOf("queues", vhost, name)}>${named(name)}</a>`;

export const ExchangeLink = ({vhost, name}) =>
  html`<a href=${hrefOf("exchanges", vhost, name)}>${named(name, "(default)")}</a>`;

export const ChannelLink = ({of}) => html`
  <${ConnectionLink} name=${of?.connection_name ?? ""} /> <span class="faint">channel ${of?.number}</span>`;

export const ConnectionLink = ({name}) => html`<a href=${hrefOf("connections", name)}>${plain(name)}</a>`;

/** A table of arguments as pairs. */
export function Arguments({of}) {
  const pairs = Object.entries(of ?? {});
  if (!pairs.length) return html`<${None} />`;
  return html`<span class="arguments">
    ${pairs.map(([key, it]) => html`<span class="argument"><b>${plain(key)}</b> ${value(it)}</span>`)}
  </span>`;
}

export const Title = ({children, sub, actions}) => html`
  <header class="title">
    <div><h1>${children}</h1>${sub && html`<p class="sub">${sub}</p>`}</div>
    ${actions && html`<div class="actions">${actions}</div>`}
  </header>`;
