// Forms that publish a message, and messages as they came out of a queue.
import {html} from "../core/dom.js";
import {path, post} from "../core/api.js";
import {count, named, octets, plain, value} from "../core/format.js";
import {Badge} from "./basics.js";

const MODES = [
  ["ack_requeue_true", "leave them in the queue (they are flagged as redelivered)"],
  ["ack_requeue_false", "take them out of the queue"],
  ["reject_requeue_true", "reject them, back into the queue"],
  ["reject_requeue_false", "reject them, to the dead-letter exchange if there is one"],
];
const NUMBERS = ["priority", "delivery_mode", "timestamp"];

/** A form for `useDialogs().form`: publishes to an exchange. */
export const publishing = ({vhost, exchange, key = "", title = "Publish a message"}) => ({
  title, verb: "Publish", wide: true,
  fields: [
    {name: "routing_key", label: "Routing key", value: key},
    {name: "payload", label: "Payload", kind: "lines"},
    {name: "payload_encoding", label: "The payload is", kind: "choice", value: "string", options: [["string", "text"], ["base64", "base64"]]},
    {name: "persistent", label: "Persistent: it survives restarts in a durable queue", kind: "flag", value: true},
    {name: "properties", label: "Properties", kind: "pairs", hint: "One a line, such as content_type = text/plain or priority = 3"},
    {name: "headers", label: "Headers", kind: "pairs", hint: "One a line, such as x-tenant = 7"},
  ],
  act: ({persistent, properties, headers, ...rest}) => post(path`exchanges/${vhost}/${exchange || "amq.default"}/publish`, {
    ...rest,
    properties: {
      ...texts(properties), delivery_mode: persistent ? 2 : 1,
      ...(Object.keys(headers).length ? {headers} : {}),
    },
  }),
  said: (answer) => (answer?.routed ? "Published: at least one queue has it." : "Published, but no queue takes it: it was dropped."),
});

const texts = (properties) => Object.fromEntries(
  Object.entries(properties).map(([key, it]) => [key, NUMBERS.includes(key) ? it : String(it)]),
);

/** A form that gets messages of a queue; `show(messages)` has them. */
export const getting = ({vhost, name, show}) => ({
  title: "Get messages", verb: "Get",
  text: html`<p>For a look at what is in <b>${named(name)}</b>. Consumers see the effect of each way.</p>`,
  fields: [
    {name: "count", label: "How many at most", kind: "number", value: "10", required: true},
    {name: "ackmode", label: "Then", kind: "choice", options: MODES, value: MODES[0][0]},
    {name: "encoding", label: "Payload", kind: "choice", options: [["auto", "as text if it is text"], ["base64", "as base64"]], value: "auto"},
    {name: "truncate", label: "Octets of a payload at most", kind: "number", value: "50000"},
  ],
  act: async (values) => show(await post(path`queues/${vhost}/${name}/get`, values)),
});

/** `tag(message)`: more for its head. */
export function Messages({of: messages, tag}) {
  if (!messages.length) return html`<p class="empty">There is no such message.</p>`;
  return html`<ol class="messages">${messages.map((each, at) => html`<${Message} key=${at} of=${each} tag=${tag} />`)}</ol>`;
}

function Message({of: it, tag}) {
  const {headers, ...properties} = it.properties ?? {};
  return html`
    <li class="message">
      <header>
        <span><b>${named(it.exchange, "(default)")}</b> → <b>${named(it.routing_key, "(empty)")}</b></span>
        ${tag?.(it)}
        ${it.redelivered && html`<${Badge} tone="wait">redelivered</${Badge}>`}
        <span class="faint">${octets(it.payload_bytes)}${it.message_count !== undefined ? `, ${count(it.message_count)} behind it` : ""}</span>
      </header>
      <${Pairs} of=${properties} /><${Pairs} of=${headers ?? {}} label="headers" />
      <pre>${it.payload_encoding === "string" ? "" : `${it.payload_encoding}: `}${payload(it.payload)}</pre>
    </li>`;
}

const payload = (text) => String(text ?? "").split("\n").map((line) => line.split("\t").map(plain).join("\t")).join("\n");

function Pairs({of: pairs, label}) {
  const found = Object.entries(pairs);
  if (!found.length) return null;
  return html`<p class="arguments">${label && html`<span class="faint">${label}</span>`}
    ${found.map(([key, it]) => html`<span class="argument"><b>${plain(key)}</b> ${value(it)}</span>`)}</p>`;
}
