// The console: logs in, listens to the node's events, and shows the page of the address.
import {html, render, useEffect, useMemo, useState} from "./core/dom.js";
import {get, isLoggedIn, whenLoggedOut} from "./core/api.js";
import {listen} from "./core/events.js";
import {Live} from "./core/live.js";
import {useRoute} from "./core/route.js";
import {Dialogs, useDialogHost} from "./parts/dialogs.js";
import {Frame} from "./parts/frame.js";
import {Login} from "./pages/login.js";
import {pageOf} from "./pages/all.js";

const SAMPLES = 720; // an hour, at one in 5 s

function App() {
  const [isIn, setIn] = useState(isLoggedIn());
  useEffect(() => whenLoggedOut(() => setIn(false)), []);
  return isIn ? html`<${Console} />` : html`<${Login} entered=${() => setIn(true)} />`;
}

function Console() {
  const live = useEvents();
  const [dialogs, host] = useDialogHost();
  const {parts} = useRoute();
  const {name, title, view} = pageOf(parts);
  useEffect(() => { document.title = `${title} · ${live.status?.name ?? "Understudy"}`; }, [title, live.status?.name]);
  return html`
    <${Live.Provider} value=${live}>
      <${Dialogs.Provider} value=${dialogs}>
        <${Frame} page=${name}>${view}</${Frame}>
        ${host}
      </${Dialogs.Provider}>
    </${Live.Provider}>`;
}

function useEvents() {
  const [status, setStatus] = useState(null);
  const [overview, setOverview] = useState(null);
  const [rates, setRates] = useState([]);
  const [line, setLine] = useState({isUp: true, lostAt: null});
  const [who, setWho] = useState(null);

  useEffect(() => {
    get("whoami").then(setWho, () => {});
    get("status").then(setStatus, () => {});
    const heard = (name, data) => {
      if (name === "status") setStatus(data);
      if (name === "overview") {
        setOverview(data);
        setRates((old) => [...old, data].slice(-SAMPLES));
      }
    };
    const changed = (isUp) => setLine((old) => {
      if (old.isUp === isUp) return old;
      return {isUp, lostAt: isUp ? null : Date.now()};
    });
    return listen(heard, changed);
  }, []);

  return useMemo(() => ({status, overview, rates, who, ...line}), [status, overview, rates, who, line]);
}

render(html`<${App} />`, document.getElementById("app"));
