// A line chart over time (uPlot), with its newest figures as text below: for readers who see no colours, or no chart.
import {html, useEffect, useRef} from "../core/dom.js";
import uPlot from "../../vendor/uplot.js";

const HEIGHT = 170;
const LINES = 6;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** `times`: seconds since 1970. `lines`: {label, values, shown}: `shown` is the newest value as text. */
export function Chart({label, times, lines, unit = (it) => String(it), height = HEIGHT}) {
  const box = useRef(null);
  const plot = useRef(null);
  const names = lines.map((line) => line.label).join("|");

  useEffect(() => {
    const draw = () => {
      if (!box.current) return;
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(lines, unit, box.current.clientWidth, height), dataOf(times, lines), box.current);
    };
    draw();
    const resized = new ResizeObserver(() => {
      const width = box.current?.clientWidth;
      if (width && plot.current && width !== plot.current.width) plot.current.setSize({width, height});
    });
    resized.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    addEventListener("themechange", draw);
    return () => {
      resized.disconnect();
      scheme.removeEventListener("change", draw);
      removeEventListener("themechange", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, height]);

  useEffect(() => { plot.current?.setData(dataOf(times, lines)); });

  return html`
    <figure class="chart">
      <figcaption class="chart-label">${label}</figcaption>
      <div class="chart-box" ref=${box} aria-hidden="true"></div>
      <ul class="legend">${lines.map((line, at) => html`
        <li><span class="swatch line-${at % LINES}"></span>${line.label} <b>${line.shown}</b></li>`)}</ul>
    </figure>`;
}

/** A moment on the axis; seconds only where ticks are closer than a minute. */
function clock(seconds, step) {
  const parts = {hour: "2-digit", minute: "2-digit", ...(step < 60 ? {second: "2-digit"} : {})};
  return new Date(seconds * 1000).toLocaleTimeString("en-GB", parts);
}

const dataOf = (times, lines) => [times, ...lines.map((line) => line.values)];

function optionsOf(lines, unit, width, height) {
  const faint = colour("--faint");
  const grid = {stroke: colour("--hairline"), width: 1};
  const axis = {stroke: faint, grid, ticks: {show: false}, font: "11px system-ui, sans-serif"};
  return {
    width: Math.max(width, 200), height,
    cursor: {y: false, drag: {x: false, y: false}, points: {size: 6}},
    legend: {show: false},
    padding: [8, 28, 0, 0],
    scales: {x: {time: true}, y: {range: (_plot, _low, high) => [0, Math.max(1, (high ?? 1) * 1.1)]}},
    axes: [{...axis, space: 80, size: 26, values: (_plot, ticks, _axis, _space, step) => ticks.map((it) => clock(it, step))}, {...axis, size: 58, values: (_plot, ticks) => ticks.map((it) => unit(it))}],
    series: [
      {},
      ...lines.map((line, at) => ({
        label: line.label, stroke: colour(`--line-${at % LINES}`), width: 1.75, points: {show: false}, spanGaps: false,
        dash: at >= 3 ? [6, 3] : undefined,
      })),
    ],
  };
}
