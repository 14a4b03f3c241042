// Switchover and promotion, each with a confirmation that says what will happen.
import {html} from "../core/dom.js";
import {post} from "../core/api.js";
import {plain} from "../core/format.js";
import {useLive} from "../core/live.js";
import {lagWords, pairOf, serves} from "../core/pair.js";
import {useDialogs} from "./dialogs.js";

export function RoleButtons() {
  const {status, who, isUp} = useLive();
  const {confirm} = useDialogs();
  if (!isUp || !status || !mayCommand(who) || status.status === "standalone") return null;
  if (serves(status)) return html`<button type="button" class="button" onClick=${() => confirm(switchover(status))}>Switch over</button>`;
  if (pairOf(status).nodes.some((node) => node.serves && node.connected)) return null;
  return html`<button type="button" class="button" onClick=${() => confirm(promotion(status))}>Promote this node</button>`;
}

const mayCommand = (who) => tagsOf(who).includes("administrator");

export function tagsOf(who) {
  const tags = who?.tags ?? [];
  return Array.isArray(tags) ? tags : tags.split(",");
}

function switchover(status) {
  const {nodes} = pairOf(status);
  const targets = nodes.filter((node) => !node.serves);
  const ready = targets.filter((node) => node.inSync && node.status === "ready");
  return {
    title: "Switch over",
    verb: "Switch over",
    danger: true,
    fields: targets.length > 1
      ? [{name: "to", label: "New primary", kind: "choice", value: "", options: [["", "The one that is furthest"], ...targets.map((it) => it.name)]}]
      : [],
    text: html`
      <p>The primary role moves from <b>${plain(status.name)}</b> to <b>${targets.map((it) => plain(it.name)).join(" or ") || "nobody"}</b>.</p>
      <ol>
        <li>This node takes in nothing new: publishers wait.</li>
        <li>The target writes everything to its disk. It is ${targets.map((it) => lagWords(it) || it.status).join("; ")}.</li>
        <li>The target serves in a later epoch than ${status.epoch}. Clients lose their connections here and connect there.</li>
        <li>This node joins again as a backup.</li>
      </ol>
      <p>No confirmed message is lost. Messages that are not acked are delivered again. If the target is not whole in
        time, everything stays as it is.</p>
      ${ready.length === 0 && html`<p class="trouble">No backup is in sync now: the node will refuse.</p>`}`,
    act: ({to}) => post("switchover", to ? {to} : {}),
    said: (answer) => answer.reason,
  };
}

function promotion(status) {
  return {
    title: "Promote this node",
    verb: "Promote",
    danger: true,
    text: html`
      <p><b>${plain(status.name)}</b> becomes the primary, if it holds every confirmed message and no other node may still
        serve.</p>
      <p>${status.promotable ? "By what it knows, it may." : "By what it knows now, it will refuse:"} ${plain(status.reason)}</p>
      <p>A promotion by force, which accepts losses, is a command of the terminal: <code>understudy promote --force-lossy</code>.</p>`,
    act: () => post("promote", {}),
    said: (answer) => answer.reason,
  };
}
