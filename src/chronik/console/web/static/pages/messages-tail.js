// Live tail: new messages as they arrive, with filters and a pause.

import { address, at } from "../api.js";
import { h } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { button, problem } from "../ui/parts.js";
import { filtersOf } from "./messages-query.js";

const KEPT = 200;
const DRAW_MS = 150;

export function tail(name, state, { list, say }) {
  const source = new EventSource(address(at("topics", name, "tail"), filtersOf(state)));
  let paused = false;
  let heard = 0;
  let skipped = 0;
  let arrived = 0;
  let fresh = [];
  let timer = 0;
  list.show([]);

  const word = () => {
    const missed = skipped ? ` ${format.count(skipped)} were skipped because they arrived too fast.` : "";
    say(
      h("span", { class: `dot ${paused ? "dot-waiting" : "dot-up"}`, "aria-hidden": "true" }),
      paused ? `Paused. ${format.plural(arrived, "message")} arrived since.` : `Live: ${format.plural(heard, "message")}.`,
      missed,
    );
  };
  const draw = () => {
    timer = 0;
    if (!paused && fresh.length) {
      list.add(fresh, { keep: KEPT });
      fresh = [];
    }
    word();
  };
  const later = () => (timer ||= setTimeout(draw, DRAW_MS));
  source.addEventListener("message", (event) => {
    heard += 1;
    arrived += 1;
    fresh = [...fresh.slice(-KEPT + 1), JSON.parse(event.data)];
    later();
  });
  source.addEventListener("skipped", (event) => {
    skipped += JSON.parse(event.data).count ?? 0;
    later();
  });
  source.addEventListener("open", word);
  source.addEventListener("error", () =>
    say(
      problem(
        source.readyState === EventSource.CLOSED
          ? "The tail was rejected: a filter is not valid, you lack the Read permission on this topic, or it was deleted."
          : "The stream was interrupted. Reconnecting…",
      ),
    ),
  );
  say(h("span", { class: "dot dot-waiting", "aria-hidden": "true" }), "Connecting…"); // messages produced before the stream is open are not shown

  return {
    stop: () => {
      clearTimeout(timer);
      source.close();
    },
    toggle: () => {
      paused = !paused;
      arrived = 0;
      draw();
      return paused;
    },
  };
}

/** The buttons of the tail. */
export function tailButtons(running, list) {
  const toggle = button(
    "pause-tail",
    "Pause",
    () => {
      const paused = running()?.toggle?.();
      toggle.lastChild.textContent = paused ? "Resume" : "Pause";
      toggle.setAttribute("aria-pressed", String(Boolean(paused)));
    },
    { glyph: "pause", focus: "pause" },
  );
  return [toggle, button("clear-tail", "Clear", () => list.show([]), { tone: "quiet" })];
}
