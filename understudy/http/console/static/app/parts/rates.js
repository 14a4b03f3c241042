// Charts of rates and lengths: of the whole node from the event stream, of one object from the samples of its answer.
import {html} from "../core/dom.js";
import {count, rate} from "../core/format.js";
import {useLive, usePolled} from "../core/live.js";
import {Chart} from "./chart.js";

const RATES = [
  ["publish", "Published"], ["confirm", "Confirmed"], ["deliver_get", "Delivered"], ["ack", "Acked"],
  ["redeliver", "Redelivered"],
];
/** A queue confirms nothing: its node does. */
export const QUEUE_RATES = RATES.filter(([key]) => key !== "confirm");
const LENGTHS = [["messages_ready", "Ready"], ["messages_unacknowledged", "Unacked"]];
export const SAMPLES = "msg_rates_age=600&msg_rates_incr=5&lengths_age=600&lengths_incr=5";

/** Rates of the node, live. Samples from before the page was opened come from the node. */
export function MessageRates() {
  const {rates} = useLive();
  const {data} = usePolled(`overview?${SAMPLES}`, rates.length ? 3600 : 5);
  const series = joined(historyOf(data?.message_stats, RATES, derived), rates, RATES, (it, key) => it.message_stats?.[`${key}_details`]?.rate ?? 0);
  return html`<${Chart} label="Messages per second" unit=${compact} ...${linesOf(series, RATES, rate)} />`;
}

export function QueuedMessages() {
  const {rates} = useLive();
  const {data} = usePolled(`overview?${SAMPLES}`, rates.length ? 3600 : 5);
  const series = joined(historyOf(data?.queue_totals, LENGTHS, level), rates, LENGTHS, (it, key) => it.queue_totals?.[key] ?? 0);
  return html`<${Chart} label="Messages in all queues" unit=${compact} ...${linesOf(series, LENGTHS, count)} />`;
}

/** Rates of one object, by an answer that was asked for with SAMPLES. */
export function ObjectRates({stats, keys = RATES, label = "Messages per second"}) {
  const series = historyOf(stats, keys, derived);
  if (!series.times.length) return html`<p class="empty">No message has passed yet.</p>`;
  return html`<${Chart} label=${label} unit=${compact} ...${linesOf(series, keys, rate)} />`;
}

export function ObjectLengths({of}) {
  const series = historyOf(of, LENGTHS, level);
  if (!series.times.length) return html`<p class="empty">No samples yet.</p>`;
  return html`<${Chart} label="Messages" unit=${compact} ...${linesOf(series, LENGTHS, count)} />`;
}

const compact = (it) => new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 2}).format(it);

function linesOf({times, values}, keys, shown) {
  const lines = keys.map(([key, label]) => ({label, values: values[key], shown: shown(values[key].at(-1))}));
  return {times, lines};
}

/** RabbitMQ's samples, newest first, as times in seconds and values by key. */
function historyOf(stats, keys, of) {
  const all = keys.map(([key]) => [key, of(stats?.[`${key}_details`]?.samples ?? [])]);
  const moments = [...new Set(all.flatMap(([, points]) => [...points.keys()]))].sort((a, b) => a - b);
  const values = Object.fromEntries(all.map(([key, points]) => [key, moments.map((at) => points.get(at) ?? 0)]));
  return {times: moments.map((ms) => ms / 1000), values};
}

const level = (samples) => new Map(samples.map(({sample, timestamp}) => [timestamp, sample]));

function derived(samples) {
  const points = new Map();
  const inOrder = [...samples].sort((a, b) => a.timestamp - b.timestamp);
  for (let at = 1; at < inOrder.length; at += 1) {
    const seconds = (inOrder[at].timestamp - inOrder[at - 1].timestamp) / 1000;
    if (seconds > 0) points.set(inOrder[at].timestamp, Math.max(0, (inOrder[at].sample - inOrder[at - 1].sample) / seconds));
  }
  return points;
}

function joined(before, samples, keys, valueOf) {
  const first = samples[0] ? samples[0].at_ms / 1000 : Infinity;
  const kept = before.times.filter((at) => at < first).length;
  const times = [...before.times.slice(0, kept), ...samples.map((each) => each.at_ms / 1000)];
  const values = Object.fromEntries(keys.map(([key]) => [
    key, [...before.values[key].slice(0, kept), ...samples.map((each) => valueOf(each, key))],
  ]));
  return {times, values};
}
