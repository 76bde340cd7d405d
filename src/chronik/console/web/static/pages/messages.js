// The message browser: pages of messages with filters, or a live tail. The URL holds the query.

import { link, parse } from "../router.js";
import { fill, h } from "../ui/dom.js";
import { card, tabs } from "../ui/parts.js";
import { browse } from "./messages-browse.js";
import { exportButton } from "./messages-export.js";
import { messageList } from "./messages-list.js";
import { queryForm, savedQueries, STATE, zoneChoice } from "./messages-query.js";
import { tail, tailButtons } from "./messages-tail.js";

const MODES = [
  ["browse", "Browse"],
  ["tail", "Live tail"],
];

export function messagesCard(name, params, head) {
  let state = params;
  let running = null;
  let drawn = 0;
  const top = h("div", {});
  const status = h("div", { class: "messages-status", role: "status" });
  const list = messageList(name);
  const foot = h("div", { class: "pager" });
  const node = card(null, { extra: "card-table" }, top, status, list.node, foot);
  const isTail = () => state.mode === "tail";
  const say = (...parts) => fill(status, ...parts);
  begin();

  function begin() {
    stop();
    fill(foot);
    drawTop();
    running = isTail() ? tail(name, state, { list, say }) : browse(name, state, { list, say, foot, refresh: begin });
  }

  function drawTop() {
    const partitions = (drawn = head.data?.partitions?.length ?? 0);
    const links = MODES.map(([id, label]) => ({
      id,
      label,
      href: link("topics", name, { ...parse().params, tab: "messages", mode: id === "browse" ? "" : id, open: "" }),
    }));
    fill(
      top,
      tabs(links, isTail() ? "tail" : "browse", "Message views"),
      queryForm({ state, partitions, tail: isTail(), apply: begin, extra: isTail() && tailButtons(() => running, list) }),
      h(
        "div",
        { class: "controls-foot" },
        h("div", { class: "queries" }, savedQueries(name, state, drawTop), !isTail() && exportButton(name, state)),
        zoneChoice(begin),
      ),
    );
  }

  function stop() {
    running?.stop();
    running = null;
  }

  return {
    node,
    refresh: () => !isTail() && !state.open && begin(),
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
