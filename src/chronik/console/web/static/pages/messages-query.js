// The query of the message browser: its form, its parameters in the URL, and saved queries.

import { link, parse, setParams } from "../router.js";
import { formDialog } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { choice, field } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { button, copyButton } from "../ui/parts.js";
import { say } from "../ui/toast.js";

/** The parameters of the URL that determine which messages are shown. */
export const STATE = ["mode", "partition", "sort", "from", "until", "go", "limit", "text", "key", "header", "where", "isolation"];
const FILTERS = ["text", "key", "header", "where"];
const STORED = "chronik.queries";
const SAVED_MAX = 100;

/** The parameters of the admin API that filter messages. */
export const filtersOf = (state) => ({
  partition: state.partition,
  text: state.text,
  key: state.key,
  header: state.header,
  where: state.where,
  isolation: state.isolation,
});

export const isFiltered = (state) => FILTERS.some((name) => state[name]);

/**
 * The order in which a state shows messages: from an offset or a time on, the oldest first.
 *
 * @param {{ sort?: string, from?: string }} state
 */
export const sortOf = ({ sort, from }) => sort || (/^(start|@.*|\d+)$/.test(from ?? "") ? "oldest" : "newest");

/**
 * The form. It writes its values to the URL; `apply` is called if they are unchanged. `extra` are buttons besides the one that
 * submits the form.
 */
export function queryForm({ state, partitions, tail, apply, extra }) {
  const known = Math.max(partitions, Number(state.partition ?? -1) + 1);
  const text = field("text", "Contains", { value: state.text ?? "", placeholder: "Text in key, value or headers" });
  text.input.dataset.search = "";
  const partition = choice("partition", "Partition", [["", "all"], ...Array.from({ length: known }, (_, index) => [index, index])], {
    value: state.partition ?? "",
  });
  const range = tail ? null : rangeFields(state);
  const more = [
    field("key", "Key", { value: state.key ?? "", mono: true, placeholder: "The whole key" }),
    field("header", "Header", { value: state.header ?? "", mono: true, placeholder: "name or name=value" }),
    field("where", "Condition on JSON fields", { value: state.where ?? "", mono: true, placeholder: "$.customer.id = 7 and $.paid = true" }),
    choice(
      "isolation",
      "Isolation level",
      [
        ["", "read committed"],
        ["uncommitted", "read uncommitted"],
      ],
      { value: state.isolation ?? "" },
    ),
  ];
  const limit = choice("limit", "Limit", ["20", "50", "100", "500"], { value: state.limit ?? "50" });
  const fields = [text, partition, ...(tail ? more : [limit, ...more])];
  const opened = more.some((each) => each.read()) || Boolean(range?.until.read());
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(fields.map((each) => [each.name, each.read()]));
    if (values.limit === "50") values.limit = "";
    if (range) Object.assign(values, range.read());
    if (STATE.every((name) => (values[name] ?? state[name] ?? "") === (state[name] ?? ""))) apply();
    else setParams({ ...values, open: "" }, { replace: false });
  };
  const go = tail ? button("apply-tail", "Apply", null, { type: "submit" }) : button("show-messages", "Show", null, { type: "submit", tone: "primary" });
  return h(
    "form",
    { class: "controls", onsubmit: submit, "aria-label": "Message filter" },
    [text, partition, ...(range ? [...range.fields, limit] : [])].map((each) => each.node),
    h("div", { class: "controls-go" }, go, extra),
    h(
      "details",
      { class: "controls-more", open: opened },
      h("summary", {}, tail ? "More filters: JSON fields, key, header" : "More filters: JSON fields, key, header, end"),
      h(
        "div",
        { class: "controls" },
        [...(range ? range.untilFields : []), ...more].map((each) => each.node),
      ),
    ),
  );
}

/** The start and the end of the range: a choice, with a value for an offset or a time. */
function rangeFields(state) {
  const { from = "" } = state;
  const sort = sortOf(state);
  const kind =
    state.go || from.startsWith("~") ? "page" : from.startsWith("@") ? "time" : /^\d+$/.test(from) ? "offset" : sort === "oldest" ? "oldest" : "newest";
  const zone = format.zone.label();
  const timeOf = (position) => Number(position.slice(1)) || Date.parse(position.slice(1));
  const offset = field("start-offset", "Offset", { type: "number", min: 0, value: kind === "offset" ? from : "0" });
  const time = field("start-time", `Time (${zone})`, {
    type: "datetime-local",
    value: format.zonedInput(kind === "time" ? timeOf(from) : Date.now() - 3_600_000),
  });
  const until = field("until-time", `Until (${zone})`, {
    type: "datetime-local",
    value: (state.until ?? "").startsWith("@") ? format.zonedInput(timeOf(state.until)) : "",
  });
  for (const each of [time, until]) each.input.step = "1";
  const options = [
    ["newest", "newest messages"],
    ["oldest", "oldest messages"],
    ["offset", "offset"],
    ["time", "timestamp"],
  ];
  if (kind === "page") options.push(["page", "this page"]);
  const start = choice("start", "Start at", options, { value: kind, onchange: show });
  function show() {
    offset.node.hidden = start.read() !== "offset";
    time.node.hidden = start.read() !== "time";
    until.node.hidden = !["oldest", "offset", "time"].includes(start.read());
  }
  show();
  const untilValue = () => (until.node.hidden || !until.read() ? "" : `@${format.parseZoned(until.read())}`);
  const read = () => {
    const at = start.read();
    if (at === "page") return { from, go: state.go ?? "", sort, until: state.until ?? "" };
    const position = { newest: "", oldest: "", offset: String(offset.read() ?? 0), time: `@${format.parseZoned(time.read())}` }[at];
    return { from: position, go: "", sort: at === "newest" ? "" : "oldest", until: untilValue() };
  };
  return { fields: [start, offset, time], untilFields: [until], until, read };
}

/** The zone in which times are shown. The choice is remembered for all pages. */
export function zoneChoice(changed) {
  const local = format.zone.localLabel();
  return choice(
    "zone",
    "Time zone",
    [
      ["local", `local (${local})`],
      ["utc", "UTC"],
    ],
    { value: format.zone.isUtc() ? "utc" : "local", onchange: (event) => (format.zone.set(event.target.value === "utc"), changed()) },
  ).node;
}

// Saved queries

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(STORED) ?? "[]");
    return Array.isArray(found)
      ? found.filter((each) => typeof each?.name === "string" && typeof each?.topic === "string" && typeof each?.params === "object")
      : [];
  } catch {
    return [];
  }
}

function store(queries) {
  try {
    localStorage.setItem(STORED, JSON.stringify(queries.slice(-SAVED_MAX)));
  } catch {
    say("The browser does not allow the console to store queries.");
  }
}

/** Buttons that save, open and share queries of a topic. Queries are kept in this browser. */
export function savedQueries(topic, state, changed) {
  const params = Object.fromEntries(STATE.filter((name) => state[name]).map((name) => [name, state[name]]));
  const same = (each) => each.topic === topic && STATE.every((name) => (each.params[name] ?? "") === (params[name] ?? ""));
  const mine = stored().filter((each) => each.topic === topic);
  const current = mine.find(same);
  const open = (event) => {
    const chosen = mine[Number(event.target.value)];
    if (chosen)
      setParams(
        {
          ...Object.fromEntries(STATE.map((name) => [name, ""])),
          ...Object.fromEntries(Object.entries(chosen.params).filter(([name]) => STATE.includes(name))),
          open: "",
        },
        { replace: false },
      );
  };
  const choose = choice("saved", "Saved queries", [["", mine.length ? "select…" : "none"], ...mine.map((each, index) => [index, each.name])], {
    value: current ? mine.indexOf(current) : "",
    onchange: open,
  });
  const save = () =>
    formDialog({
      action: "save-query",
      title: "Save this query",
      intro: "The query is saved in this browser. To share it, copy the link of the page.",
      fields: [field("name", "Name", { required: true, value: params.where ?? params.text ?? "" })],
      label: "Save",
      submit: async ({ name }) => store([...stored().filter((each) => each.topic !== topic || each.name !== name), { topic, name, params }]),
      success: ({ name }) => `Query ${name} was saved.`,
      done: changed,
    });
  const forget = () => {
    store(stored().filter((each) => !same(each)));
    changed();
    say("The query was deleted.");
  };
  return [
    choose.node,
    button("save-query?", "Save query", save, { small: true }),
    current && button("delete-query", "Delete query", forget, { small: true, tone: "quiet" }),
    copyButton("copy-link", "Copy link", linkWithoutOpenMessage, say),
  ];
}

/** The address of this page without the message that is open. */
export function linkWithoutOpenMessage() {
  const { parts, params } = parse();
  return new URL(link(...parts, { ...params, open: "" }), location.href).href;
}
