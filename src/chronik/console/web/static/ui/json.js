// Indented and coloured JSON. The text is not parsed into JavaScript numbers, so large numbers keep all their digits.

import { h } from "./dom.js";
import { visible } from "./text.js";

const SPACE = /\s*/y;
const TOKEN = /-?\d[\d.eE+-]*|true|false|null|[{}[\],:]|[^\s"]/y;
const STRING_SHOWN_MAX = 20_000;

/** Returns the position after a JSON string, or the end of the text if the string is truncated. */
function stringEnd(text, start) {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return end + 1;
  }
  return text.length;
}

function* tokens(text) {
  let at = 0;
  while (true) {
    SPACE.lastIndex = at;
    SPACE.exec(text);
    at = SPACE.lastIndex;
    if (at >= text.length) return;
    TOKEN.lastIndex = at;
    const end = text[at] === '"' ? stringEnd(text, at) : at + TOKEN.exec(text)[0].length;
    yield text.slice(at, end);
    at = end;
  }
}

function kind(token, next) {
  if (token.startsWith('"')) return next === ":" ? "key" : "string";
  if (/^[-\d]/.test(token)) return "number";
  if (/^(true|false|null)$/.test(token)) return "word";
  return null;
}

/** Yields [text, kind] of the indented JSON document, which may be truncated. */
function* pieces(text) {
  const source = tokens(text);
  let depth = 0;
  const newline = () => `\n${"  ".repeat(Math.min(depth, 100))}`;
  let next = source.next().value;
  while (next !== undefined) {
    const token = next;
    next = source.next().value;
    if (token === "{" || token === "[") {
      if (next === "}" || next === "]") {
        yield [token + next, null];
        next = source.next().value;
      } else {
        depth += 1;
        yield [token + newline(), null];
      }
    } else if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      yield [newline() + token, null];
    } else if (token === ",") yield [`,${newline()}`, null];
    else if (token === ":") yield [": ", null];
    else yield [token, kind(token, next)];
  }
}

export const prettyText = (text) => [...pieces(text)].map(([part]) => part).join("");

/** Yields the nodes of an indented JSON document. Of very long strings, only the start is shown. */
export function* prettyNodes(text) {
  for (const [part, what] of pieces(text)) {
    const left = part.length - STRING_SHOWN_MAX;
    const shown = visible(left > 0 ? part.slice(0, STRING_SHOWN_MAX) : part);
    yield what ? h("span", { class: `json-${what}` }, shown) : shown;
    if (left > 0) yield h("span", { class: "muted" }, `… ${left.toLocaleString("en-US")} more characters`);
  }
}

/** Returns whether a text, which may be truncated, looks like a JSON document. */
export const looksLikeJson = (text) => /^\s*[{["]/.test(text);

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
