// Data that a page shows: loaded immediately, reloaded every few seconds while the page is visible, and reloaded after the
// node was unreachable. The previous data stays visible during a reload.

import { live } from "../live.js";
import { fill, h, redraw } from "./dom.js";
import { hiddenNotice, problem, waiting } from "./parts.js";

const EVERY_MS = 5_000;

/**
 * @param {(signal: AbortSignal) => Promise<any>} load
 * @param {(data: any) => Child} draw
 * @param {ResourceOptions} options
 */
export function resource(load, draw, { everyMs = EVERY_MS, text, dependents = [], permission } = {}) {
  const node = h("div", { class: "resource" });
  let cancel = null;
  let data;
  let loaded = false;
  const timer = everyMs ? setInterval(() => document.visibilityState === "visible" && live.state !== "gone" && !cancel && loaded && refresh(), everyMs) : null;

  reveal(false);

  function reveal(shown) {
    for (const each of dependents) each.hidden = !shown;
  }

  async function refresh() {
    cancel?.abort();
    const mine = (cancel = new AbortController());
    if (!loaded && !node.firstChild) fill(node, waiting(text));
    try {
      const answer = await load(mine.signal);
      if (mine.signal.aborted) return;
      data = answer;
      loaded = true;
      show();
    } catch (error) {
      if (mine.signal.aborted) return;
      // Outdated data is better than none, as long as the bar at the top says so.
      if (!loaded || error.status !== 0) {
        loaded = error.status === 0 ? loaded : false;
        reveal(loaded);
        fill(node, permission && error.status === 403 ? hiddenNotice(permission) : problem(error));
      }
    } finally {
      if (cancel === mine) cancel = null;
    }
  }

  const show = () => {
    redraw(node, draw(data));
    reveal(true);
  };
  const close = () => {
    clearInterval(timer);
    cancel?.abort();
    cancel = null;
  };
  refresh();
  return {
    node,
    refresh,
    show,
    close,
    get data() {
      return data;
    },
  };
}
