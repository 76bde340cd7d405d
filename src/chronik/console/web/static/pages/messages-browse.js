// Pages of messages, older or newer ones. A page with filters may need several requests, since each has a time limit.

import { at, get } from "../api.js";
import { setParams } from "../router.js";
import { fill, h } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { button, problem } from "../ui/parts.js";
import { filtersOf, isFiltered, sortOf } from "./messages-query.js";

const OPPOSITE = { newest: "oldest", oldest: "newest" };
const SECONDS_PER_REQUEST = 2;

/** Reads the page of a state. Returns an object with `stop`. */
export function browse(name, state, { list, say, foot, refresh }) {
  const limit = Number(state.limit ?? 50);
  const sort = sortOf(state);
  const order = state.go === "back" ? OPPOSITE[sort] : sort;
  const below = order === sort;
  const line = h("span", {});
  let cancel = new AbortController();
  let count = 0;
  let scanned = 0;
  let bytes = 0;
  let first = null;
  let last = null;
  list.show([]);
  fill(foot);
  read(state.from || { newest: "end", oldest: "start" }[order]);
  return { stop: () => cancel.abort() };

  async function read(from) {
    const mine = (cancel = new AbortController());
    say(
      h("span", { class: "spinner", "aria-hidden": "true" }),
      line,
      isFiltered(state) && button("stop-reading", "Stop", () => stop(from), { small: true, focus: "stop-reading" }),
    );
    line.textContent = progress();
    let position = from;
    try {
      while (position) {
        const page = await get(
          at("topics", name, "messages"),
          { ...filtersOf(state), from: position, until: below ? state.until : "", order, limit: limit - count, max_seconds: SECONDS_PER_REQUEST },
          mine.signal,
        );
        first ??= page;
        last = page;
        scanned += page.scanned;
        bytes += page.scanned_bytes;
        count += page.items.length;
        if (page.items.length) list.add(page.items, { below });
        position = page.is_complete ? null : page.next;
        line.textContent = progress();
      }
      finish();
    } catch (error) {
      if (mine.signal.aborted) return;
      say(problem(error));
      fill(foot, pager());
    }
  }

  function stop(from) {
    cancel.abort();
    const on = last ? last.next : from;
    say(
      h("span", {}, `Stopped. ${progress()}`),
      button("continue-reading", "Continue", () => read(on), { small: true, focus: "continue-reading" }),
    );
    fill(foot, pager());
  }

  function progress() {
    return isFiltered(state) ? `${format.plural(count, "match", "matches")} in ${format.plural(scanned, "message")} (${format.bytes(bytes)})` : "Reading…";
  }

  function finish() {
    const found = isFiltered(state) ? `${progress()}, ` : `${format.plural(count, "message")}, `;
    const asCondition = !count && !state.where && /^\s*(not\s+)?\$[.[]/.test(state.text ?? "") && useAsCondition();
    say(count ? `${found}${sort} first.` : isFiltered(state) ? `No messages match: ${progress()}.` : "No messages found.", asCondition);
    fill(foot, pager());
  }

  /** A JSON path in the field of texts was probably meant as a condition. */
  function useAsCondition() {
    const move = () => setParams({ text: "", where: state.text.trim(), open: "" }, { replace: false });
    return button("use-as-condition", "Search JSON fields instead", move, { small: true, focus: "use-as-condition" });
  }

  /** The cursors at both ends of the list, as buttons. */
  function pager() {
    const [head, tail] = below ? [first?.previous, last?.next] : [last?.next, first?.previous];
    const move = (from, go) => setParams({ from, go, sort, open: "" }, { replace: false });
    const older = (from, go) => from && button("older", "Older", () => move(from, go), { small: true, focus: "older" });
    const newer = (from, go) => from && button("newer", "Newer", () => move(from, go), { small: true, focus: "newer" });
    const newest = () =>
      state.from || state.go || state.sort ? setParams({ from: "", go: "", sort: "", until: "", open: "" }, { replace: false }) : refresh();
    return [
      ...(sort === "newest" ? [newer(head, "back"), older(tail, "")] : [older(head, "back"), newer(tail, "")]),
      button("newest", "Newest", newest, { small: true, glyph: "refresh", focus: "newest" }),
    ];
  }
}
