// The Raft state of the cluster: a comparison of the metadata of its nodes, and a card for each node.

import { get } from "../api.js";
import { link } from "../router.js";
import { fill, h, redraw } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { badge, facts, fingerprint, icon, meter } from "../ui/parts.js";
import { resource } from "../ui/resource.js";

const EVERY_MS = 2_000;

/** A part of a page that shows the comparison and the cards, and refreshes them. */
export function raftPart() {
  const verdict = h("div", { class: "verdict-box", role: "status" });
  const nodes = h("div", { class: "node-grid" });
  const loaded = resource(
    (signal) => get("/cluster", {}, signal),
    (cluster) => {
      drawVerdict(verdict, cluster);
      redraw(
        nodes,
        (cluster.nodes ?? []).map((each) => nodeCard(each, cluster)),
      );
      return [verdict, nodes];
    },
    { everyMs: EVERY_MS, permission: "Describe on the cluster" },
  );
  loaded.node.classList.add("raft");
  return loaded;
}

/** Shows whether the nodes have the same metadata and, unless `isBrief`, at which index and in which term. */
export function drawVerdict(element, cluster, { isBrief = false } = {}) {
  const whole = (cluster.nodes ?? []).every((node) => node.reachable !== false);
  const tone = cluster.agrees === false ? "error" : cluster.agrees && whole ? "ok" : "warning";
  const glyph = { ok: "check", warning: "info", error: "warning" }[tone];
  element.className = `verdict-box verdict-${tone}`;
  const where = isBrief
    ? whereNodes(cluster)
    : [
        cluster.compared_index === null || cluster.compared_index === undefined ? null : `compared at index ${format.count(cluster.compared_index)}`,
        cluster.leader_id === null || cluster.leader_id === undefined || cluster.leader_id < 0 ? "no leader" : `leader: node ${cluster.leader_id}`,
        `term ${format.count(cluster.term)}`,
      ]
        .filter(Boolean)
        .join(" · ");
  // Screen readers announce the verdict once, not with each new index.
  if (element.querySelector(".verdict-text")) element.querySelector(".verdict-more").textContent = where;
  else
    fill(
      element,
      h("span", { class: "verdict-mark" }, icon(glyph)),
      h("div", {}, h("p", { class: "verdict-text" }, cluster.verdict ?? "Unknown"), h("p", { class: "verdict-more muted", "aria-live": "off" }, where)),
    );
}

const whereNodes = (cluster) => {
  const nodes = cluster.nodes ?? [];
  const up = nodes.filter((node) => node.reachable !== false).length;
  return `about the metadata of the cluster · ${up} of ${format.plural(nodes.length, "node")} reachable`;
};

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
    h(
      "p",
      { class: "mono muted small" },
      [node.host ? `${node.host}:${node.port}` : "address unknown", node.rack, node.is_me && "this node"].filter(Boolean).join(" · "),
    ),
    h(
      "div",
      { class: "hash" },
      fingerprint(hash, differs),
      h("span", { class: "mono", title: hash ?? undefined }, hash ? `${hash.slice(0, 8)}…${hash.slice(-4)}` : "state unknown"),
    ),
    facts(
      [
        ["Applied index", h("span", { class: "number" }, format.count(node.applied_index))],
        ["Term", h("span", { class: "number" }, format.count(node.term))],
        ["Leaders", h("span", { class: "with-meter" }, h("span", { class: "number" }, format.count(node.leads)), meter((node.leads ?? 0) / most))],
        ["Replicas", h("span", { class: "number" }, format.count(node.replicas))],
        ["Uptime", format.duration(node.uptime_s)],
        ["Version", format.known(node.version)],
      ],
      "facts-two",
    ),
  );
}
