// Requests to the node. The login is a header that this module sets, never a cookie and never the browser's own
// password store: a page of another site cannot make the browser send it.

const KEY = "understudy.login";

let authorization = sessionStorage.getItem(KEY);
let onLogout = () => {};

/** A refusal by the node, or no answer from it (`status` 0). `message` is one sentence. */
export class Refused extends Error {
  constructor(status, message, code = "", primary = "") {
    super(message);
    Object.assign(this, {status, code, primary});
  }
}

export const isLoggedIn = () => authorization !== null;

export function whenLoggedOut(listener) {
  onLogout = listener;
}

/** Keeps the login for this tab, once the node has accepted it. Returns `/api/whoami`. */
export async function logIn(name, password) {
  const octets = new TextEncoder().encode(`${name}:${password}`);
  const header = `Basic ${btoa(String.fromCharCode(...octets))}`;
  const who = await request("GET", "api/whoami", undefined, {header});
  authorization = header;
  sessionStorage.setItem(KEY, header);
  return who;
}

export function logOut() {
  authorization = null;
  sessionStorage.removeItem(KEY);
  onLogout();
}

/** A path with each inserted part encoded: path`queues/${vhost}/${name}`. */
export function path(texts, ...parts) {
  return texts.reduce((made, text, at) => made + encoded(parts[at - 1]) + text);
}

function encoded(part) {
  try {
    return encodeURIComponent(part);
  } catch {
    throw new Refused(0, "This name is no valid text, so that no address can hold it: use the command line.");
  }
}

export const get = (where, options) => request("GET", `api/${where}`, undefined, options);
export const put = (where, body) => request("PUT", `api/${where}`, body);
export const post = (where, body) => request("POST", `api/${where}`, body);
export const remove = (where, options) => request("DELETE", `api/${where}`, undefined, options);

/** The stream of a path, as a response whose body is read in pieces. */
export const stream = (where, signal) => answered("GET", `api/${where}`, undefined, {signal});

async function request(method, where, body, options = {}) {
  const response = await answered(method, where, body, options);
  if (response.status === 204) return null;
  const text = await response.text();
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return text;
  }
}

async function answered(method, where, body, {signal, header = authorization, more = {}} = {}) {
  const headers = {...more};
  if (header) headers.Authorization = header;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(where, {
      method, headers, signal, credentials: "omit", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "This node does not answer.");
  }
  if (response.ok) return response;
  if (response.status === 401 && authorization !== null && header === authorization) logOut();
  throw await refusalOf(response);
}

async function refusalOf(response) {
  let said = {};
  const text = await response.text().catch(() => "");
  try {
    said = JSON.parse(text) ?? {};
  } catch {
    said = {reason: text.split("\n")[0].slice(0, 300)};
  }
  const reason = typeof said.reason === "string" && said.reason ? said.reason : `The node answers ${response.status}.`;
  return new Refused(response.status, reason, said.code ?? said.error ?? "", said.primary ?? "");
}
