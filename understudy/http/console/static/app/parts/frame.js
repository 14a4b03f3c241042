// The frame of all pages: navigation, the state of this node, theme, and who is logged in.
import {html, useEffect, useState} from "../core/dom.js";
import {logOut} from "../core/api.js";
import {named, plain} from "../core/format.js";
import {useLive} from "../core/live.js";
import {hrefOf} from "../core/route.js";
import {serves} from "../core/pair.js";

const PLACES = [
  ["", [["overview", "Overview"]]],
  ["Messages", [["queues", "Queues"], ["exchanges", "Exchanges"], ["bindings", "Bindings"]]],
  ["Clients", [["connections", "Connections"], ["channels", "Channels"], ["consumers", "Consumers"]]],
  ["Access", [["vhosts", "Virtual hosts"], ["users", "Users"], ["policies", "Policies"], ["limits", "Limits"]]],
  ["Pair", [["events", "Events"], ["quarantine", "Quarantine"], ["federation", "Federation"], ["ledger", "Ledger and watch"], ["reports", "Reports"]]],
];
const THEME = "understudy.theme";
const THEMES = {"": "Theme: as the system", light: "Theme: light", dark: "Theme: dark"};

export function Frame({page, children}) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [page]);
  const {status, isUp, who} = useLive();
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the page</a>
    <div class="frame ${isOpen ? "open" : ""}">
      <header class="bar">
        <button type="button" class="button menu" aria-expanded=${isOpen} aria-controls="places"
          onClick=${() => setOpen(!isOpen)}>Menu</button>
        <a class="brand" href="#/overview"><img src="console/mark.svg" alt="" width="26" height="26" /> Understudy</a>
        <${Standing} status=${status} isUp=${isUp} />
        <div class="bar-end">
          <${Theme} />
          ${who && html`<span class="who">${plain(who.name)}</span>
            <button type="button" class="button quiet" onClick=${logOut}>Log out</button>`}
        </div>
      </header>
      <nav class="places" id="places" aria-label="Pages">
        ${PLACES.map(([group, links]) => html`
          ${group && html`<h2 class="place-group">${group}</h2>`}
          <ul>${links.map(([key, label]) => html`
            <li><a href=${hrefOf(key)} aria-current=${key === page ? "page" : undefined}>${label}</a></li>`)}</ul>`)}
      </nav>
      <main id="main" tabindex="-1"><${Notes} />${children}</main>
    </div>`;
}

function Standing({status, isUp}) {
  if (!isUp) return html`<span class="standing bad"><i></i>no connection</span>`;
  if (!status) return html`<span class="standing"><i></i>…</span>`;
  const tone = status.withheld ? "bad" : ["active", "standalone", "ready"].includes(status.status) ? "ok" : "wait";
  return html`<span class="standing ${tone}" id="standing"><i></i>${named(status.name)} · ${status.status}</span>`;
}

/** What concerns every page: no connection, a backup, alarms. */
function Notes() {
  const {status, isUp, lostAt} = useLive();
  const notes = [];
  if (!isUp && lostAt) {
    notes.push(["bad", `This node has not answered since ${new Date(lostAt).toLocaleTimeString("en-GB")}. The page shows what it said last, and asks again each second.`]);
  }
  if (status && isUp && !serves(status)) {
    const where = status.primary ? `The primary is ${plain(status.primary)}: change things there.` : "No primary is known.";
    notes.push(["note", `${plain(status.name)} does not serve, so this page is read-only. ${where}`]);
  }
  if (status?.alarms?.memory) notes.push(["bad", "Memory alarm: publishers are paused until consumers have taken enough."]);
  if (status?.alarms?.disk) notes.push(["bad", "Disk alarm: publishers are paused until the disk has more room."]);
  return notes.map(([tone, text]) => html`<p class="banner ${tone}" role="status">${text}</p>`);
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem(THEME) ?? "");
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem(THEME, theme);
    dispatchEvent(new Event("themechange"));
  }, [theme]);
  return html`<label class="theme"><span class="unseen">Theme</span>
    <select value=${theme} onChange=${(event) => setTheme(event.target.value)}>
      ${Object.entries(THEMES).map(([key, text]) => html`<option value=${key} selected=${key === theme}>${text}</option>`)}
    </select></label>`;
}
