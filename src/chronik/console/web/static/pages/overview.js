// The overview: the problems of the cluster, the comparison of the nodes, their state, and charts of the load.

import { get } from "../api.js";
import { live } from "../live.js";
import { link, parse, setParams } from "../router.js";
import { chart } from "../ui/chart.js";
import { fill, h, redraw } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { badge, card, facts, fingerprint, icon, meter, pageHead, problem, waiting } from "../ui/parts.js";

const LAGS = 4;

export function overviewPage() {
  const verdict = h("div", { class: "verdict-frame" });
  const attention = h("div", {});
  const totals = h("div", { class: "tiles" });
  const nodes = h("div", { class: "node-grid" });
  const charts = [throughput(), latency(), lag()];
  const node = h(
    "div",
    {},
    pageHead("Overview"),
    h("div", { class: "hero" }, verdict, attention),
    totals,
    h("h2", { class: "section" }, "Nodes"),
    nodes,
    h("h2", { class: "section" }, "Last five minutes"),
    h("div", { class: "charts" }, charts.map((each) => each.node)),
  );
  let cluster = null;
  let said = null;
  fill(verdict, waiting());
  refresh();

  async function refresh() {
    try {
      cluster = { ...(await get("/cluster")), ...live.last?.cluster };
      draw();
    } catch (error) {
      if (!cluster) fill(verdict, problem(error));
    }
  }

  function draw() {
    const verdictNow = `${cluster.verdict} ${cluster.agrees} ${(cluster.nodes ?? []).map((each) => each.reachable)}`;
    if (said !== verdictNow) {
      said = verdictNow;
      fill(verdict, h("div", { class: "verdict-box", role: "status" }));
    }
    drawVerdict(verdict.firstChild, cluster);
    redraw(attention, problemsCard(cluster.health));
    redraw(totals, tiles(cluster));
    redraw(nodes, (cluster.nodes ?? []).map((each) => nodeCard(each, cluster)));
  }

  return {
    title: "Overview",
    node,
    refresh,
    update: () => charts.forEach((each) => each.update(live.history)),
    live: ({ last, history }) => {
      charts.forEach((each) => each.update(history));
      if (!last?.cluster) return;
      cluster = { ...cluster, ...last.cluster };
      draw();
    },
  };
}

function drawVerdict(element, cluster) {
  const whole = (cluster.nodes ?? []).every((node) => node.reachable !== false);
  const worst = { critical: "error", warning: "warning" }[cluster.health?.status];
  const tone = cluster.agrees === false || worst === "error" ? "error" : cluster.agrees && whole && !worst ? "ok" : "warning";
  const glyph = { ok: "check", warning: "info", error: "warning" }[tone];
  element.className = `verdict-box verdict-${tone}`;
  const where = [cluster.compared_index === null || cluster.compared_index === undefined ? null : `compared at index ${format.count(cluster.compared_index)}`, cluster.leader_id === null || cluster.leader_id === undefined || cluster.leader_id < 0 ? "no leader" : `leader: node ${cluster.leader_id}`, `term ${format.count(cluster.term)}`].filter(Boolean).join(" · ");
  // Screen readers announce the verdict once, not with each new index.
  if (element.querySelector(".verdict-text")) element.querySelector(".verdict-more").textContent = where;
  else fill(element, h("span", { class: "verdict-mark" }, icon(glyph)), h("div", {}, h("p", { class: "verdict-text" }, cluster.verdict ?? "Unknown"), h("p", { class: "verdict-more muted", "aria-live": "off" }, where)));
}

const TONES = { critical: "error", warning: "warning", info: "info" };

/** Lists the problems, the most severe first. It says that there are none only if a check has found none. */
function problemsCard(health) {
  const problems = health?.problems ?? [];
  const row = (each) => {
    const since = `For ${format.duration(Math.max(0, (Date.now() - each.since_ms) / 1000))}. ${each.effect}.`;
    const text = h("div", {}, h("a", { href: local(each.console), "data-focus": `problem-${each.id}` }, sentence(each.message)), h("p", { class: "muted small", "aria-live": "off" }, since), h("p", { class: "small" }, `What to do: ${each.action}`));
    return h("li", { class: `attention attention-${TONES[each.severity]}` }, icon(TONES[each.severity]), text);
  };
  const none = health ? h("p", { class: "all-well" }, icon("check"), "No problems found.") : h("p", { class: "muted" }, "The problems are not known yet.");
  return card("Problems", { extra: "attention-card" }, problems.length ? h("ul", { class: "attentions" }, problems.map(row)) : none);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

const local = (href) => (href.startsWith("#") ? href : `#${href.startsWith("/") ? "" : "/"}${href}`);

function tiles(cluster) {
  const tile = (label, value, href, bad) => h("a", { class: `tile ${bad && value ? "tile-bad" : ""}`, href, "data-focus": `tile-${label}` }, h("span", { class: "tile-value" }, format.count(value)), h("span", { class: "tile-label" }, label));
  return [
    tile(cluster.internal_topics ? `topics (${format.count(cluster.internal_topics)} internal)` : "topics", cluster.topics, link("topics")),
    tile("partitions", cluster.partitions, link("topics")),
    tile("under-replicated partitions", cluster.under_replicated, link("topics"), true),
    tile("offline partitions", cluster.offline, link("topics"), true),
    tile("groups", cluster.groups, link("groups")),
    tile("open transactions", cluster.open_transactions, link("transactions")),
  ];
}

const STATUS = { online: "ok", maintenance: "warning", fenced: "error" };

function nodeCard(node, cluster) {
  const hash = node.state_hash;
  const differs = cluster.agrees === false && (cluster.nodes ?? []).some((other) => other.applied_index === node.applied_index && other.state_hash !== hash);
  const most = Math.max(1, ...(cluster.nodes ?? []).map((each) => each.leads ?? 0));
  const absent = node.reachable === false && node.status === "absent";
  const gone = node.reachable === false && !absent;
  return h(
    "article",
    { class: `card node-card ${gone ? "node-gone" : ""}`, "aria-label": `Node ${node.id}` },
    h(
      "div",
      { class: "node-head" },
      h("h3", {}, h("a", { href: link("nodes", node.id), "data-focus": `node-${node.id}` }, `Node ${node.id}`)),
      gone ? badge("unreachable", "error") : badge(absent ? "not joined yet" : node.status, STATUS[node.status] ?? "plain"),
      node.role && !gone ? badge(node.role, node.role === "leader" ? "accent" : "plain") : null,
    ),
    h("p", { class: "mono muted small" }, [node.host ? `${node.host}:${node.port}` : "address unknown", node.rack, node.is_me && "this node"].filter(Boolean).join(" · ")),
    h("div", { class: "hash" }, fingerprint(hash, differs), h("span", { class: "mono", title: hash ?? undefined }, hash ? `${hash.slice(0, 8)}…${hash.slice(-4)}` : "state unknown")),
    facts([
      ["Applied index", h("span", { class: "number" }, format.count(node.applied_index))],
      ["Term", h("span", { class: "number" }, format.count(node.term))],
      ["Leaders", h("span", { class: "with-meter" }, h("span", { class: "number" }, format.count(node.leads)), meter((node.leads ?? 0) / most))],
      ["Replicas", h("span", { class: "number" }, format.count(node.replicas))],
      ["Uptime", format.duration(node.uptime_s)],
      ["Version", format.known(node.version)],
    ], "facts-two"),
  );
}

function twins() {
  return (parse().params.table ?? "").split(",").filter(Boolean);
}

function twin(name) {
  return {
    twin: () => twins().includes(name),
    toggle: (on) => setParams({ table: (on ? [...twins(), name] : twins().filter((each) => each !== name)).join(",") }),
  };
}

function throughput() {
  return chart({
    title: "Throughput",
    note: "Bytes per second on this node",
    ...twin("throughput"),
    show: format.rate,
    base: 1024,
    series: [
      { name: "In", value: (sample) => sample.rates?.in_bytes_s ?? null },
      { name: "Out", value: (sample) => sample.rates?.out_bytes_s ?? null },
    ],
  });
}

function latency() {
  const value = (api, share) => (sample) => sample.latency_ms?.[api]?.[share] ?? null;
  return chart({
    title: "Latency",
    note: "Response time of this node",
    ...twin("latency"),
    show: format.milliseconds,
    series: [
      { name: "Produce p99", value: value("produce", "p99") },
      { name: "Produce p50", value: value("produce", "p50") },
      { name: "Fetch p99", value: value("fetch", "p99") },
      { name: "Fetch p50", value: value("fetch", "p50") },
    ],
  });
}

function lag() {
  return chart({
    title: "Lag",
    note: "Consumer group lag in records",
    ...twin("lag"),
    show: format.short,
    series: (history) => {
      const top = (history.at(-1)?.lag ?? []).slice(0, LAGS);
      return top.map(({ group }) => ({ name: group, value: (sample) => sample.lag?.find((each) => each.group === group)?.lag ?? null }));
    },
  });
}
