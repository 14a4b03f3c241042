// Changes of membership that this node has seen since its start.
import {html} from "../../core/dom.js";
import {count, named, plain, when} from "../../core/format.js";
import {useLive} from "../../core/live.js";
import {Badge, Empty, Panel, Title} from "../../parts/basics.js";
import {Table} from "../../parts/table.js";

const WORDS = {
  promoted: ["ok", "now serves"],
  joining: ["wait", "joins as a backup"],
  "in-sync": ["ok", "holds every confirmed message"],
  lost: ["bad", "has lost its link"],
  excluded: ["bad", "is out of the in-sync set"],
  "queue-reset": ["wait", "gets a queue again"],
  switchover: ["note", "is about to become the primary"],
  demoted: ["note", "stops serving"],
};

export function EventList({events, most}) {
  const shown = (events ?? []).slice(0, most);
  if (!shown.length) return html`<${Empty}>No change since this node started.</${Empty}>`;
  return html`<ol class="timeline">${shown.map((each) => {
    const [tone, words] = WORDS[each.event] ?? ["plain", ""];
    return html`<li class=${tone}>
      <time>${when(each.at_ms)}</time>
      <p><b>${named(each.node)}</b> ${words} <${Badge} tone=${tone}>${each.event}</${Badge}>
        ${each.reason && html`<span class="faint"> ${plain(each.reason)}</span>`}</p></li>`;
  })}</ol>`;
}

export function Events() {
  const {status} = useLive();
  const counts = Object.entries(status?.events ?? {}).map(([event, times]) => ({event, times}));
  return html`
    <${Title} sub="Changes of membership since this node started. The primary also publishes each to the exchange amq.failover.">Events</${Title}>
    <div class="columns">
      <${Panel} title="Newest first"><${EventList} events=${status?.recent_events} most=${100} /></${Panel}>
      <${Panel} title="How often">
        ${counts.length === 0 ? html`<${Empty}>Nothing yet.</${Empty}>` : html`
          <${Table} label="Events by kind" rows=${counts} columns=${[
            {key: "event", label: "Event"},
            {key: "times", label: "Times", isNumber: true, render: (row) => count(row.times)},
          ]} />`}
      </${Panel}>
    </div>`;
}
