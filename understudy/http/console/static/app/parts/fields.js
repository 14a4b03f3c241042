// Fields of forms, as data: {name, label, kind, value, options, hint, required}. `kind`: text (the default), password,
// number, choice, flag, lines, json, pairs. A value is a default: the form renders again with each event of the node, and
// keeps what somebody has typed.
import {html} from "../core/dom.js";

export const Fields = ({fields}) => html`<div class="fields">${fields.map((each) => html`<${Field} ...${each} />`)}</div>`;

export function Field({name, label, kind = "text", value = "", options = [], hint, required = false, suggest}) {
  const id = `field-${name}`;
  const shared = {id, name, "aria-describedby": hint ? `${id}-hint` : undefined, required};
  if (kind === "flag") {
    return html`<div class="field flag"><input type="checkbox" ...${shared} defaultChecked=${Boolean(value)} />
      <label for=${id}>${label}</label>${hint && html`<p id="${id}-hint" class="hint">${hint}</p>`}</div>`;
  }
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${control(kind, shared, value, options, suggest)}
    ${suggest && html`<datalist id="${id}-list">${suggest.map((it) => html`<option value=${it} />`)}</datalist>`}
    ${hint && html`<p id="${id}-hint" class="hint">${hint}</p>`}
  </div>`;
}

function control(kind, shared, value, options, suggest) {
  switch (kind) {
    case "choice":
      return html`<select ...${shared}>
        ${options.map((each) => {
          const [key, text] = Array.isArray(each) ? each : [each, each];
          return html`<option value=${key} defaultSelected=${key === value}>${text}</option>`;
        })}</select>`;
    case "lines":
    case "json":
    case "pairs":
      return html`<textarea ...${shared} rows=${kind === "lines" ? 5 : 3} spellcheck=${false}
        class=${kind === "lines" ? "" : "code"} defaultValue=${value} />`;
    case "number":
      return html`<input ...${shared} type="text" inputmode="numeric" defaultValue=${value} autocomplete="off" />`;
    default:
      return html`<input ...${shared} type=${kind} defaultValue=${value} spellcheck=${false}
        list=${suggest ? `${shared.id}-list` : undefined}
        autocomplete=${kind === "password" ? "new-password" : "off"} />`;
  }
}

/** The values of a form's fields. Throws an Error with one sentence. */
export function valuesOf(form, fields) {
  const found = {};
  for (const {name, label, kind, required} of fields) {
    const element = form.elements[name];
    const text = element.value;
    if (required && !text) {
      element.focus();
      throw new Error(`${label} is missing.`);
    }
    found[name] = read(kind, label, text, element);
  }
  return found;
}

function read(kind, label, text, element) {
  switch (kind) {
    case "flag": return element.checked;
    case "number": return numberOf(label, text);
    case "json": return objectOf(label, text);
    case "pairs": return pairsOf(label, text);
    default: return text;
  }
}

function numberOf(label, text) {
  if (text.trim() === "") return null;
  const found = Number(text);
  if (!Number.isSafeInteger(found)) throw new Error(`${label} must be a whole number.`);
  return found;
}

function objectOf(label, text) {
  if (text.trim() === "") return {};
  let found;
  try {
    found = JSON.parse(text);
  } catch (error) {
    throw new Error(`${label} must be JSON: ${error.message}`);
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) {
    throw new Error(`${label} must be a JSON object.`);
  }
  return found;
}

/** Lines of `key = value`. A value that is JSON is taken so, any other one as text. */
function pairsOf(label, text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`${label}: each line must be "name = value".`);
    const given = line.slice(at + 1).trim();
    try {
      found[line.slice(0, at).trim()] = JSON.parse(given);
    } catch {
      found[line.slice(0, at).trim()] = given;
    }
  }
  return found;
}
