// Consumer groups: their members, offsets and lag, and dialogs to reset or delete offsets.

import { at, get, post, remove } from "../api.js";
import { mayOn, mayOnAll, mayOnCluster } from "../permissions.js";
import { go, link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { h, redraw } from "../ui/dom.js";
import { choice, field, searchField, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { historyCharts } from "../ui/history.js";
import { ago, badge, button, card, facts, hiddenNotice, hiddenValue, meter, notice, number, pageHead } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { selection } from "../ui/selection.js";
import { pager, table } from "../ui/table.js";
import { say } from "../ui/toast.js";

const PAGE = 50;
const SORTS = { Group: "group", State: "state", Lag: "lag" };
const TONES = { stable: "ok", empty: "plain", dead: "error" };

export const stateBadge = (state) => badge(String(state).toLowerCase().replaceAll("_", " "), TONES[String(state).toLowerCase()] ?? "warning");

/** Offsets can be reset only in these states, in which a group has no members. */
const isActive = (group) => !["empty", "dead"].includes(group.state.toLowerCase());

const mayReset = (group) => mayOn(group, "read") && group.readable_topics.length > 0;

export function groupsPage(params) {
  let state = params;
  const trail = () => (state.trail ? state.trail.split("\n") : []);
  const rows = resource(
    (signal) =>
      get(
        "/groups",
        {
          search: state.search,
          limit: PAGE,
          after: trail().at(-1),
          ...(SORTS[(state.sort ?? "").replace(/^-/, "")] ? { sort: SORTS[state.sort.replace(/^-/, "")], descending: state.sort.startsWith("-") } : {}),
        },
        signal,
      ),
    draw,
    { everyMs: 5_000 },
  );
  const chosen = selection("group", { key: (row) => row.group, changed: () => rows.show() });
  const erase = () =>
    chosen.confirmDeletion({
      action: "delete-groups",
      intro: "All committed offsets of the groups are deleted.",
      erase: (name) => remove(at("groups", name)),
      done: rows.refresh,
    });
  const actions = (selected) =>
    selected.every((row) => mayOn(row, "delete") && !isActive(row)) &&
    button("delete-groups?", "Delete", erase, { small: true, tone: "danger", focus: "bulk-delete" });
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Search groups", state.search, (search) => setParams({ search, trail: "" })),
  );
  const node = h("div", {}, pageHead("Groups", { lead: "Consumer groups, their state and their lag." }), card(null, { extra: "card-table" }, bar, rows.node));

  function draw({ items, next, total }) {
    const most = Math.max(1, ...items.map((each) => each.lag ?? 0));
    const columns = [
      chosen.column,
      {
        label: "Group",
        grow: true,
        sort: (row) => row.group,
        cell: (row) => h("a", { class: "name", href: link("groups", row.group), "data-focus": `group-${row.group}` }, row.group),
      },
      { label: "State", sort: (row) => row.state, cell: (row) => stateBadge(row.state) },
      { label: "Members", align: "end", cell: (row) => number(row.members) },
      { label: "Topics", align: "end", cell: (row) => number(row.topics) },
      {
        label: "Lag",
        align: "end",
        sort: (row) => row.lag,
        cell: (row) => h("span", { class: "with-meter" }, lagOf(row, format.count(row.lag)), meter((row.lag ?? 0) / most, row.lag ? "warning" : "")),
      },
      { label: "Lagging since", cell: (row) => (row.lagging_since_ms === null ? "—" : ago(row.lagging_since_ms)) },
      { label: "Coordinator", cell: (row) => (row.coordinator === null ? "—" : `node ${row.coordinator}`) },
    ];
    const sort = { remote: true, value: () => state.sort, set: (sorted) => setParams({ sort: sorted, trail: "" }) };
    const all = mayOnAll("describe", "group") || mayOnCluster("describe");
    const empty = state.search
      ? `No ${all ? "" : "visible "}group name contains “${state.search}”.`
      : all
        ? "There are no consumer groups yet."
        : "No groups are visible to you.";
    return [
      !all && hiddenNotice("Describe on a group to see it in this list"),
      chosen.bar(items, actions),
      table("Groups", columns, items, { key: (row) => row.group, sort, empty }).node,
      pager({ shown: items.length, total, next, trail: trail(), set: (tokens) => setParams({ trail: tokens.join("\n") }, { replace: false }) }),
    ];
  }

  return {
    title: "Groups",
    node,
    refresh: rows.refresh,
    close: rows.close,
    update: (next) => {
      const changed = ["search", "trail", "sort"].some((key) => state[key] !== next[key]);
      state = next;
      if (changed) rows.refresh();
    },
  };
}

export function groupPage(name, params) {
  const actions = h("div", { class: "actions" });
  const title = pageHead(name, { back: { label: "Groups", href: link("groups") } });
  title.append(actions);
  const rest = h("div", {});
  const history = historyCharts([
    {
      title: "Lag over time",
      note: "All topics, and those with the largest lag",
      unit: "records",
      metrics: ["group_lag", "group_topic_lag"],
      query: { group: name },
      name: (series) => series.topic,
    },
  ]);
  const page = resource((signal) => get(at("groups", name), {}, signal), draw, {
    everyMs: 3_000,
    dependents: [actions, history.node, rest],
    permission: `Describe on group ${name}`,
  });
  const node = h("div", {}, title, page.node, history.node, rest);
  let last = {};

  function draw(group) {
    const active = isActive(group);
    redraw(
      actions,
      mayReset(group) &&
        button("reset-offsets?", "Reset offsets", () => setParams({ do: "reset" }, { replace: false }), { tone: "primary", disabled: active, focus: "reset" }),
      mayOn(group, "delete") && button("delete-group?", "Delete", erase, { tone: "danger", glyph: "trash", disabled: active, focus: "delete" }),
    );
    act(parse().params);
    const behind = Math.max(0, ...group.partitions.map((each) => each.lag_seconds ?? 0));
    redraw(
      rest,
      card(
        "Lag by partition",
        { extra: "card-table" },
        !mayOnAll("describe", "topic") && hiddenNotice("Describe on a topic to see the offsets of the group on it"),
        lagTable(name, group, page),
      ),
      card("Members", { extra: "card-table" }, memberTable(group)),
    );
    return [
      active &&
        notice(`The group has ${format.plural(group.member_list.length, "member")}: stop its consumers before you reset offsets or delete the group.`, "info"),
      card(
        null,
        {},
        facts(
          [
            ["State", stateBadge(group.state)],
            ["Members", number(group.member_list.length)],
            ["Lag", lagOf(group, format.plural(group.lag, "record"))],
            ["Behind since", behind ? `${format.second(Date.now() - behind * 1000)} (${format.duration(behind)})` : "—"],
            ["Protocol", format.known(group.protocol || group.protocol_type)],
            ["Coordinator", group.coordinator === null ? "—" : h("a", { href: link("nodes", group.coordinator) }, `node ${group.coordinator}`)],
          ],
          "facts-row",
        ),
      ),
    ];
  }

  function act(next) {
    if (!page.data) return;
    if (next.do === "reset" && last.do !== "reset" && !isActive(page.data) && mayReset(page.data)) reset(name, page);
    last = next;
  }

  function erase() {
    confirm({
      action: "delete-group",
      title: `Delete group ${name}`,
      intro: "All committed offsets of the group are deleted. Consumers that join again start according to auto.offset.reset.",
      typed: name,
      label: "Delete group",
      tone: "danger",
      run: () => remove(at("groups", name)),
      done: () => {
        say(`Group ${name} was deleted.`);
        go("groups");
      },
    });
  }

  return {
    title: name,
    node,
    refresh: () => (page.refresh(), history.refresh()),
    close: () => (page.close(), history.close()),
    update: (next) => (act(next), history.params(), page.data && page.show()),
  };
}

/** The total lag; it excludes topics that the principal may not describe. */
const lagOf = (group, text) =>
  group.lag === null && !mayOnAll("describe", "topic") ? hiddenValue("Describe on the topics of the group") : h("span", { class: "number" }, text);

function lagTable(name, group, page) {
  const most = Math.max(1, ...group.partitions.map((each) => each.lag ?? 0));
  const sort = { value: () => parse().params.sort, set: (sorted) => (setParams({ sort: sorted }), page.show()) };
  const consumed = new Set(group.partitions.filter((each) => each.member).map((each) => each.topic)); // offsets of subscribed topics cannot be deleted
  const names = Object.fromEntries(group.member_list.map((each) => [each.id, each.client_id || each.id]));
  const columns = [
    {
      label: "Topic",
      grow: true,
      sort: (row) => row.topic,
      cell: (row) => h("a", { href: link("topics", row.topic), "data-focus": `t-${row.topic}-${row.partition}` }, row.topic),
    },
    { label: "Partition", align: "end", sort: (row) => row.partition, cell: (row) => number(row.partition) },
    { label: "Committed offset", align: "end", cell: (row) => (row.committed === null ? h("span", { class: "muted" }, "none") : number(row.committed)) },
    { label: "End offset", align: "end", cell: (row) => number(row.end_offset) },
    {
      label: "Lag",
      align: "end",
      sort: (row) => row.lag,
      cell: (row) => h("span", { class: "with-meter" }, number(row.lag), meter((row.lag ?? 0) / most, row.lag ? "warning" : "")),
    },
    { label: "Lag (time)", align: "end", sort: (row) => row.lag_seconds, cell: (row) => format.duration(row.lag_seconds) },
    { label: "Member", cell: (row) => h("span", { class: "clip", title: row.member ?? "" }, row.member ? (names[row.member] ?? row.member) : "—") },
    {
      label: "",
      cell: (row) =>
        !consumed.has(row.topic) &&
        row.committed !== null &&
        mayOn(group, "delete") &&
        group.readable_topics.includes(row.topic) &&
        button("forget-offset?", "Delete offset", () => forgetOffset(name, row, page), {
          small: true,
          tone: "quiet",
          focus: `forget-${row.topic}-${row.partition}`,
          title: `Delete the committed offset of ${row.topic}, partition ${row.partition}`,
        }),
    },
  ];
  return table(`Lag of ${name} by partition`, columns, group.partitions, {
    sort,
    key: (row) => `${row.topic}-${row.partition}`,
    empty: mayOnAll("describe", "topic") ? "The group has no committed offsets." : "No committed offsets are visible to you.",
  }).node;
}

function memberTable(group) {
  const read = (member) => group.partitions.filter((each) => each.member === member.id);
  const lagOfMember = (member) => read(member).reduce((sum, each) => sum + (each.lag ?? 0), 0);
  const secondsBehind = (member) => Math.max(0, ...read(member).map((each) => each.lag_seconds ?? 0));
  const columns = [
    { label: "Client id", cell: (row) => row.client_id || "—" },
    { label: "Host", cell: (row) => row.host },
    { label: "Partitions", grow: true, cell: (row) => assigned(row.partitions) },
    { label: "Lag", align: "end", cell: (row) => number(lagOfMember(row)) },
    { label: "Behind for", align: "end", cell: (row) => format.duration(secondsBehind(row)) },
    { label: "Member id", cell: (row) => h("span", { class: "mono small wrap" }, row.id, row.instance_id && ` (${row.instance_id})`) },
  ];
  return table(`Members of ${group.group}`, columns, group.member_list, { key: (row) => row.id, empty: "The group has no members." }).node;
}

function assigned(partitions) {
  const topics = Map.groupBy ? Map.groupBy(partitions, (each) => each.topic) : grouped(partitions);
  return [...topics].map(([topic, some]) =>
    h(
      "div",
      {},
      `${topic}: ${some
        .map((each) => each.partition)
        .sort((a, b) => a - b)
        .join(", ")}`,
    ),
  );
}

function grouped(partitions) {
  const topics = new Map();
  for (const each of partitions) topics.set(each.topic, [...(topics.get(each.topic) ?? []), each]);
  return topics;
}

function forgetOffset(name, row, page) {
  confirm({
    action: "forget-offset",
    title: `Delete offset of ${row.topic}, partition ${row.partition}`,
    intro: `The committed offset ${row.committed} of group ${name} is deleted.`,
    label: "Delete offset",
    tone: "danger",
    run: () => remove(at("groups", name, "offsets"), { topic: row.topic, partition: row.partition }),
    success: "The offset was deleted.",
    done: page.refresh,
  });
}

const fullHour = (ms) => format.zonedInput(ms).replace(/:\d\d:\d\d$/, ":00:00");

function reset(name, page) {
  const topics = page.data.readable_topics;
  const isAll = page.data.partitions.every((each) => topics.includes(each.topic));
  const value = field("value", "Offset or number of records", { type: "number", min: 0, value: "0" });
  const time = field("time", `Time (${format.zone.label()})`, { type: "datetime-local", value: fullHour(Date.now() - 3_600_000) });
  time.input.step = "1";
  const duration = side(
    field("amount", "Duration", { type: "number", min: 1, value: "1" }),
    choice(
      "unit",
      "Unit",
      [
        ["M", "minutes"],
        ["H", "hours"],
        ["D", "days"],
      ],
      { value: "H" },
    ),
  );
  const to = choice(
    "kind",
    "Reset to",
    [
      ["start", "earliest offset"],
      ["end", "latest offset"],
      ["time", "date and time"],
      ["duration", "duration before now"],
      ["offset", "specific offset"],
      ["back", "shift backward by"],
      ["on", "shift forward by"],
    ],
    { onchange: show },
  );
  function show() {
    value.node.hidden = !["offset", "back", "on"].includes(to.read());
    time.node.hidden = to.read() !== "time";
    duration.node.hidden = to.read() !== "duration";
  }
  show();
  const body = (form) => ({
    topics: form.topic ? [form.topic] : null,
    to: {
      start: "start",
      end: "end",
      time: `@${format.parseZoned(form.time)}`,
      duration: `P${form.unit === "D" ? "" : "T"}${form.amount ?? 0}${form.unit}`,
      offset: String(form.value ?? 0),
      back: `-${form.value ?? 0}`,
      on: `+${form.value ?? 0}`,
    }[form.kind],
  });
  const target = (form) => (form.kind === "time" ? `Reset to ${format.second(format.parseZoned(form.time))}. ` : "");
  const moves = ({ items }, form) => h("div", {}, notice(target(form) + consequence(items)), movesTable(items));
  const movesTable = (items) =>
    table(
      "New offsets",
      [
        { label: "Topic", grow: true, cell: (row) => row.topic },
        { label: "Partition", align: "end", cell: (row) => number(row.partition) },
        { label: "Current offset", align: "end", cell: (row) => number(row.before) },
        { label: "New offset", align: "end", cell: (row) => h("strong", {}, number(row.after)) },
        {
          label: "Change",
          align: "end",
          cell: (row) => (row.before === null ? "—" : `${row.after - row.before > 0 ? "+" : ""}${format.count(row.after - row.before)}`),
        },
      ],
      items,
      { empty: "No offsets change.", showCaption: true },
    ).node;
  const consequence = (items) => {
    const changes = items.filter((each) => each.before !== null).map((each) => each.after - each.before);
    const sum = (values) => values.reduce((total, each) => total + each, 0);
    const again = sum(changes.filter((each) => each < 0).map((each) => -each));
    const skipped = sum(changes.filter((each) => each > 0));
    return `${format.plural(again, "record")} will be consumed again, ${format.count(skipped)} will be skipped.`;
  };
  formDialog({
    action: "reset-offsets",
    title: `Reset offsets of ${name}`,
    intro: "Sets the committed offsets from which the group continues. The group must have no members.",
    wide: true,
    fields: [choice("topic", "Topic", [...(isAll ? [["", "all topics of the group"]] : []), ...topics]), to, value, time, duration],
    label: "Reset offsets",
    preview: async (form) => ({ plan: moves(await post(at("groups", name, "offsets"), { ...body(form), dry_run: true }), form) }),
    submit: (form) => post(at("groups", name, "offsets"), body(form)),
    success: `The offsets of ${name} were reset.`,
    done: page.refresh,
    onclose: () => parse().params.do && setParams({ do: "" }),
  });
}
