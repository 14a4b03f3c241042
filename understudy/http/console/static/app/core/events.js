// The live state of the node, by server-sent events over fetch (which can send the login, unlike EventSource).
import {stream, Refused} from "./api.js";

const RETRY_MS = 1000;
const SILENCE_MS = 12000; // the node sends something at least every 5 s

/** Calls `onEvent(name, data)` for each event, and `onLine(isUp)` when the connection comes or goes. A page that nobody
 * sees holds no connection: a browser has only a few for each node. Returns a function that ends it. */
export function listen(onEvent, onLine) {
  let over = false;
  let attempt = new AbortController();
  let wake = () => {};

  const run = async () => {
    while (!over) {
      if (document.hidden) {
        await new Promise((resolve) => { wake = resolve; });
        continue;
      }
      attempt = new AbortController();
      try {
        await read(attempt, (name, data) => { onLine(true); onEvent(name, data); });
      } catch (error) {
        if (over || (error instanceof Refused && error.status === 401)) return;
      }
      if (over || document.hidden) continue;
      onLine(false);
      await new Promise((resolve) => { wake = resolve; setTimeout(resolve, RETRY_MS); });
    }
  };
  const seen = () => { if (document.hidden) attempt.abort(); else wake(); };
  const left = () => attempt.abort();
  document.addEventListener("visibilitychange", seen);
  addEventListener("pagehide", left);
  run();
  return () => {
    over = true;
    document.removeEventListener("visibilitychange", seen);
    removeEventListener("pagehide", left);
    attempt.abort();
    wake();
  };
}

async function read(attempt, onEvent) {
  let alarm = setTimeout(() => attempt.abort(), SILENCE_MS);
  try {
    const response = await stream("events", attempt.signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      clearTimeout(alarm);
      alarm = setTimeout(() => attempt.abort(), SILENCE_MS);
      const pieces = (rest + value).split("\n\n");
      rest = pieces.pop();
      for (const piece of pieces) handle(piece, onEvent);
    }
  } finally {
    clearTimeout(alarm);
  }
}

function handle(piece, onEvent) {
  let name = "message";
  const data = [];
  for (const line of piece.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  if (data.length) onEvent(name, JSON.parse(data.join("\n")));
}
