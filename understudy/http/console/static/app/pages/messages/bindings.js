import {html} from "../../core/dom.js";
import {useLive} from "../../core/live.js";
import {serves} from "../../core/pair.js";
import {plain} from "../../core/format.js";
import {Title} from "../../parts/basics.js";
import {BINDING_COLUMNS, keyOf, unbinding} from "../../parts/bindings.js";
import {useDialogs} from "../../parts/dialogs.js";
import {Listing} from "../../parts/table.js";

const VHOST = {key: "vhost", label: "Virtual host", render: (row) => plain(row.vhost)};

export function Bindings() {
  const {status} = useLive();
  const {confirm} = useDialogs();
  const columns = [...BINDING_COLUMNS, VHOST];
  if (serves(status)) columns.push(unbinding(confirm));
  return html`
    <${Title} sub="To bind, open the queue or the exchange.">Bindings</${Title}>
    <${Listing} where="bindings" noun="bindings" columns=${columns} rowKey=${keyOf} seconds=${10} pick=${(row) => row.source !== ""} />`;
}
