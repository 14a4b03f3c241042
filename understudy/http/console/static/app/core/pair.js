// What the status of a node says of the pair, in words and tones. One place, for the picture and for the sentences.
import {many} from "./format.js";

const WORDS = {
  active: ["ok", "serves clients"],
  standalone: ["ok", "serves clients, alone"],
  recovering: ["wait", "becomes the primary"],
  ready: ["ok", "ready to take over"],
  "catch-up": ["wait", "catches up"],
  joining: ["wait", "joins"],
  unknown: ["wait", "not heard yet"],
  unreachable: ["bad", "cannot be reached"],
};
const SERVING = ["active", "standalone", "recovering"];

export function roleOf(node) {
  const [tone, word] = WORDS[node.status] ?? ["wait", node.status];
  return {tone: node.isFenced ? "bad" : tone, word: node.isFenced ? "output fenced" : word};
}

/** What a node said last does not hold once its link is lost. */
const statusOf = (member) => (member.connected === false && !member.self ? "unreachable" : member.status);

/** The pair as the picture shows it: the node that serves first. */
export function pairOf(status, overview = null) {
  const members = status.members?.length ? status.members : [{
    name: status.name, status: status.status, in_sync: true, connected: true, self: true, address: "",
  }];
  const nodes = members.map((member) => ({
    name: member.name, status: statusOf(member), self: Boolean(member.self), connected: member.connected !== false,
    inSync: Boolean(member.in_sync), address: member.address ?? "", trouble: member.trouble ?? "",
    lag: member.lag, lagBytes: member.lag_bytes, queuesLeft: member.queues_left,
    serves: SERVING.includes(statusOf(member)), isFenced: Boolean(member.self && status.withheld),
  }));
  nodes.sort((a, b) => Number(b.serves) - Number(a.serves) || a.name.localeCompare(b.name));
  const verdict = verdictOf(status, nodes);
  return {
    nodes, verdict, clients: serves(status) ? overview?.object_totals?.connections ?? null : null,
    isPaused: Boolean(status.withheld || status.alarms?.memory || status.alarms?.disk),
    words: `${verdict.title} ${nodes.map((node) => `${node.name} ${roleOf(node).word}`).join(", ")}.`,
  };
}

/** One heading and its tone. The sentence below it is the node's own reason. */
function verdictOf(status, nodes) {
  const serving = nodes.find((node) => node.serves);
  if (status.status === "standalone") return {tone: "note", title: "One node serves alone, without a pair."};
  if (!serving) return {tone: "bad", title: "No node serves."};
  if (status.withheld) return {tone: "bad", title: "The output of this node is fenced."};
  const others = nodes.filter((node) => node !== serving);
  const whole = others.length > 0 && others.every((node) => node.status === "ready" && node.inSync);
  if (whole) return {tone: "ok", title: "The pair is whole."};
  if (others.some((node) => node.status === "ready" && node.inSync)) return {tone: "wait", title: "One of the backups is missing."};
  if (others.some((node) => node.status === "unreachable")) return {tone: "bad", title: "The backup cannot be reached."};
  return {tone: "wait", title: "The backup is not ready yet."};
}

export const serves = (status) => SERVING.includes(status?.status);

/** How far a backup is behind, in words. */
export function lagWords(node) {
  if (node.lag === undefined) return "";
  const left = node.queuesLeft ? `, ${many(node.queuesLeft, "queue")} to copy` : "";
  return node.lag ? `${many(node.lag, "batch", "batches")} behind${left}` : `nothing behind${left}`;
}
