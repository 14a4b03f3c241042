// The address of a page is behind the #: "#/queues/%2F/orders?page=2". Parts are encoded one by one.
import {useEffect, useState} from "./dom.js";

export function hrefOf(...parts) {
  try {
    return `#/${parts.map(encodeURIComponent).join("/")}`;
  } catch {
    return "#/unknown";
  }
}

function current() {
  const [where, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  let parts = [];
  try {
    parts = where.split("/").map(decodeURIComponent);
  } catch {
    parts = ["unknown"];
  }
  return {parts, query: new URLSearchParams(query)};
}

export function useRoute() {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const changed = () => setRoute(current());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Changes keys of the query in place, without a new entry in the history. "" takes a key away. */
export function setQuery(changes) {
  const {query} = current();
  for (const [key, value] of Object.entries(changes)) {
    if (value === "" || value === null) query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString();
  history.replaceState(null, "", location.hash.split("?")[0] + (text ? `?${text}` : ""));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function go(href) {
  location.hash = href;
}
