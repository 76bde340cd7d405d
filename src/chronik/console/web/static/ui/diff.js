// The differences of two texts, line by line.

import { h, hidden } from "./dom.js";
import { plural } from "./format.js";

const CELLS_MAX = 4_000_000;
const CONTEXT = 3;
const MARKS = { added: "+", removed: "-", same: " ", gap: "…" };

/** Returns [kind, line] for all lines of both texts; the kind is "same", "added" or "removed". */
export function diffLines(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const same = (lines) => lines.map((line) => ["same", line]);
  return [...same(a.slice(0, start)), ...changed(a.slice(start, a.length - end), b.slice(start, b.length - end)), ...same(a.slice(a.length - end))];
}

/** Finds a longest common subsequence, unless the texts are too long for it. */
function changed(a, b) {
  if (a.length * b.length > CELLS_MAX) return [...a.map((line) => ["removed", line]), ...b.map((line) => ["added", line])];
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push(["same", a[i]]);
      i += 1;
      j += 1;
    } else if (j < b.length && (i === a.length || lengths[i * width + j + 1] > lengths[(i + 1) * width + j])) found.push(["added", b[j++]]);
    else found.push(["removed", a[i++]]);
  }
  return found;
}

/** Shows the lines of a diff. Runs of unchanged lines are shortened to the context of the changes. */
export function diffNode(lines) {
  const line = ([kind, text]) =>
    h(
      "span",
      { class: `diff-line diff-${kind}` },
      ["added", "removed"].includes(kind) && hidden(`${kind}: `),
      h("span", { "aria-hidden": "true" }, `${MARKS[kind]} `),
      text,
      "\n",
    );
  return h("pre", { class: "code diff", tabindex: "0" }, shortened(lines).map(line));
}

function shortened(lines) {
  const near = new Set();
  lines.forEach(([kind], place) => {
    if (kind !== "same") for (let each = place - CONTEXT; each <= place + CONTEXT; each += 1) near.add(each);
  });
  const shown = [];
  for (let place = 0; place < lines.length;) {
    let end = place;
    while (end < lines.length && !near.has(end)) end += 1;
    if (end - place > 1) {
      shown.push(["gap", plural(end - place, "unchanged line")]);
      place = end;
    } else {
      shown.push(lines[place]);
      place += 1;
    }
  }
  return shown;
}
