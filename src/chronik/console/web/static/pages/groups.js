// Consumer groups: who reads, how far behind they are, and a way to send them elsewhere.

import { at, get, post, remove } from "../api.js";
import { go, link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { choice, field, searchField } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, button, card, facts, meter, number, pageHead } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { pager, table } from "../ui/table.js";
import { say } from "../ui/toast.js";

const PAGE = 50;
const TONES = { stable: "ok", empty: "plain", dead: "error" };

const stateBadge = (state) => badge(String(state).toLowerCase().replaceAll("_", " "), TONES[String(state).toLowerCase()] ?? "warning");

export function groupsPage(params) {
  let state = params;
  const trail = () => (state.trail ? state.trail.split("\n") : []);
  const rows = resource((signal) => get("/groups", { search: state.search, limit: PAGE, after: trail().at(-1) }, signal), draw, { everyMs: 5_000 });
  const bar = h("div", { class: "filter-bar" }, searchField("Search groups", state.search, (search) => setParams({ search, trail: "" })));
  const node = h("div", {}, pageHead("Groups", { lead: "Who reads which topics together, and how far behind they are." }), card(null, { extra: "card-table" }, bar, rows.node));

  function draw({ items, next, total }) {
    const most = Math.max(1, ...items.map((each) => each.lag ?? 0));
    const columns = [
      { label: "Group", grow: true, sort: (row) => row.group, cell: (row) => h("a", { class: "name", href: link("groups", row.group), "data-focus": `group-${row.group}` }, row.group) },
      { label: "State", sort: (row) => row.state, cell: (row) => stateBadge(row.state) },
      { label: "Members", align: "end", sort: (row) => row.members, cell: (row) => number(row.members) },
      { label: "Topics", align: "end", sort: (row) => row.topics, cell: (row) => number(row.topics) },
      { label: "Lag", align: "end", sort: (row) => row.lag, cell: (row) => h("span", { class: "with-meter" }, number(row.lag), meter((row.lag ?? 0) / most, row.lag ? "warning" : "")) },
      { label: "Coordinator", cell: (row) => (row.coordinator === null ? "—" : `node ${row.coordinator}`) },
    ];
    const sort = { value: () => parse().params.sort, set: (sorted) => (setParams({ sort: sorted }), rows.show()) };
    const empty = state.search ? `No group has “${state.search}” in its name.` : "Nobody reads as a group yet.";
    return [table("Groups", columns, items, { key: (row) => row.group, sort, empty }).node, pager({ shown: items.length, total, next, trail: trail(), set: (tokens) => setParams({ trail: tokens.join("\n") }, { replace: false }) })];
  }

  return {
    title: "Groups",
    node,
    refresh: rows.refresh,
    close: rows.close,
    update: (next) => {
      const changed = ["search", "trail"].some((key) => state[key] !== next[key]);
      state = next;
      if (changed) rows.refresh();
    },
  };
}

export function groupPage(name, params) {
  const page = resource((signal) => get(at("groups", name), {}, signal), draw, { everyMs: 3_000 });
  const actions = [button("reset-offsets?", "Reset offsets", () => setParams({ do: "reset" }, { replace: false }), { tone: "primary" }), button("delete-group?", "Delete", erase, { tone: "danger", glyph: "trash" })];
  const node = h("div", {}, pageHead(name, { back: { label: "Groups", href: link("groups") }, actions }), page.node);
  let last = {};
  act(params);

  function draw(group) {
    const behind = Math.max(0, ...group.partitions.map((each) => each.lag_seconds ?? 0));
    return [
      card(null, {}, facts([
        ["State", stateBadge(group.state)],
        ["Members", number(group.member_list.length)],
        ["Lag", h("span", { class: "number" }, `${format.count(group.lag)} records`)],
        ["Furthest behind", format.duration(behind)],
        ["Protocol", format.known(group.protocol || group.protocol_type)],
        ["Coordinator", group.coordinator === null ? "—" : h("a", { href: link("nodes", group.coordinator) }, `node ${group.coordinator}`)],
      ], "facts-row")),
      card("Lag by partition", { extra: "card-table" }, lagTable(name, group, page)),
      card("Members", { extra: "card-table" }, memberTable(group)),
    ];
  }

  function act(next) {
    if (next.do === "reset" && last.do !== "reset") reset(name, page);
    last = next;
  }

  function erase() {
    confirm({
      action: "delete-group",
      title: `Delete group ${name}`,
      intro: "What the group has committed is forgotten: members who come back begin where their settings say.",
      typed: name,
      label: "Delete the group",
      tone: "danger",
      run: () => remove(at("groups", name)),
      done: () => {
        say(`Group ${name} is deleted.`);
        go("groups");
      },
    });
  }

  return { title: name, node, refresh: page.refresh, close: page.close, update: (next) => (act(next), page.data && page.show()) };
}

function lagTable(name, group, page) {
  const most = Math.max(1, ...group.partitions.map((each) => each.lag ?? 0));
  const sort = { value: () => parse().params.sort, set: (sorted) => (setParams({ sort: sorted }), page.show()) };
  const names = Object.fromEntries(group.member_list.map((each) => [each.id, each.client_id || each.id]));
  const columns = [
    { label: "Topic", grow: true, sort: (row) => row.topic, cell: (row) => h("a", { href: link("topics", row.topic), "data-focus": `t-${row.topic}-${row.partition}` }, row.topic) },
    { label: "Partition", align: "end", sort: (row) => row.partition, cell: (row) => number(row.partition) },
    { label: "Committed", align: "end", cell: (row) => number(row.committed) },
    { label: "End", align: "end", cell: (row) => number(row.end_offset) },
    { label: "Lag", align: "end", sort: (row) => row.lag, cell: (row) => h("span", { class: "with-meter" }, number(row.lag), meter((row.lag ?? 0) / most, row.lag ? "warning" : "")) },
    { label: "Behind by", align: "end", sort: (row) => row.lag_seconds, cell: (row) => format.duration(row.lag_seconds) },
    { label: "Member", cell: (row) => h("span", { class: "clip", title: row.member ?? "" }, row.member ? (names[row.member] ?? row.member) : "—") },
    { label: "", cell: (row) => button("forget-offset?", "Forget", () => forgetOffset(name, row, page), { small: true, tone: "quiet", focus: `forget-${row.topic}-${row.partition}`, title: `Forget what was committed for ${row.topic}, partition ${row.partition}` }) },
  ];
  return table(`Lag of ${name} by partition`, columns, group.partitions, { sort, key: (row) => `${row.topic}-${row.partition}`, empty: "It has committed nothing yet." }).node;
}

function memberTable(group) {
  const columns = [
    { label: "Client", cell: (row) => row.client_id || "—" },
    { label: "Host", cell: (row) => row.host },
    { label: "Partitions", grow: true, cell: (row) => assigned(row.partitions) },
    { label: "Member id", cell: (row) => h("span", { class: "mono small wrap" }, row.id, row.instance_id && ` (${row.instance_id})`) },
  ];
  return table(`Members of ${group.group}`, columns, group.member_list, { key: (row) => row.id, empty: "Nobody is in it at the moment." }).node;
}

function assigned(partitions) {
  const topics = Map.groupBy ? Map.groupBy(partitions, (each) => each.topic) : grouped(partitions);
  return [...topics].map(([topic, some]) => h("div", {}, `${topic}: ${some.map((each) => each.partition).sort((a, b) => a - b).join(", ")}`));
}

function grouped(partitions) {
  const topics = new Map();
  for (const each of partitions) topics.set(each.topic, [...(topics.get(each.topic) ?? []), each]);
  return topics;
}

function forgetOffset(name, row, page) {
  confirm({
    action: "forget-offset",
    title: `Forget the offset of ${row.topic}, partition ${row.partition}`,
    intro: `Group ${name} has committed ${row.committed} there. It is forgotten; nothing else changes.`,
    label: "Forget",
    tone: "danger",
    run: () => remove(at("groups", name, "offsets"), { topic: row.topic, partition: row.partition }),
    success: "Forgotten.",
    done: page.refresh,
  });
}

function reset(name, page) {
  const topics = [...new Set((page.data?.partitions ?? []).map((each) => each.topic))];
  const value = field("value", "Offset, or how many", { type: "number", value: "0" });
  const time = field("time", "Time", { type: "datetime-local", value: format.localInput(Date.now() - 3_600_000) });
  time.input.step = "1";
  const to = choice("kind", "Go to", [["start", "the start"], ["end", "the end: skip everything"], ["time", "a time"], ["offset", "an offset"], ["back", "back by so many"], ["on", "on by so many"]], { onchange: show });
  function show() {
    value.node.hidden = !["offset", "back", "on"].includes(to.read());
    time.node.hidden = to.read() !== "time";
  }
  show();
  const body = (form) => ({
    topics: form.topic ? [form.topic] : null,
    to: { start: "start", end: "end", time: `@${new Date(form.time).getTime()}`, offset: String(form.value ?? 0), back: `-${form.value ?? 0}`, on: `+${form.value ?? 0}` }[form.kind],
  });
  const moves = ({ items }) => table("What would move", [
    { label: "Topic", grow: true, cell: (row) => row.topic },
    { label: "Partition", align: "end", cell: (row) => number(row.partition) },
    { label: "Now", align: "end", cell: (row) => number(row.before) },
    { label: "Then", align: "end", cell: (row) => h("strong", {}, number(row.after)) },
    { label: "Moves by", align: "end", cell: (row) => (row.before === null ? "—" : `${row.after - row.before > 0 ? "+" : ""}${format.count(row.after - row.before)}`) },
  ], items, { empty: "Nothing would move.", showCaption: true }).node;
  formDialog({
    action: "reset-offsets",
    title: `Reset offsets of ${name}`,
    intro: "Where the group goes on reading. Its members must have stopped.",
    wide: true,
    fields: [choice("topic", "Topic", [["", "all that it reads"], ...topics]), to, value, time],
    label: "Reset offsets",
    preview: async (form) => ({ plan: moves(await post(at("groups", name, "offsets"), { ...body(form), dry_run: true })) }),
    submit: (form) => post(at("groups", name, "offsets"), body(form)),
    success: `Offsets of ${name} are reset.`,
    done: page.refresh,
    onclose: () => parse().params.do && setParams({ do: "" }),
  });
}
