// A line chart of values at equal time steps, as SVG. It can be shown as a table of the same values.
// Pointer: hover to read values, drag to zoom. Keyboard: arrow keys, Home and End read values, + and − zoom.

import { fill, h, redraw, svg } from "./dom.js";
import { icon } from "./icons.js";
import * as format from "./format.js";
import { press } from "./parts.js";
import { table } from "./table.js";

const HEIGHT = 190;
const PAD = { top: 10, right: 8, bottom: 22, left: 64 };
const ROWS_MAX = 60;
const DRAG_PX = 8;
const TICKS_S = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200];
const KEYS = "Arrow keys read values, plus and minus zoom.";

const known = (value) => value !== null && value !== undefined;

/**
 * `show(value)` formats a value, `twin()` returns whether the table is shown, `zoom(fromMs, toMs)` shows another time range.
 * `update({ startMs, stepMs, points, lines: [{ name, values }], message, missing })` draws the chart; `message` is shown if there are
 * no lines, and `missing` below the lines.
 */
export function chart({ title, note, show, base = 1, twin, toggle, zoom }) {
  const picture = svg("svg", { class: "chart-picture", role: "img", "aria-label": title });
  const said = h("span", { class: "visually-hidden", role: "status" });
  const frame = h(
    "div",
    { class: "chart-frame", tabindex: "0", role: "group", "aria-label": `${title}. ${KEYS}`, "data-focus": `chart-${title}` },
    picture,
    said,
  );
  const legend = h("ul", { class: "legend" });
  const body = h("div", { class: "chart-body" }, h("p", { class: "chart-message muted" }, "Loading…"));
  const switcher = press("chart-or-table", { class: "button button-small button-quiet", "data-focus": `twin-${title}` });
  switcher.addEventListener("click", () => toggle(!twin()));
  fill(switcher, icon("tables"), "Table");
  const node = h(
    "section",
    { class: "card chart", "aria-label": title },
    h("div", { class: "card-head" }, h("div", {}, h("h2", {}, title), note && h("p", { class: "muted small" }, note)), switcher),
    body,
  );
  const state = { data: null, width: 0, at: null, dragFrom: null, dragTo: null };
  let shown = null;
  frame.addEventListener("pointermove", (event) => point(event));
  frame.addEventListener("pointerleave", () => state.dragFrom === null && look(null));
  frame.addEventListener(
    "pointerdown",
    (event) => event.button === 0 && ((state.dragFrom = state.dragTo = left(event)), event.pointerType === "mouse" && frame.setPointerCapture(event.pointerId)),
  );
  frame.addEventListener("pointerup", () => drop());
  frame.addEventListener("pointercancel", () => ((state.dragFrom = null), draw()));
  frame.addEventListener("keydown", (event) => pressKey(event));
  frame.addEventListener("blur", () => look(null));
  new ResizeObserver(([entry]) => {
    state.width = entry.contentRect.width;
    draw();
  }).observe(frame);

  const left = (event) => event.clientX - picture.getBoundingClientRect().left;
  const inner = () => state.width - PAD.left - PAD.right;
  const timeOf = (x) => state.data.startMs + (Math.min(Math.max(x - PAD.left, 0), inner()) / inner()) * state.data.points * state.data.stepMs;
  const indexOf = (x) => Math.min(state.data.points - 1, Math.max(0, Math.round((timeOf(x) - state.data.startMs) / state.data.stepMs) - 1));
  const endOf = (index) => state.data.startMs + (index + 1) * state.data.stepMs;

  function look(at) {
    state.at = at;
    draw();
  }

  function point(event) {
    if (!state.data || !state.width) return;
    if (state.dragFrom !== null) state.dragTo = left(event);
    look(indexOf(left(event)));
  }

  function drop() {
    const { dragFrom, dragTo } = state;
    state.dragFrom = null;
    if (dragFrom !== null && state.data && Math.abs(dragTo - dragFrom) > DRAG_PX) zoom(timeOf(Math.min(dragFrom, dragTo)), timeOf(Math.max(dragFrom, dragTo)));
    else draw();
  }

  function pressKey(event) {
    if (!state.data || event.altKey || event.ctrlKey || event.metaKey) return;
    const { points, startMs, stepMs } = state.data;
    const at = state.at ?? points - 1;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: points - 1 };
    if (event.key in moves) {
      look(Math.min(points - 1, Math.max(0, moves[event.key])));
      said.textContent = spoken(state.at);
    } else if (event.key === "+" || event.key === "-") {
      const range = points * stepMs * (event.key === "+" ? 0.5 : 2);
      const end = Math.min(endOf(at) + range / 2, Math.max(startMs + points * stepMs, Date.now()));
      zoom(end - range, end);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  const spoken = (at) => `${format.time(endOf(at))}: ${state.data.lines.map((line) => `${line.name} ${show(line.values[at])}`).join(", ")}`;

  function update(data) {
    state.data = data;
    if (state.at !== null) state.at = Math.min(state.at, data.points - 1);
    const asTable = twin();
    fill(switcher, icon(asTable ? "chart" : "tables"), asTable ? "Chart" : "Table");
    if (!data.lines.length) {
      shown = "message";
      fill(body, h("p", { class: "chart-message muted" }, data.message ?? "No data yet."));
    } else if (asTable) {
      if (shown !== "table") fill(body);
      shown = "table";
      redraw(body, twinTable(title, data, show));
    } else {
      if (shown !== "chart") fill(body, frame, legend);
      shown = "chart";
      draw();
    }
  }

  function draw() {
    const { data, width } = state;
    if (shown !== "chart" || !width) return;
    const { lines, startMs, stepMs, points } = data;
    const peak = Math.max(0, ...lines.flatMap((line) => line.values.filter(known)));
    const { top, ticks } = scale(peak, base);
    const x = (index) => PAD.left + ((index + 1) / points) * inner();
    const y = (value) => PAD.top + (1 - value / top) * (HEIGHT - PAD.top - PAD.bottom);
    const valueAt = (line) => (state.at === null ? line.values.findLast(known) : line.values[state.at]);
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    picture.setAttribute("aria-label", `${title}: ${lines.map((line) => `${line.name} ${show(valueAt(line))}`).join(", ")}`);
    const selection =
      state.dragFrom === null
        ? null
        : svg("rect", {
            class: "selection",
            x: Math.min(state.dragFrom, state.dragTo),
            y: PAD.top,
            width: Math.abs(state.dragTo - state.dragFrom),
            height: HEIGHT - PAD.top - PAD.bottom,
          });
    fill(
      picture,
      grid(ticks, y, width, show),
      times(startMs, startMs + points * stepMs, width),
      lines.map((line, index) => trace(line, index, x, y)),
      selection,
      state.at !== null && cross(lines, state.at, x, y),
    );
    fill(
      legend,
      lines.map((line, index) =>
        h(
          "li",
          { class: `series-${index}` },
          svg("svg", { class: "swatch", viewBox: "0 0 18 4", "aria-hidden": "true" }, svg("path", { d: "M0 2H18" })),
          h("span", { class: "wrap" }, line.name),
          h("span", { class: "number" }, show(valueAt(line))),
        ),
      ),
      state.at !== null && h("li", { class: "muted" }, format.moment(endOf(state.at)).slice(0, 19)),
      data.missing && h("li", { class: "muted" }, data.missing),
    );
  }

  return { node, update };
}

/** Places ticks at round numbers, in the displayed unit for bytes. */
export function scale(peak, base) {
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

/** Labels the time axis at round times in the chosen time zone. */
function times(startMs, endMs, width) {
  const inner = width - PAD.left - PAD.right;
  const wanted = (endMs - startMs) / 1000 / Math.max(1, inner / 80);
  const step = (TICKS_S.find((each) => each >= wanted) ?? TICKS_S.at(-1)) * 1000;
  const zone = format.zone.offset(startMs) * 60_000;
  const labels = [];
  for (let at = Math.ceil((startMs - zone) / step) * step + zone; at <= endMs; at += step) {
    const x = PAD.left + ((at - startMs) / (endMs - startMs)) * inner;
    if (x < PAD.left + 16 || x > width - 20) continue;
    labels.push(
      svg("path", { class: "grid", d: `M${x.toFixed(1)} ${PAD.top}V${HEIGHT - PAD.bottom}` }),
      svg("text", { class: "tick", x, y: HEIGHT - 4, "text-anchor": "middle" }, format.time(at).slice(0, 5)),
    );
  }
  return labels;
}

/** Draws a line with gaps where values are missing, and single values as dots. */
function trace(line, index, x, y) {
  let path = "";
  let area = "";
  let from = null;
  line.values.forEach((value, at) => {
    if (!known(value)) return;
    const here = `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    const starts = !known(line.values[at - 1]);
    const ends = !known(line.values[at + 1]);
    if (starts) from = x(at);
    path += starts ? `M${here}${ends ? "h0.01" : ""}` : `L${here}`;
    area += starts ? `M${from.toFixed(1)} ${y(0)}L${here}` : `L${here}`;
    if (ends) area += `V${y(0)}Z`;
  });
  return svg(
    "g",
    { class: `series-${index}` },
    index === 0 && area && svg("path", { class: "area", d: area }),
    svg("path", { class: "line", d: path || "M0 0" }),
  );
}

function cross(lines, at, x, y) {
  const dots = lines.map((line, index) => known(line.values[at]) && svg("circle", { class: `dot series-${index}`, cx: x(at), cy: y(line.values[at]), r: 3.5 }));
  return [svg("path", { class: "cross", d: `M${x(at)} ${PAD.top}V${HEIGHT - PAD.bottom}` }), ...dots];
}

function twinTable(title, { startMs, stepMs, points, lines }, show) {
  const rows = Array.from({ length: points }, (_, index) => points - 1 - index)
    .filter((at) => lines.some((line) => known(line.values[at])))
    .slice(0, ROWS_MAX);
  const columns = [
    { label: "Time", cell: (at) => format.moment(startMs + (at + 1) * stepMs).slice(0, 19) },
    ...lines.map((line) => ({ label: line.name, align: "end", cell: (at) => show(line.values[at]) })),
  ];
  const twin = table(`${title}: last ${rows.length} values`, columns, rows, { key: (at) => at }).node;
  twin.classList.add("twin");
  return twin;
}
