// Nodes: what each is, and what can be done with it, with the plan shown before it is confirmed.

import { at, get, post } from "../api.js";
import { go, link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { fill, h } from "../ui/dom.js";
import { field, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, button, card, facts, meter, notice, number, pageHead, tabs } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { table } from "../ui/table.js";
import { configsCard } from "./configs.js";

const TABS = [["nodes", "Nodes"], ["moving", "Partitions that move"], ["configs", "Cluster-wide configs"]];
const STATUS = { online: "ok", maintenance: "warning", fenced: "error", offline: "error", absent: "plain" };

function standing(node) {
  return [
    node.reachable ? badge(node.status, STATUS[node.status] ?? "plain") : node.status === "absent" ? badge("not here yet") : badge("gone", "error"),
    node.draining && badge("draining", "warning"),
    node.role === "leader" ? badge("leader", "accent") : node.role && badge(node.role),
    node.is_me && badge("you are here"),
  ];
}

export function nodesPage(params) {
  let tab = params.tab ?? "nodes";
  let inner = null;
  let last = {};
  const bar = h("div", {});
  const part = h("div", {});
  const node = h("div", {}, pageHead("Nodes", { actions: [button("add-node?", "Add a node", () => setParams({ do: "add" }, { replace: false }), { tone: "primary", glyph: "plus" })] }), bar, part);
  open(params);
  act(params);

  function open(next) {
    tab = next.tab ?? "nodes";
    inner?.close();
    fill(bar, tabs(TABS.map(([id, label]) => ({ id, label, href: link("nodes", { tab: id === "nodes" ? "" : id }) })), tab));
    inner = { nodes: listed, moving, configs: () => configsCard({ path: "/configs", what: "Configs of all nodes", params: next }) }[tab]?.() ?? listed();
    fill(part, inner.node);
  }

  function act(next) {
    if (next.do === "add" && last.do !== "add") add(() => inner.refresh());
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
  const rows = resource((signal) => get("/nodes", { limit: 500 }, signal), ({ items }) => table("Nodes", columns(items), items, { key: (row) => row.id }).node, { everyMs: 5_000 });
  return { ...rows, node: card(null, { extra: "card-table" }, rows.node) };
}

function columns(items) {
  const most = Math.max(1, ...items.map((each) => each.leads ?? 0));
  return [
    { label: "Node", cell: (row) => h("a", { class: "name", href: link("nodes", row.id), "data-focus": `node-${row.id}` }, `Node ${row.id}`) },
    { label: "Address", cell: (row) => h("span", { class: "mono" }, row.host ? `${row.host}:${row.port}` : "—") },
    { label: "Standing", grow: true, cell: (row) => h("span", { class: "badges" }, standing(row)) },
    { label: "Votes", cell: (row) => (row.voter ? "yes" : "no") },
    { label: "Leads", align: "end", cell: (row) => h("span", { class: "with-meter" }, number(row.leads), meter((row.leads ?? 0) / most)) },
    { label: "Copies", align: "end", cell: (row) => number(row.replicas) },
    { label: "Up", align: "end", cell: (row) => format.duration(row.uptime_s) },
    { label: "Rack", cell: (row) => format.known(row.rack) },
    { label: "Version", cell: (row) => format.known(row.version) },
  ];
}

function moving() {
  const draw = ({ items }) => table("Partitions that move", [
    { label: "Topic", grow: true, cell: (row) => h("a", { href: link("topics", row.topic), "data-focus": `move-${row.topic}-${row.partition}` }, row.topic) },
    { label: "Partition", align: "end", cell: (row) => number(row.partition) },
    { label: "Copies on", cell: (row) => format.list(row.replicas) },
    { label: "Coming to", cell: (row) => (row.adding.length ? badge(row.adding.join(", "), "accent") : "—") },
    { label: "Leaving", cell: (row) => format.list(row.removing) },
    { label: "", cell: (row) => button("call-off?", "Call off", () => callOff(row, rows), { small: true, focus: `off-${row.topic}-${row.partition}` }) },
  ], items, { empty: "Nothing is being moved." }).node;
  const rows = resource((signal) => get("/reassignments", {}, signal), draw, { everyMs: 3_000 });
  return { ...rows, node: card(null, { extra: "card-table" }, rows.node) };
}

function callOff({ topic, partition }, rows) {
  const body = { partitions: [{ topic, partition, replicas: null }] };
  confirm({ action: "call-off", title: `Call off the move of ${topic}, partition ${partition}`, preview: () => post("/reassignments", { ...body, dry_run: true }), label: "Call off", run: () => post("/reassignments", body), success: "Called off.", done: rows.refresh });
}

function add(done) {
  formDialog({
    action: "add-node",
    title: "Add a node",
    intro: "Its own config file names this cluster; when it is started, it joins, and partitions can be moved to it.",
    fields: [
      field("id", "Id", { type: "number", min: 0, required: true, autofocus: true, hint: "One that no node has." }),
      side(field("host", "Host", { required: true, mono: true, hint: "Where other nodes find it." }), field("port", "Port", { type: "number", min: 1, max: 65535, required: true, hint: "That of its raft address." })),
    ],
    label: "Add the node",
    preview: (form) => post("/nodes", { ...form, dry_run: true }),
    submit: (form) => post("/nodes", form),
    success: (form) => `Node ${form.id} may join.`,
    done,
    onclose: () => parse().params.do && setParams({ do: "" }),
  });
}

const ACTIONS = {
  drain: { action: "drain-node", label: "Drain", title: (id) => `Drain node ${id}`, intro: "Others lead its partitions, and it gets no new copies. Those that it has stay, and so does the node.", success: (id) => `Node ${id} is being drained.` },
  undrain: { action: "undrain-node", label: "Undrain", title: (id) => `Let node ${id} lead again`, intro: "It may lead again, and gets copies as others do.", success: (id) => `Node ${id} takes part again.` },
  promote: { action: "promote-node", label: "Give a vote", title: (id) => `Give node ${id} a vote`, intro: "It takes part in elections and in every decision of the metadata log.", success: (id) => `Node ${id} gets a vote.` },
  demote: { action: "demote-node", label: "Take the vote", title: (id) => `Take the vote of node ${id}`, intro: "It goes on to follow and to hold data, without a vote.", success: (id) => `Node ${id} loses its vote.` },
  remove: {
    action: "remove-node",
    label: "Remove",
    title: (id) => `Remove node ${id}`,
    intro: "Its copies move to other nodes; then it leaves the cluster.",
    success: (id) => `Node ${id} leaves the cluster.`,
    danger: true,
    meanwhile: "Its copies move to other nodes. When they have, it is removed, if this stays open till then.",
    left: (id) => `The copies of node ${id} go on to move. It stays in the cluster until you remove it again.`,
  },
};

export function nodePage(id, params) {
  const buttons = h("div", { class: "actions" });
  const verdict = h("div", { "aria-live": "polite" });
  const head = resource((signal) => get(at("nodes", id), {}, signal), draw, { everyMs: 5_000 });
  const configs = configsCard({ path: at("nodes", id, "configs"), what: `Configs of node ${id}`, params });
  const title = pageHead(`Node ${id}`, { back: { label: "Nodes", href: link("nodes") } });
  title.append(buttons);
  const node = h("div", {}, title, verdict, head.node, h("h2", { class: "section" }, "Configs"), configs.node);
  let last = {};
  act(params);

  function draw(data) {
    const names = [data.draining || data.status === "maintenance" ? "undrain" : "drain", data.voter ? "demote" : "promote", "remove"];
    if (buttons.dataset.for !== names.join()) {
      buttons.dataset.for = names.join();
      fill(buttons, button("may-it-stop", "May it stop?", mayStop), names.map((name) => button(`${ACTIONS[name].action}?`, ACTIONS[name].label, () => setParams({ do: name }, { replace: false }), { tone: ACTIONS[name].danger ? "danger" : "" })));
    }
    return [
      card(null, {}, facts([
        ["Standing", h("span", { class: "badges" }, standing(data)), "wide"],
        ["Address", h("span", { class: "mono" }, data.host ? `${data.host}:${data.port}` : "—")],
        ["Votes", data.voter ? "yes" : "no"],
        ["Term", number(data.term)],
        ["Applied index", number(data.applied_index)],
        ["State hash", h("span", { class: "mono small wrap" }, format.known(data.state_hash)), "wide"],
        ["Leads", number(data.leads)],
        ["Copies", number(data.replicas)],
        ["Data", format.bytes(data.bytes)],
        ["Up", format.duration(data.uptime_s)],
        ["Rack", format.known(data.rack)],
        ["Version", format.known(data.version)],
      ], "facts-row")),
      card("Folders", { extra: "card-table" }, table(`Folders of node ${id}`, FOLDERS, data.log_dirs ?? [], { key: (row) => row.path, empty: "It does not tell at the moment." }).node),
    ];
  }

  async function mayStop() {
    try {
      const { ok, reasons } = await get(at("nodes", id, "ok-to-stop"));
      fill(verdict, ok ? notice(`Node ${id} can be stopped: every partition stays readable and writable.`, "ok") : notice(`Node ${id} should not be stopped now: ${reasons.join(" ")}`, "warning"));
    } catch (error) {
      fill(verdict, notice(error.message, "error"));
    }
  }

  function act(next) {
    const action = ACTIONS[next.do];
    if (action && last.do !== next.do) {
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
    refresh: () => (head.refresh(), configs.refresh()),
    close: () => (head.close(), configs.close()),
    update: (next) => {
      configs.params(next);
      act(next);
    },
  };
}

const FOLDERS = [
  { label: "Folder", grow: true, cell: (row) => h("span", { class: "mono wrap" }, row.path) },
  { label: "Partitions", align: "end", cell: (row) => number(row.partitions) },
  { label: "Data", align: "end", cell: (row) => format.bytes(row.bytes) },
  { label: "Disk free", align: "end", cell: (row) => (row.total_bytes ? h("span", { class: "with-meter" }, `${format.bytes(row.usable_bytes)} of ${format.bytes(row.total_bytes)}`, meter(1 - row.usable_bytes / row.total_bytes, row.usable_bytes / row.total_bytes < 0.1 ? "error" : "")) : "—") },
  { label: "Problem", cell: (row) => (row.error ? badge(row.error, "error") : "none") },
];
