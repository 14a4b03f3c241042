// Dialogs and notices. `useDialogs()` gives `confirm`, `form` and `notify`; one host at the root shows them.
import {createContext, html, useContext, useEffect, useRef, useState} from "../core/dom.js";
import {plain} from "../core/format.js";
import {Fields, valuesOf} from "./fields.js";

export const Dialogs = createContext(null);
export const useDialogs = () => useContext(Dialogs);

const NOTICE_MS = 6000;

export function useDialogHost() {
  const [open, setOpen] = useState(null);
  const [notices, setNotices] = useState([]);
  const number = useRef(0);

  const notify = (text, tone = "ok") => {
    const id = (number.current += 1);
    setNotices((old) => [...old.slice(-3), {id, text, tone}]);
    setTimeout(() => setNotices((old) => old.filter((each) => each.id !== id)), NOTICE_MS);
  };
  /** `act(values)` is awaited; its error stays in the dialog. `said(answer)`: the notice. */
  const form = (options) => setOpen({...options, fields: options.fields ?? []});
  const confirm = (options) => form(options);
  const close = () => setOpen(null);
  const host = html`
    ${open && html`<${Dialog} key=${open.title} ...${open} close=${close} notify=${notify} />`}
    <div class="notices" role="status" aria-live="polite">
      ${notices.map((each) => html`<p key=${each.id} class="notice ${each.tone}">${plain(each.text)}</p>`)}
    </div>`;
  return [{confirm, form, notify}, host];
}

function Dialog({title, text, fields, verb, danger = false, act, said, close, notify, wide = false}) {
  const box = useRef(null);
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);

  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    setFault("");
    let values;
    try {
      values = valuesOf(event.currentTarget, fields);
    } catch (error) {
      setFault(error.message);
      return;
    }
    setBusy(true);
    try {
      const answer = await act(values);
      const notice = typeof said === "function" ? said(answer, values) : said;
      if (notice) notify(notice);
      close();
    } catch (error) {
      setFault(error.message);
      setBusy(false);
    }
  };
  const shut = (event) => { event.preventDefault(); if (!busy) close(); };

  return html`
    <dialog ref=${box} class="dialog ${wide ? "wide" : ""}" aria-labelledby="dialog-title" onCancel=${shut}>
      <form onSubmit=${submit} novalidate>
        <h2 id="dialog-title">${title}</h2>
        ${text && html`<div class="dialog-text">${text}</div>`}
        ${fields.length > 0 && html`<${Fields} fields=${fields} />`}
        ${fault && html`<p class="trouble" role="alert">${plain(fault)}</p>`}
        <div class="dialog-buttons">
          <button type="button" class="button" onClick=${shut}>Cancel</button>
          <button type="submit" class="button ${danger ? "danger" : "primary"}" disabled=${busy}>
            ${busy ? "Working" : verb}
          </button>
        </div>
      </form>
    </dialog>`;
}
