// The nodes of the cluster, their state, and the actions on them. Each action shows its plan before it is confirmed.

import { at, get, post } from "../api.js";
import { live } from "../live.js";
import { mayOnCluster } from "../permissions.js";
import { go, link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { fill, h } from "../ui/dom.js";
import { field, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, button, card, facts, meter, notice, number, pageHead, tabs } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { table } from "../ui/table.js";
import { historyCharts } from "../ui/history.js";
import { configsCard } from "./configs.js";
import { raftPart } from "./raft.js";

const TABS = [
  ["nodes", "Nodes"],
  ["reassignments", "Reassignments"],
  ["configs", "Cluster-wide configs"],
];
const DESCRIBE = "Describe on the cluster";
const CONFIG_PERMISSIONS = { mayAlter: () => mayOnCluster("alter-configs"), permission: "DescribeConfigs on the cluster" };
const STATUS = { online: "ok", maintenance: "warning", fenced: "error", offline: "error", absent: "plain" };

/** The problems of a node, except for those that its status shows. */
const problemsOf = (id) => (live.last?.cluster?.health?.problems ?? []).filter((each) => each.console === `/nodes/${id}` && !each.kind.endsWith("-node"));

function standing(node) {
  return [
    node.reachable
      ? (node.status !== "maintenance" || !node.draining) && badge(node.status, STATUS[node.status] ?? "plain")
      : node.status === "absent"
        ? badge("not joined yet")
        : badge("unreachable", "error"),
    node.draining && badge(node.leads ? "draining" : "drained", "warning"),
    problemsOf(node.id).map((each) => badge(each.kind.replaceAll("-", " "), each.severity === "critical" ? "error" : "warning")),
    node.role === "leader" ? badge("leader", "accent") : node.role && badge(node.role),
    node.is_me && badge("this node"),
  ];
}

export function nodesPage(params) {
  let tab = params.tab ?? "nodes";
  let inner = null;
  let last = {};
  const bar = h("div", {});
  const part = h("div", {});
  const node = h(
    "div",
    {},
    pageHead("Nodes", {
      actions: [
        mayOnCluster("alter") && button("add-node?", "Add node", () => setParams({ do: "add" }, { replace: false }), { tone: "primary", glyph: "plus" }),
      ],
    }),
    bar,
    part,
  );
  open(params);
  act(params);

  function open(next) {
    tab = next.tab ?? "nodes";
    inner?.close();
    fill(
      bar,
      tabs(
        TABS.map(([id, label]) => ({ id, label, href: link("nodes", { tab: id === "nodes" ? "" : id }) })),
        tab,
      ),
    );
    inner =
      { nodes: listed, reassignments, configs: () => configsCard({ path: "/configs", what: "Cluster-wide configs", params: next, ...CONFIG_PERMISSIONS }) }[
        tab
      ]?.() ?? listed();
    fill(part, inner.node);
  }

  function act(next) {
    if (next.do === "add" && last.do !== "add" && mayOnCluster("alter")) add(() => inner.refresh());
    last = next;
  }

  return {
    title: "Nodes",
    node,
    refresh: () => inner.refresh(),
    close: () => inner.close(),
    update: (next) => {
      if ((next.tab ?? "nodes") !== tab) open(next);
      else inner.params?.(next);
      act(next);
    },
  };
}

function listed() {
  const rows = resource(
    (signal) => get("/nodes", { limit: 500 }, signal),
    ({ items }) => table("Nodes", columns(items), items, { key: (row) => row.id }).node,
    { everyMs: 5_000, permission: DESCRIBE },
  );
  const raft = raftPart();
  return {
    node: h("div", {}, card(null, { extra: "card-table" }, rows.node), h("h2", { class: "section" }, "Metadata log (Raft)"), raft.node),
    refresh: () => (rows.refresh(), raft.refresh()),
    close: () => (rows.close(), raft.close()),
  };
}

/** Charts of one node. */
const charts = (id) => {
  const query = { node: id };
  return [
    { title: "Throughput", note: "Bytes of Kafka requests and responses", unit: "bytes/s", metrics: ["in_bytes", "out_bytes"], query },
    { title: "Latency", note: "Response time", unit: "ms", metrics: ["produce_p99_ms", "produce_p50_ms", "fetch_p99_ms", "fetch_p50_ms"], query },
    { title: "CPU", note: "CPU time of the process per second", unit: "cores", metrics: ["cpu"], query },
    { title: "Memory", note: "Resident memory of the process", unit: "bytes", metrics: ["memory"], query },
    { title: "Event-loop delay", note: "99th percentile", unit: "ms", metrics: ["loop_delay_p99_ms"], query },
    {
      title: "Disk",
      note: "The file system of the data directory, and the replicas on it",
      unit: "bytes",
      metrics: ["disk_used", "disk_total", "log_bytes"],
      query,
    },
  ];
};

function columns(items) {
  const most = Math.max(1, ...items.map((each) => each.leads ?? 0));
  return [
    { label: "Node", cell: (row) => h("a", { class: "name nowrap", href: link("nodes", row.id), "data-focus": `node-${row.id}` }, `Node ${row.id}`) },
    { label: "Address", cell: (row) => h("span", { class: "mono" }, row.host ? `${row.host}:${row.port}` : "—") },
    { label: "Status", grow: true, cell: (row) => h("span", { class: "badges" }, standing(row)) },
    { label: "Voter", cell: (row) => (row.voter ? "yes" : "no") },
    { label: "Leaders", align: "end", cell: (row) => h("span", { class: "with-meter" }, number(row.leads), meter((row.leads ?? 0) / most)) },
    { label: "Replicas", align: "end", cell: (row) => number(row.replicas) },
    { label: "Uptime", align: "end", cell: (row) => format.duration(row.uptime_s) },
    { label: "Rack", cell: (row) => format.known(row.rack) },
    { label: "Version", cell: (row) => format.known(row.version) },
  ];
}

function reassignments() {
  const draw = ({ items }) =>
    table(
      "Reassignments",
      [
        {
          label: "Topic",
          grow: true,
          cell: (row) => h("a", { href: link("topics", row.topic), "data-focus": `move-${row.topic}-${row.partition}` }, row.topic),
        },
        { label: "Partition", align: "end", cell: (row) => number(row.partition) },
        { label: "Replicas", cell: (row) => format.list(row.replicas) },
        { label: "Adding replicas", cell: (row) => (row.adding.length ? badge(row.adding.join(", "), "accent") : "—") },
        { label: "Removing replicas", cell: (row) => format.list(row.removing) },
        {
          label: "",
          cell: (row) =>
            mayOnCluster("alter") &&
            button("cancel-reassignment?", "Cancel", () => cancelReassignment(row, rows), { small: true, focus: `off-${row.topic}-${row.partition}` }),
        },
      ],
      items,
      { empty: "There are no reassignments in progress." },
    ).node;
  const rows = resource((signal) => get("/reassignments", {}, signal), draw, { everyMs: 3_000, permission: DESCRIBE });
  return { ...rows, node: card(null, { extra: "card-table" }, rows.node) };
}

function cancelReassignment({ topic, partition }, rows) {
  const body = { partitions: [{ topic, partition, replicas: null }] };
  confirm({
    action: "cancel-reassignment",
    title: `Cancel reassignment of ${topic}, partition ${partition}`,
    preview: () => post("/reassignments", { ...body, dry_run: true }),
    label: "Cancel reassignment",
    run: () => post("/reassignments", body),
    success: "The reassignment was cancelled.",
    done: rows.refresh,
  });
}

function add(done) {
  formDialog({
    action: "add-node",
    title: "Add node",
    intro: "Start the node with a configuration file that names this cluster. After it has joined, you can reassign partitions to it.",
    fields: [
      field("id", "Id", { type: "number", min: 0, required: true, autofocus: true, hint: "An unused node id." }),
      side(
        field("host", "Host", { required: true, mono: true, hint: "The host of its raft address." }),
        field("port", "Port", { type: "number", min: 1, max: 65535, required: true, hint: "The port of its raft address." }),
      ),
    ],
    label: "Add node",
    preview: (form) => post("/nodes", { ...form, dry_run: true }),
    submit: (form) => post("/nodes", form),
    success: (form) => `Node ${form.id} was added and may join.`,
    done,
    onclose: () => parse().params.do && setParams({ do: "" }),
  });
}

const ACTIONS = {
  drain: {
    action: "drain-node",
    label: "Drain",
    title: (id) => `Drain node ${id}`,
    intro: "Other nodes take over its partition leaderships, and it gets no new replicas. Existing replicas stay on the node.",
    success: (id) => `Node ${id} is being drained.`,
  },
  undrain: {
    action: "undrain-node",
    label: "Undrain",
    title: (id) => `Undrain node ${id}`,
    intro: "The node may lead partitions and get new replicas again.",
    success: (id) => `Node ${id} is no longer drained.`,
  },
  promote: {
    action: "promote-node",
    label: "Promote",
    title: (id) => `Promote node ${id} to a voter`,
    intro: "The node becomes a voter of the Raft quorum for the metadata log.",
    success: (id) => `Node ${id} is being promoted to a voter.`,
  },
  demote: {
    action: "demote-node",
    label: "Demote",
    title: (id) => `Demote node ${id} to an observer`,
    intro: "The node keeps its replicas and follows the metadata log without a vote.",
    success: (id) => `Node ${id} is being demoted to an observer.`,
  },
  remove: {
    action: "remove-node",
    label: "Remove",
    title: (id) => `Remove node ${id}`,
    intro: "Its replicas are reassigned to other nodes; then the node is removed from the cluster.",
    success: (id) => `Node ${id} was removed from the cluster.`,
    danger: true,
    meanwhile: "Reassigning the node’s replicas. Keep this dialog open: the node is removed when the reassignments have finished.",
    left: (id) => `The reassignments of node ${id} continue. To remove the node, repeat the action when they have finished.`,
  },
};

export function nodePage(id, params) {
  const buttons = h("div", { class: "actions" });
  const verdict = h("div", { "aria-live": "polite" });
  const history = historyCharts(charts(id), { heading: "History" });
  const head = resource((signal) => get(at("nodes", id), {}, signal), draw, { everyMs: 5_000, dependents: [buttons, history.node], permission: DESCRIBE });
  const configs = configsCard({ path: at("nodes", id, "configs"), what: `Configs of node ${id}`, params, isBrief: true, ...CONFIG_PERMISSIONS });
  const title = pageHead(`Node ${id}`, { back: { label: "Nodes", href: link("nodes") } });
  title.append(buttons);
  const node = h("div", {}, title, verdict, head.node, history.node, h("h2", { class: "section" }, "Configs"), configs.node);
  let last = {};
  act(params);

  function draw(data) {
    const names = [data.draining || data.status === "maintenance" ? "undrain" : "drain", data.voter ? "demote" : "promote", "remove"];
    if (buttons.dataset.for !== names.join()) {
      buttons.dataset.for = names.join();
      fill(
        buttons,
        button("may-it-stop", "Check if safe to stop", mayStop),
        mayOnCluster("alter") &&
          names.map((name) =>
            button(`${ACTIONS[name].action}?`, ACTIONS[name].label, () => setParams({ do: name }, { replace: false }), {
              tone: ACTIONS[name].danger ? "danger" : "",
            }),
          ),
      );
    }
    return [
      card(
        null,
        {},
        facts(
          [
            ["Status", h("span", { class: "badges" }, standing(data)), "wide"],
            ["Address", h("span", { class: "mono" }, data.host ? `${data.host}:${data.port}` : "—")],
            ["Voter", data.voter ? "yes" : "no"],
            ["Term", number(data.term)],
            ["Applied index", number(data.applied_index)],
            ["State hash", h("span", { class: "mono small wrap" }, format.known(data.state_hash)), "wide"],
            ["Leaders", number(data.leads)],
            ["Replicas", number(data.replicas)],
            ["Size", format.bytes(data.bytes)],
            ["Uptime", format.duration(data.uptime_s)],
            ["Rack", format.known(data.rack)],
            ["Version", format.known(data.version)],
          ],
          "facts-row",
        ),
      ),
      card(
        "Log directories",
        { extra: "card-table" },
        table(`Log directories of node ${id}`, FOLDERS, data.log_dirs ?? [], { key: (row) => row.path, empty: "Not available at the moment." }).node,
      ),
    ];
  }

  async function mayStop() {
    try {
      const { ok, reasons } = await get(at("nodes", id, "ok-to-stop"));
      fill(
        verdict,
        ok
          ? notice(`Node ${id} can be stopped safely: all partitions stay available.`, "ok")
          : notice(`Node ${id} should not be stopped now: ${reasons.join(" ")}`, "warning"),
      );
    } catch (error) {
      fill(verdict, notice(error.message, "error"));
    }
  }

  function act(next) {
    const action = ACTIONS[next.do];
    if (action && last.do !== next.do && mayOnCluster("alter")) {
      const path = at("nodes", id, next.do);
      confirm({
        action: action.action,
        title: action.title(id),
        intro: action.intro,
        preview: () => post(path, { dry_run: true }),
        typed: action.danger ? `node ${id}` : undefined,
        label: action.label,
        tone: action.danger ? "danger" : "primary",
        run: () => post(path, {}),
        success: action.success(id),
        meanwhile: action.meanwhile,
        left: action.left?.(id),
        done: () => (action.danger ? go("nodes") : head.refresh()),
        onclose: () => parse().params.do && setParams({ do: "" }),
      });
    }
    last = next;
  }

  return {
    title: `Node ${id}`,
    node,
    refresh: () => (head.refresh(), history.refresh(), configs.refresh()),
    close: () => (head.close(), history.close(), configs.close()),
    update: (next) => {
      configs.params(next);
      history.params();
      act(next);
    },
  };
}

const FOLDERS = [
  { label: "Path", grow: true, cell: (row) => h("span", { class: "mono wrap" }, row.path) },
  { label: "Partitions", align: "end", cell: (row) => number(row.partitions) },
  { label: "Size", align: "end", cell: (row) => format.bytes(row.bytes) },
  {
    label: "Free space",
    align: "end",
    cell: (row) =>
      row.total_bytes
        ? h(
            "span",
            { class: "with-meter" },
            `${format.bytes(row.usable_bytes)} of ${format.bytes(row.total_bytes)}`,
            meter(1 - row.usable_bytes / row.total_bytes, row.usable_bytes / row.total_bytes < 0.1 ? "error" : ""),
          )
        : "—",
  },
  { label: "Error", cell: (row) => (row.error ? badge(row.error, "error") : "none") },
];
