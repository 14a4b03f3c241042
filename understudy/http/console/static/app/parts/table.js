// One table for all lists: filter, sort and pages, by the node where it can (`isPaged`), else here. What the reader has
// chosen is in the address.
import {html, useEffect, useState} from "../core/dom.js";
import {count} from "../core/format.js";
import {setQuery, useRoute} from "../core/route.js";
import {usePolled} from "../core/live.js";
import {Empty, Loading, Trouble} from "./basics.js";

const SIZES = [25, 50, 100, 500];
const TYPING_MS = 250;

/** `columns`: {key, label, render(row), sort (a path in the row, or a function of it), isNumber}. `extra`: more of the
 * query. `pick(row)` leaves rows out, of lists that the node does not page. */
export function Listing({where, columns, noun, isPaged = false, extra = "", pick, empty, rowKey, seconds = 5, hint}) {
  const {query} = useRoute();
  const chosen = {
    page: Math.max(1, Number(query.get("page")) || 1),
    size: SIZES.includes(Number(query.get("size"))) ? Number(query.get("size")) : SIZES[1],
    name: query.get("name") ?? "",
    isPattern: query.get("regex") === "true",
    sort: query.get("sort") ?? "",
    isReversed: query.get("reverse") === "true",
  };
  const {data, error, refresh} = usePolled(isPaged ? pagedPath(where, chosen, extra) : where + (extra && `?${extra}`), seconds);
  const found = data === null ? null : pageOf(data, chosen, columns, pick);

  return html`
    <div class="listing">
      <${Tools} chosen=${chosen} noun=${noun} total=${found?.filtered} all=${found?.all} hint=${hint} />
      <${Trouble} error=${error} />
      ${found === null && !error && html`<${Loading} />`}
      ${found !== null && found.rows.length === 0 && html`<${Empty}>${chosen.name ? `No ${noun} match.` : empty ?? `No ${noun}.`}</${Empty}>`}
      ${found !== null && found.rows.length > 0 && html`
        <${Table} rows=${found.rows} columns=${columns} rowKey=${rowKey} refresh=${refresh} label=${noun}
          sort=${chosen} onSort=${(key) => sortBy(key, chosen)} />`}
      ${found !== null && found.pages > 1 && html`<${Pages} page=${found.page} pages=${found.pages} />`}
    </div>`;
}

function pagedPath(where, chosen, extra) {
  const query = new URLSearchParams({page: chosen.page, page_size: chosen.size, pagination: "true"});
  if (chosen.name) {
    query.set("name", chosen.name);
    query.set("use_regex", String(chosen.isPattern));
  }
  if (chosen.sort) {
    query.set("sort", chosen.sort);
    query.set("sort_reverse", String(chosen.isReversed));
  }
  return `${where}?${query}${extra && `&${extra}`}`;
}

/** The rows to show, and how many there are: from an answer in pages, or from a whole list. */
function pageOf(data, chosen, columns, pick) {
  if (!Array.isArray(data)) {
    return {
      rows: data.items ?? [], page: data.page ?? 1, pages: data.page_count ?? 1,
      filtered: data.filtered_count ?? data.items?.length, all: data.total_count,
    };
  }
  const all = pick ? data.filter(pick) : data;
  let rows = chosen.name ? all.filter(matcher(chosen)) : all;
  const column = columns.find((each) => [each.key, each.sort].includes(chosen.sort));
  if (column) rows = sorted(rows, column, chosen.isReversed);
  const pages = Math.max(1, Math.ceil(rows.length / chosen.size));
  const page = Math.min(chosen.page, pages);
  const begin = (page - 1) * chosen.size;
  return {rows: rows.slice(begin, begin + chosen.size), page, pages, filtered: rows.length, all: all.length};
}

function matcher({name, isPattern}) {
  const texts = (row) => Object.values(row).filter((it) => typeof it === "string");
  if (isPattern) {
    let pattern;
    try {
      pattern = new RegExp(name, "iu");
    } catch {
      return () => false;
    }
    return (row) => texts(row).some((it) => pattern.test(it));
  }
  const wanted = name.toLowerCase();
  return (row) => texts(row).some((it) => it.toLowerCase().includes(wanted));
}

const reach = (row, path) => path.split(".").reduce((it, key) => it?.[key], row);

function sorted(rows, column, isReversed) {
  const by = typeof column.sort === "function" ? column.sort : (row) => reach(row, column.sort ?? column.key);
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? "")));
  const found = [...rows].sort((a, b) => order(by(a), by(b)));
  return isReversed ? found.reverse() : found;
}

function sortBy(key, {sort, isReversed}) {
  if (sort !== key) setQuery({sort: key, reverse: "", page: ""});
  else setQuery({sort: key, reverse: isReversed ? "" : "true", page: ""});
}

function Tools({chosen, noun, total, all, hint}) {
  const [text, setText] = useState(chosen.name);
  useEffect(() => {
    if (text === chosen.name) return undefined;
    const timer = setTimeout(() => setQuery({name: text, page: ""}), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const counted = total === undefined ? "" : total === all || all === undefined ? count(total) : `${count(total)} of ${count(all)}`;
  return html`
    <div class="tools" role="search">
      <label class="tool grow"><span class="unseen">Filter ${noun}</span>
        <input type="search" placeholder="Filter ${noun}" value=${text} onInput=${(event) => setText(event.target.value)} />
      </label>
      <label class="tool check"><input type="checkbox" checked=${chosen.isPattern}
        onChange=${(event) => setQuery({regex: event.target.checked ? "true" : "", page: ""})} /> Pattern</label>
      <label class="tool"><span class="unseen">Rows on a page</span>
        <select value=${chosen.size} onChange=${(event) => setQuery({size: event.target.value, page: ""})}>
          ${SIZES.map((it) => html`<option value=${it} selected=${it === chosen.size}>${it} rows</option>`)}
        </select></label>
      <span class="counted" aria-live="polite">${counted}</span>
      ${hint && html`<span class="faint">${hint}</span>`}
    </div>`;
}

/** `isWide`: on a phone it needs the whole line. */
const kindOf = (column) => (column.isNumber ? (column.isWide ? "num wide" : "num") : column.label ? "" : "act");

/** A plain table. Without `onSort` its heads are text. On a phone each row is a card. */
export function Table({rows, columns, rowKey, refresh, label, sort, onSort}) {
  const head = (column) => {
    const key = typeof column.sort === "string" ? column.sort : column.key;
    if (!column.label) return html`<td class="act"></td>`;
    if (!onSort || column.sort === false) return html`<th scope="col" class=${kindOf(column)}>${column.label}</th>`;
    const isOn = sort.sort === column.key || sort.sort === key;
    const state = isOn ? (sort.isReversed ? "descending" : "ascending") : "none";
    return html`<th scope="col" class=${kindOf(column)} aria-sort=${state}>
      <button type="button" class="sorter" onClick=${() => onSort(isOn ? sort.sort : key)}>${column.label}</button></th>`;
  };
  return html`
    <div class="table-box" role="region" aria-label=${label} tabindex="0">
      <table>
        <thead><tr>${columns.map(head)}</tr></thead>
        <tbody>${rows.map((row, at) => html`
          <tr key=${rowKey ? rowKey(row) : at}>${columns.map((column, place) => {
            const inside = column.render ? column.render(row, refresh) : reach(row, column.key);
            const kind = kindOf(column);
            return place === 0
              ? html`<th scope="row" class=${kind} data-label=${column.label}>${inside}</th>`
              : html`<td class=${kind} data-label=${column.label}><div>${inside}</div></td>`;
          })}</tr>`)}</tbody>
      </table>
    </div>`;
}

function Pages({page, pages}) {
  const to = (number) => () => setQuery({page: number === 1 ? "" : String(number)});
  return html`
    <nav class="pages" aria-label="Pages">
      <button type="button" class="button" disabled=${page <= 1} onClick=${to(1)} aria-label="First page">«</button>
      <button type="button" class="button" disabled=${page <= 1} onClick=${to(page - 1)}>Previous</button>
      <span>Page ${count(page)} of ${count(pages)}</span>
      <button type="button" class="button" disabled=${page >= pages} onClick=${to(page + 1)}>Next</button>
      <button type="button" class="button" disabled=${page >= pages} onClick=${to(pages)} aria-label="Last page">»</button>
    </nav>`;
}
