// The overview: the problems of the cluster, whether its nodes agree, and charts of throughput, lag and latency.

import { get } from "../api.js";
import { live } from "../live.js";
import { link } from "../router.js";
import { fill, h, redraw } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { historyCharts } from "../ui/history.js";
import { card, hiddenNotice, icon, pageHead, problem, waiting } from "../ui/parts.js";
import { drawVerdict } from "./raft.js";

const CHARTS = [
  { title: "Throughput", note: "Bytes of Kafka requests and responses, all nodes", unit: "bytes/s", metrics: ["in_bytes", "out_bytes"] },
  { title: "Lag", note: "Groups with the largest lag", unit: "records", metrics: ["group_lag"], query: { of: "groups" }, name: (series) => series.group },
  { title: "Records and requests", note: "All nodes", unit: "1/s", metrics: ["in_records", "requests", "errors"] },
  { title: "Latency", note: "Slowest node", unit: "ms", metrics: ["produce_p99_ms", "produce_p50_ms", "fetch_p99_ms", "fetch_p50_ms"] },
];

export function overviewPage() {
  const verdict = h("div", { class: "verdict-frame" });
  const attention = h("div", {});
  const totals = h("div", { class: "tiles" });
  const charts = historyCharts(CHARTS, { heading: "History" });
  const node = h("div", {}, pageHead("Overview"), h("div", { class: "hero" }, attention, verdict), totals, charts.node);
  let cluster = null;
  let said = null;
  fill(verdict, waiting());
  refresh();

  async function refresh() {
    try {
      cluster = { ...(await get("/cluster")), ...live.last?.cluster };
      draw();
    } catch (error) {
      if (!cluster) fill(verdict, error.status === 403 ? hiddenNotice("Describe on the cluster") : problem(error));
    }
  }

  function draw() {
    const verdictNow = `${cluster.verdict} ${cluster.agrees} ${(cluster.nodes ?? []).map((each) => each.reachable)}`;
    if (said !== verdictNow) {
      said = verdictNow;
      fill(verdict, h("div", { class: "verdict-box", role: "status" }));
    }
    drawVerdict(verdict.firstChild, cluster, { isBrief: true });
    redraw(attention, problemsCard(cluster.health));
    redraw(totals, tiles(cluster));
  }

  return {
    title: "Overview",
    node,
    refresh: () => (refresh(), charts.refresh()),
    close: charts.close,
    update: charts.params,
    live: ({ last }) => {
      if (!last?.cluster) return;
      cluster = { ...cluster, ...last.cluster };
      draw();
    },
  };
}

const TONES = { critical: "error", warning: "warning", info: "info" };

/** Lists the problems, the most severe first. It says that there are none only if a check has found none. */
function problemsCard(health) {
  const problems = health?.problems ?? [];
  const row = (each) => {
    const since = `For ${format.duration(Math.max(0, (Date.now() - each.since_ms) / 1000))}. ${each.effect}.`;
    const text = h(
      "div",
      {},
      h("a", { href: local(each.console), "data-focus": `problem-${each.id}` }, sentence(each.message)),
      h("p", { class: "muted small", "aria-live": "off" }, since),
      h("p", { class: "small" }, `What to do: ${each.action}`),
    );
    return h("li", { class: `attention attention-${TONES[each.severity]}` }, icon(TONES[each.severity]), text);
  };
  const none = health ? h("p", { class: "all-well" }, icon("check"), "No problems found.") : h("p", { class: "muted" }, "The problems are not known yet.");
  return card("Problems", { extra: "attention-card" }, problems.length ? h("ul", { class: "attentions" }, problems.map(row)) : none);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

const local = (href) => (href.startsWith("#") ? href : `#${href.startsWith("/") ? "" : "/"}${href}`);

function tiles(cluster) {
  const tile = (label, value, href, bad) =>
    h(
      "a",
      { class: `tile ${bad && value ? "tile-bad" : ""}`, href, "data-focus": `tile-${label}` },
      h("span", { class: "tile-value" }, format.count(value)),
      h("span", { class: "tile-label" }, label),
    );
  return [
    tile("nodes", (cluster.nodes ?? []).length, link("nodes")),
    tile(cluster.internal_topics ? `topics (${format.count(cluster.internal_topics)} internal)` : "topics", cluster.topics, link("topics")),
    tile("partitions", cluster.partitions, link("topics")),
    tile("under-replicated partitions", cluster.under_replicated, link("topics"), true),
    tile("offline partitions", cluster.offline, link("topics"), true),
    tile("groups", cluster.groups, link("groups")),
    tile("open transactions", cluster.open_transactions, link("transactions")),
  ];
}
