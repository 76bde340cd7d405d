// Charts of the history that the nodes keep. All charts of a page share a time range, which is in the URL.

import { get } from "../api.js";
import { live } from "../live.js";
import { parse, setParams } from "../router.js";
import { chart } from "./chart.js";
import { fill, h } from "./dom.js";
import * as format from "./format.js";
import { press } from "./parts.js";

const RANGES = [
  [900, "15 min"],
  [3600, "1 h"],
  [21_600, "6 h"],
  [86_400, "24 h"],
];
const RANGE_S = 3600;
const RANGE_MIN_S = 60;
const RANGE_MAX_S = 86_400;
const EVERY_MS_MIN = 10_000;
const LINES_MAX = 4;

const cores = (value) => (value === null || value === undefined ? "—" : `${value.toFixed(value < 0.1 ? 3 : 2)} cores`);

/** How values of a unit are shown, and the base of its prefixes. */
const UNITS = {
  "bytes/s": [format.rate, 1024],
  "1/s": [format.perSecond, 1],
  ms: [format.milliseconds, 1],
  bytes: [format.bytes, 1024],
  records: [format.short, 1],
  cores: [cores, 1],
  count: [format.short, 1],
};

/** Labels of the metrics. Metrics of topics and groups are labelled with the name of the topic or group. */
const NAMES = {
  in_bytes: "In",
  out_bytes: "Out",
  topic_in_bytes: "In",
  topic_in_records: "In",
  in_records: "Records in",
  requests: "Requests",
  errors: "Errors",
  produce_p99_ms: "Produce p99",
  produce_p50_ms: "Produce p50",
  fetch_p99_ms: "Fetch p99",
  fetch_p50_ms: "Fetch p50",
  cpu: "CPU",
  memory: "Memory",
  loop_delay_p99_ms: "p99",
  disk_used: "Used",
  disk_total: "Total",
  log_bytes: "Replicas",
  topic_bytes: "Replicas",
  connections: "Connections",
  group_lag: "All topics",
};

const timeZone = () => (format.zone.isUtc() ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "the local time zone");
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/**
 * charts: [{ title, note, unit, metrics, query, name(series) }]. Charts with the same query share a request; if it is rejected, they show
 * why. `query` selects a node, a topic or a group; `of` only separates requests.
 *
 * @param {any[]} charts
 * @param {{ heading?: string }} options
 */
export function historyCharts(charts, { heading } = {}) {
  const drawn = charts.map((each) => {
    const [show, base] = UNITS[each.unit];
    return chart({ ...each, show, base, twin: () => twins().includes(each.title), toggle: (on) => flip(each.title, on), zoom });
  });
  const bar = h("div", { class: "history-bar" });
  const node = h(
    "div",
    { class: "history" },
    h("div", { class: "section-head" }, heading && h("h2", { class: "section" }, heading), bar),
    h(
      "div",
      { class: "charts" },
      drawn.map((each) => each.node),
    ),
  );
  const answers = new Map();
  let cancel = null;
  let timer = null;
  let loadedFor = null;
  let closed = false;
  params();

  function time() {
    const { range, end } = parse().params;
    return { range: clamp(Math.round(Number(range)) || RANGE_S, RANGE_MIN_S, RANGE_MAX_S), end: Number(end) || null };
  }

  function zoom(fromMs, toMs) {
    const range = clamp(Math.round((toMs - fromMs) / 1000), RANGE_MIN_S, RANGE_MAX_S);
    const end = Math.round((fromMs + toMs) / 2 + range * 500);
    move(range, end > Date.now() - 15_000 ? null : end);
  }

  function move(range, end) {
    setParams({ range: range === RANGE_S ? "" : range, end: end ?? "" });
    params();
  }

  function flip(title, on) {
    setParams({ table: (on ? [...twins(), title] : twins().filter((each) => each !== title)).join(",") });
    show();
  }

  /** Loads the data again if the time range in the URL has changed. */
  function params() {
    const { range, end } = time();
    drawBar(range, end);
    if (loadedFor === `${range} ${end}`) return show();
    loadedFor = `${range} ${end}`;
    refresh();
  }

  function drawBar(range, end) {
    const step = (factor) => move(range, Math.min((end ?? Date.now()) + factor * range * 1000, Date.now()));
    const focused = bar.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.focus : null;
    fill(
      bar,
      RANGES.map(([seconds, label]) =>
        press(
          "history-range",
          { class: "button button-small", "aria-pressed": String(range === seconds), "data-focus": `range-${seconds}`, onclick: () => move(seconds, end) },
          label,
        ),
      ),
      press("history-earlier", { class: "button button-small button-quiet", "data-focus": "history-earlier", onclick: () => step(-0.5) }, "Earlier"),
      end && press("history-later", { class: "button button-small button-quiet", "data-focus": "history-later", onclick: () => step(0.5) }, "Later"),
      end && press("history-now", { class: "button button-small button-quiet", "data-focus": "history-now", onclick: () => move(range, null) }, "Now"),
      h("span", { class: "muted small" }, `Times in ${timeZone()}`),
    );
    if (focused) (bar.querySelector(`[data-focus="${focused}"]`) ?? bar.querySelector("button")).focus({ preventScroll: true });
  }

  async function refresh() {
    clearTimeout(timer);
    cancel?.abort();
    const mine = (cancel = new AbortController());
    const { range, end } = time();
    const sources = new Map();
    for (const each of charts) {
      const key = JSON.stringify(each.query ?? {});
      sources.set(key, { query: each.query ?? {}, metrics: [...(sources.get(key)?.metrics ?? []), ...each.metrics] });
    }
    await Promise.all(
      [...sources].map(async ([key, { query, metrics }]) => {
        try {
          const { of: _, ...asked } = query;
          answers.set(key, await get("/history", { ...asked, limit: LINES_MAX, metrics: metrics.join(","), range_s: range, end_ms: end }, mine.signal));
        } catch (error) {
          if (!mine.signal.aborted && error.status !== 0)
            answers.set(key, { error: error.status === 403 ? `Hidden: you need the permission ${permission(query)}.` : error.message });
        }
      }),
    );
    if (mine.signal.aborted || closed) return;
    show();
    const stepMs = 1000 * Math.max(0, ...[...answers.values()].map((each) => each.step_s ?? 0));
    if (!end) timer = setTimeout(again, Math.max(EVERY_MS_MIN, stepMs));
  }

  /** Waits with the next request until the page is visible and the node responds. */
  function again() {
    if (document.visibilityState === "visible" && live.state !== "gone") refresh();
    else timer = setTimeout(again, EVERY_MS_MIN);
  }

  function show() {
    charts.forEach((each, index) => {
      const answer = answers.get(JSON.stringify(each.query ?? {}));
      if (answer) drawn[index].update(toChart(each, answer));
    });
  }

  const close = () => {
    closed = true;
    clearTimeout(timer);
    cancel?.abort();
  };
  return { node, refresh, params, close };
}

function toChart({ metrics, name }, answer) {
  if (answer.error) return { startMs: 0, stepMs: 1, points: 1, lines: [], message: answer.error };
  const lines = answer.series
    .filter((each) => metrics.includes(each.metric))
    .map((each) => ({ name: label(each, name), values: each.values, metric: each.metric }));
  const missing = answer.missing_nodes.length ? ` Without node ${answer.missing_nodes.join(", ")}.` : "";
  return {
    startMs: answer.start_ms,
    stepMs: answer.step_s * 1000,
    points: answer.points,
    lines: lines
      .filter((line) => line.values.some((value) => value !== null))
      .sort((a, b) => metrics.indexOf(a.metric) - metrics.indexOf(b.metric))
      .slice(0, LINES_MAX),
    message: `No data in this time range.${missing}`,
    missing,
  };
}

function label(series, name) {
  const text = name?.(series) ?? NAMES[series.metric] ?? series.topic ?? series.group ?? series.metric;
  return series.partial ? `${text} (partial)` : text;
}

function permission({ topic, group }) {
  const named = [topic && `Describe on topic ${topic}`, group && `Describe on group ${group}`].filter(Boolean);
  return named.join(" and ") || "Describe on the cluster";
}

const twins = () => (parse().params.table ?? "").split(",").filter(Boolean);
