// The message browser: browse by offset or time, search with limits, or tail. messages-list.js shows the results.

import { address, at, get } from "../api.js";
import { link, parse, setParams } from "../router.js";
import { fill, h } from "../ui/dom.js";
import { choice, field } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { button, card, problem, tabs, waiting } from "../ui/parts.js";
import { messageList } from "./messages-list.js";

const MODES = [["browse", "Browse"], ["search", "Search"], ["tail", "Live tail"]];
const KEPT = 200;
const STATE = ["mode", "partition", "from", "limit", "isolation", "text", "max", "seconds", "until"];

export function messagesCard(name, params, head) {
  let state = params;
  let running = null;
  let drawn = 0;
  const top = h("div", {});
  const status = h("div", { class: "messages-status", role: "status" });
  const list = messageList(name);
  const foot = h("div", { class: "pager" });
  const node = card(null, { extra: "card-table" }, top, status, list.node, foot);
  const mode = () => state.mode ?? "browse";
  const say = (...parts) => fill(status, ...parts);
  begin();

  function begin() {
    stop();
    fill(foot);
    drawTop();
    if (mode() === "browse") browse();
    else if (mode() === "search") state.text ? search() : (list.show([]), say("Enter a text to find in keys, values and headers."));
    else tail();
  }

  function drawTop() {
    drawn = head.data?.partitions?.length ?? 0;
    fill(top, tabs(MODES.map(([id, label]) => ({ id, label, href: link("topics", name, { ...parse().params, tab: "messages", mode: id === "browse" ? "" : id, open: "" }) })), mode(), "Message views"), controls());
  }

  function stop() {
    running?.stop();
    running = null;
  }

  // Controls: the form writes its values to the URL, and the URL determines what is shown.

  function controls() {
    const partitions = head.data?.partitions?.length ?? 0;
    const known = Math.max(partitions, Number(state.partition ?? -1) + 1);
    const partition = choice("partition", "Partition", [["", "all"], ...Array.from({ length: known }, (_, index) => [index, index])], { value: state.partition ?? "" });
    const isolation = choice("isolation", "Isolation level", [["", "read committed"], ["uncommitted", "read uncommitted"]], { value: state.isolation ?? "" });
    const start = startFields(mode() === "search" ? (state.from ?? "start") : state.from);
    const go = { type: "submit", tone: "primary" };
    const apply = mode() === "search" ? button("search-messages", "Search", null, go) : button("show-messages", "Show", null, go);
    let fields = [];
    if (mode() === "browse") fields = [partition, ...start.fields, choice("limit", "Limit", ["20", "50", "100", "500"], { value: state.limit ?? "50" }), isolation];
    else if (mode() === "search") {
      const text = field("text", "Contains", { value: state.text ?? "", required: true });
      text.input.dataset.search = "";
      fields = [text, partition, ...start.fields, choice("max", "Scan at most", [["10000", "10,000 records"], ["100000", "100,000 records"], ["1000000", "1,000,000 records"], ["10000000", "10,000,000 records"]], { value: state.max ?? "1000000" }), choice("seconds", "Timeout", [["10", "10 s"], ["30", "30 s"], ["120", "2 min"], ["300", "5 min"]], { value: state.seconds ?? "30" }), isolation];
    } else fields = [partition, isolation];
    const submit = (event) => {
      event.preventDefault();
      const values = Object.fromEntries(fields.filter((each) => each.name && !each.name.startsWith("start")).map((each) => [each.name, each.read()]));
      if (mode() !== "tail") values.from = start.read();
      const same = STATE.every((key) => (values[key] ?? state[key] ?? "") === (state[key] ?? ""));
      if (same) begin();
      else setParams({ ...values, open: "" }, { replace: false });
    };
    return h("form", { class: "controls", onsubmit: submit, "aria-label": "Message filter" }, fields.map((each) => each.node), h("div", { class: "controls-go" }, mode() === "tail" ? [button("apply-tail", "Apply", null, { type: "submit" }), pauser()] : apply));
  }

  // Browse

  function limit() {
    return Number(state.limit ?? 50);
  }

  function from() {
    return state.from || `-${limit()}`;
  }

  async function browse() {
    const cancel = new AbortController();
    running = { stop: () => cancel.abort() };
    say(waiting("Reading…"));
    try {
      const answer = await get(at("topics", name, "messages"), { partition: state.partition, from: from(), limit: limit(), isolation: state.isolation }, cancel.signal);
      const newestFirst = from().startsWith("-");
      const items = newestFirst ? [...answer.items].reverse() : answer.items;
      list.show(items);
      say(items.length ? `${format.plural(items.length, "message")}, ${newestFirst ? "newest first" : "oldest first"}.` : "No messages found.");
      fill(foot, more(items, answer));
    } catch (error) {
      if (!cancel.signal.aborted) say(problem(error));
    }
  }

  function more(items, { next }) {
    const offsets = items.map((item) => item.offset);
    const first = state.partition && items.length ? Math.min(...offsets) : null;
    const move = (to) => setParams({ from: to, open: "" }, { replace: false });
    return [
      first ? button("older", "Older", () => move(String(Math.max(0, first - limit()))), { glyph: "back", small: true, focus: "older" }) : null,
      next ? button("newer", "Newer", () => move(next), { small: true, focus: "newer" }) : null,
      button("newest", "Newest", () => (state.from ? move("") : begin()), { small: true, glyph: "refresh", focus: "newest" }),
    ];
  }

  // Search

  function search() {
    const found = [];
    list.show([]);
    const query = { text: state.text, partition: state.partition, from: state.from ?? "start", max_messages: state.max ?? 1_000_000, max_seconds: state.seconds ?? 30, isolation: state.isolation };
    const source = new EventSource(address(at("topics", name, "search"), query));
    let last = { scanned: 0, bytes: 0, matches: 0 };
    const cancel = button("cancel-search", "Cancel", () => end("cancelled"), { small: true, tone: "danger", focus: "cancel-search" });
    const line = h("span", {});
    const show = (text) => (line.textContent = text);
    say(h("span", { class: "spinner", "aria-hidden": "true" }), line, cancel);
    running = { stop: () => source.close() };
    const progress = () => show(`Scanned ${format.plural(last.scanned, "record")}${last.bytes ? `, ${format.bytes(last.bytes)}` : ""}: ${format.plural(found.length, "match", "matches")}.`);
    progress();
    source.addEventListener("match", (event) => {
      found.push(JSON.parse(event.data));
      list.add([found.at(-1)], { below: true });
      progress();
    });
    source.addEventListener("progress", (event) => {
      last = { ...last, ...JSON.parse(event.data) };
      progress();
    });
    source.addEventListener("end", (event) => {
      const answer = JSON.parse(event.data);
      last = { ...last, ...answer };
      end(answer.why, answer.error);
    });
    source.addEventListener("error", () => end("error", "The search was interrupted: the node is unreachable, or you lack the Read permission on this topic."));

    function end(why, error) {
      source.close();
      progress();
      const told = { end: "Search complete.", messages: "The record limit was reached: increase it to continue.", matches: "The maximum number of matches was reached.", seconds: "The timeout was reached: increase it to continue.", cancelled: "Cancelled." }[why];
      say(line, " ", h("span", {}, why === "error" ? problem(error ?? "The search was interrupted.") : (told ?? "")));
    }
  }

  // Live tail

  function pauser() {
    const toggle = button("pause-tail", "Pause", () => running?.toggle?.(), { glyph: "pause", focus: "pause" });
    toggle.dataset.role = "pause";
    return [toggle, button("clear-tail", "Clear", () => list.show([]), { tone: "quiet" })];
  }

  function tail() {
    const source = new EventSource(address(at("topics", name, "tail"), { partition: state.partition, isolation: state.isolation }));
    let paused = false;
    let heard = 0;
    let skipped = 0;
    let kept = [];
    let fresh = [];
    let frame = 0;
    list.show([]);
    const word = () => {
      const missed = skipped ? ` ${format.count(skipped)} were skipped because they arrived too fast.` : "";
      say(h("span", { class: `dot ${paused ? "dot-waiting" : "dot-up"}`, "aria-hidden": "true" }), paused ? `Paused. ${format.plural(kept.length, "message")} arrived since.` : `Live: ${format.plural(heard, "message")}.`, missed);
    };
    const draw = () => {
      frame = 0;
      if (!paused && fresh.length) {
        list.add(fresh, { keep: KEPT });
        fresh = [];
      }
      word();
    };
    const later = () => (frame ||= setTimeout(draw, 150));
    source.addEventListener("message", (event) => {
      heard += 1;
      const message = JSON.parse(event.data);
      if (paused) kept = [...kept.slice(-KEPT + 1), message];
      else fresh = [...fresh.slice(-KEPT + 1), message];
      later();
    });
    source.addEventListener("skipped", (event) => {
      skipped += JSON.parse(event.data).count ?? 0;
      later();
    });
    source.addEventListener("open", word);
    source.addEventListener("error", () => say(problem(source.readyState === EventSource.CLOSED ? "The tail was rejected: you lack the Read permission on this topic, or it was deleted." : "The stream was interrupted. Reconnecting…")));
    running = {
      stop: () => {
        clearTimeout(frame);
        source.close();
      },
      toggle: () => {
        paused = !paused;
        fresh = kept;
        kept = [];
        const toggle = top.querySelector("[data-role=pause]");
        toggle.lastChild.textContent = paused ? "Resume" : "Pause";
        draw();
      },
    };
    say(h("span", { class: "dot dot-waiting", "aria-hidden": "true" }), "Connecting…"); // messages produced before the stream is open are not shown
  }

  return {
    node,
    refresh: () => mode() === "browse" && !state.open && begin(),
    close: stop,
    update: (topic) => {
      // The number of partitions is known now. Do not redraw the form while the user is editing it.
      if (topic.partitions.length !== drawn && !top.contains(document.activeElement)) drawTop();
    },
    params: (next) => {
      const changed = STATE.some((key) => (state[key] ?? "") !== (next[key] ?? ""));
      state = next;
      list.open(next.open);
      if (changed) begin();
    },
  };
}

/** The start position: a choice, with a value for an offset or time. */
function startFields(from) {
  const kind = !from || from.startsWith("-") ? "newest" : from === "start" ? "oldest" : from.startsWith("@") ? "time" : /^\d+$/.test(from) ? "offset" : "page";
  const offset = field("start-offset", "Offset", { type: "number", min: 0, value: kind === "offset" ? from : "0" });
  const shownTime = kind === "time" ? (Number(from.slice(1)) || Date.parse(from.slice(1))) : Date.now() - 3_600_000;
  const time = field("start-time", "Time", { type: "datetime-local", value: format.localInput(shownTime) });
  time.input.step = "1";
  const options = [["newest", "newest messages"], ["oldest", "oldest messages"], ["offset", "offset"], ["time", "timestamp"]];
  if (kind === "page") options.push(["page", "end of the previous page"]);
  const start = choice("start", "Start at", options, { value: kind, onchange: show });
  function show() {
    offset.node.hidden = start.read() !== "offset";
    time.node.hidden = start.read() !== "time";
  }
  show();
  const read = () => ({ newest: "", oldest: "start", offset: offset.read() === null ? "start" : String(offset.read()), time: `@${new Date(time.read()).getTime()}`, page: from })[start.read()];
  return { fields: [start, offset, time], read };
}
