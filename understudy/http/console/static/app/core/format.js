// Numbers, octets, times and names as text.

const DASH = "–";
const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const short = new Intl.NumberFormat("en", {maximumFractionDigits: 1});

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (isNumber(value) ? whole.format(value) : DASH);

/** "1 message", "2 messages". */
export const many = (value, thing, things = `${thing}s`) => `${count(value)} ${value === 1 ? thing : things}`;

/** A rate in events per second. */
export function rate(value) {
  if (!isNumber(value)) return DASH;
  if (value === 0) return "0";
  return `${value < 10 ? short.format(value) : whole.format(value)}/s`;
}

export function octets(value) {
  if (!isNumber(value)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at === 0 ? whole.format(value) : short.format(value)} ${units[at]}`;
}

export function duration(seconds) {
  if (!isNumber(seconds)) return DASH;
  if (seconds < 1) return `${whole.format(seconds * 1000)} ms`;
  if (seconds < 60) return `${short.format(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${whole.format(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const moment = new Intl.DateTimeFormat("en-GB", {dateStyle: "medium", timeStyle: "medium"});

/** A moment in milliseconds since 1970, in the zone of the reader. */
export const when = (ms) => (isNumber(ms) && ms > 0 ? moment.format(ms) : DASH);

/** Text of others, fit to be shown: controls and marks that turn its direction are spelt out. */
export function plain(text) {
  return String(text).replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu,
    (mark) => `\\u${mark.codePointAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** A name, which may be empty. */
export const named = (name, empty = "(no name)") => (name === "" || name == null ? empty : plain(name));

/** A value of a table of arguments. */
export function value(it) {
  if (typeof it === "string") return plain(it);
  if (it === null || it === undefined) return DASH;
  if (typeof it !== "object") return String(it);
  const flags = Object.entries(it);
  if (!Array.isArray(it) && flags.length && flags.every(([, each]) => typeof each === "boolean")) {
    return flags.filter(([, each]) => each).map(([key]) => plain(key)).join(", ") || "none";
  }
  return plain(JSON.stringify(it, null, 1).replace(/\n\s*/g, " "));
}
