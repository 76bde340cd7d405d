// Line charts of the last minutes as SVG. Every chart can be shown as a table of the same values.

import { fill, h, redraw, svg } from "./dom.js";
import { icon } from "./icons.js";
import * as format from "./format.js";
import { press } from "./parts.js";
import { table } from "./table.js";

const SPAN_MS = 5 * 60_000;
const HEIGHT = 190;
const PAD = { top: 10, right: 8, bottom: 22, left: 64 };
const ROWS = 30;

/** series: [{name, value(sample)}] or a function of the history; show(value) formats a value; `twin` returns whether the table is shown. */
export function chart({ title, note, series, show, base = 1, twin, toggle }) {
  const frame = h("div", { class: "chart-frame" });
  const legend = h("ul", { class: "legend" });
  const body = h("div", { class: "chart-body" });
  const switcher = press("chart-or-table", { class: "button button-small button-quiet", "data-focus": `twin-${title}` });
  switcher.addEventListener("click", () => toggle(!twin()));
  const node = h("section", { class: "card chart", "aria-label": title }, h("div", { class: "card-head" }, h("div", {}, h("h2", {}, title), note && h("p", { class: "muted small" }, note)), switcher), body);
  const state = { history: [], width: 0, hover: null, lines: [] };
  const picture = svg("svg", { class: "chart-picture", role: "img" });
  frame.append(picture);
  frame.addEventListener("pointermove", (event) => hover(event.clientX - picture.getBoundingClientRect().left));
  frame.addEventListener("pointerleave", () => hover(null));
  new ResizeObserver(([entry]) => {
    state.width = entry.contentRect.width;
    draw();
  }).observe(frame);
  let shown = null;

  function update(history) {
    state.history = history;
    state.lines = typeof series === "function" ? series(history) : series;
    const asTable = twin();
    fill(switcher, icon(asTable ? "chart" : "tables"), asTable ? "Chart" : "Table");
    if (asTable) {
      const rows = history.slice(-ROWS).reverse();
      if (shown !== "table") fill(body);
      shown = "table";
      redraw(body, twinTable(title, state.lines, rows, show));
    } else {
      if (shown !== "chart") fill(body, frame, legend);
      shown = "chart";
      draw();
    }
  }

  function hover(x) {
    state.hover = x;
    draw();
  }

  function draw() {
    if (shown !== "chart" || !state.width) return;
    const { history, lines, width } = state;
    const now = history.at(-1)?.heardMs ?? Date.now();
    const at = state.hover === null ? history.at(-1) : nearest(history, now, width, state.hover);
    const peak = Math.max(0, ...lines.flatMap((line) => history.map((sample) => line.value(sample) ?? 0)));
    const { top, ticks } = scale(peak, base);
    const x = (ms) => PAD.left + (1 - (now - ms) / SPAN_MS) * (width - PAD.left - PAD.right);
    const y = (value) => PAD.top + (1 - value / top) * (HEIGHT - PAD.top - PAD.bottom);
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    picture.setAttribute("aria-label", `${title}: ${lines.map((line) => `${line.name} ${show(at ? line.value(at) : null)}`).join(", ")}`);
    fill(picture, grid(ticks, y, width, show), hours(width), lines.map((line, index) => trace(line, index, history, x, y)), state.hover !== null && at && cross(at, lines, x, y));
    fill(legend, lines.map((line, index) => h("li", { class: `series-${index}` }, svg("svg", { class: "swatch", viewBox: "0 0 18 4", "aria-hidden": "true" }, svg("path", { d: "M0 2H18" })), h("span", {}, line.name), h("span", { class: "number" }, show(at ? line.value(at) : null)))), state.hover !== null && at && h("li", { class: "muted" }, format.time(at.heardMs)));
    if (!lines.length) fill(legend, h("li", { class: "muted" }, "No data yet."));
  }

  return { node, update };
}

/** Places ticks at round numbers, in the displayed unit for bytes. */
function scale(peak, base) {
  const unit = base > 1 && peak >= base ? base ** Math.floor(Math.log(peak) / Math.log(base)) : 1;
  const { top, ticks } = rounded(peak / unit);
  return { top: top * unit, ticks: ticks.map((each) => each * unit) };
}

function rounded(peak) {
  const rough = (peak || 1) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((each) => each * power >= rough);
  const top = Math.max(step, Math.ceil((peak * 1.04) / step) * step);
  const ticks = [];
  for (let value = 0; value <= top + step / 2; value += step) ticks.push(value);
  return { top, ticks };
}

function grid(ticks, y, width, show) {
  return ticks.map((value) => [
    svg("path", { class: "grid", d: `M${PAD.left} ${y(value)}H${width - PAD.right}` }),
    svg("text", { class: "tick", x: PAD.left - 8, y: y(value) + 4, "text-anchor": "end" }, tickText(show(value))),
  ]);
}

const tickText = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

function hours(width) {
  const inner = width - PAD.left - PAD.right;
  return (width < 480 ? [4, 2, 0] : [5, 4, 3, 2, 1, 0]).map((minutes) =>
    svg("text", { class: "tick", x: PAD.left + inner * (1 - minutes / 5), y: HEIGHT - 4, "text-anchor": minutes === 0 ? "end" : minutes === 5 ? "start" : "middle" }, minutes ? `−${minutes} min` : "now"),
  );
}

function trace(line, index, history, x, y) {
  const points = history.map((sample) => [x(sample.heardMs), line.value(sample)]);
  let path = "";
  let pen = false;
  for (const [left, value] of points) {
    if (value === null || value === undefined || left < PAD.left) pen = false;
    else {
      path += `${pen ? "L" : "M"}${left.toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
    }
  }
  const drawn = points.filter(([left, value]) => value !== null && value !== undefined && left >= PAD.left);
  const area = index === 0 && drawn.length > 1 ? `M${drawn[0][0].toFixed(1)} ${y(0)}${drawn.map(([left, value]) => `L${left.toFixed(1)} ${y(value).toFixed(1)}`).join("")}V${y(0)}Z` : null;
  const last = drawn.at(-1);
  return svg("g", { class: `series-${index}` }, area && svg("path", { class: "area", d: area }), svg("path", { class: "line", d: path || "M0 0" }), last && svg("circle", { class: "dot", cx: last[0], cy: y(last[1]), r: 2.5 }));
}

function cross(sample, lines, x, y) {
  const left = x(sample.heardMs);
  return svg("g", {}, svg("path", { class: "cross", d: `M${left} ${PAD.top}V${HEIGHT - PAD.bottom}` }), lines.map((line, index) => {
    const value = line.value(sample);
    return value === null || value === undefined ? null : svg("circle", { class: `dot series-${index}`, cx: left, cy: y(value), r: 3.5 });
  }));
}

function nearest(history, now, width, pixel) {
  const ms = now - (1 - (pixel - PAD.left) / (width - PAD.left - PAD.right)) * SPAN_MS;
  return history.reduce((best, sample) => (!best || Math.abs(sample.heardMs - ms) < Math.abs(best.heardMs - ms) ? sample : best), null);
}

function twinTable(title, lines, rows, show) {
  const columns = [{ label: "Time", cell: (row) => format.time(row.heardMs) }, ...lines.map((line) => ({ label: line.name, align: "end", cell: (row) => show(line.value(row)) }))];
  const twin = table(`${title}: last ${rows.length} samples`, columns, rows, { key: (row) => row.heardMs }).node;
  twin.classList.add("twin");
  return twin;
}
