import {html, useState} from "../core/dom.js";
import {logIn} from "../core/api.js";
import {plain} from "../core/format.js";

export function Login({entered}) {
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const {name, password} = event.currentTarget.elements;
    setBusy(true);
    setFault("");
    try {
      await logIn(name.value, password.value);
      entered();
    } catch (error) {
      setFault(error.status === 401 ? "The node does not know this name with this password." : error.message);
      setBusy(false);
    }
  };
  return html`
    <main class="login">
      <form onSubmit=${submit} class="login-box">
        <p class="brand"><img src="console/mark.svg" alt="" width="34" height="34" /> Understudy</p>
        <h1>Log in to this node</h1>
        <div class="field"><label for="name">User</label>
          <input id="name" name="name" autocomplete="username" autocapitalize="none" spellcheck=${false} autofocus required /></div>
        <div class="field"><label for="password">Password</label>
          <input id="password" name="password" type="password" autocomplete="current-password" /></div>
        ${fault && html`<p class="trouble" role="alert">${plain(fault)}</p>`}
        <button type="submit" class="button primary" disabled=${busy}>${busy ? "Asking" : "Log in"}</button>
        <p class="hint">A user of the broker with the tag <code>management</code> or a wider one. This tab forgets the
          login when it closes.</p>
      </form>
    </main>`;
}
