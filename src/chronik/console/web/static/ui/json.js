// Indented and coloured JSON. The text is not parsed into JavaScript numbers, so large numbers keep all their digits.

import { h } from "./dom.js";

const TOKEN = /"(?:[^"\\]|\\.)*"?|-?\d[\d.eE+-]*|true|false|null|[{}[\],:]|\S/g;
const SHOWN_MAX = 20_000;

function kind(token, next) {
  if (token.startsWith('"')) return next === ":" ? "key" : "string";
  if (/^[-\d]/.test(token)) return "number";
  if (/^(true|false|null)$/.test(token)) return "word";
  return null;
}

/** Yields [text, kind] of the indented JSON document, which may be truncated. */
function* pieces(text) {
  const tokens = text.match(TOKEN) ?? [];
  let depth = 0;
  const newline = () => `\n${"  ".repeat(depth)}`;
  for (let place = 0; place < tokens.length; place += 1) {
    const token = tokens[place];
    const next = tokens[place + 1];
    if (token === "{" || token === "[") {
      if (next === "}" || next === "]") {
        yield [token + next, null];
        place += 1;
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

export function prettyNodes(text) {
  const nodes = [];
  for (const [part, what] of pieces(text)) {
    nodes.push(what ? h("span", { class: `json-${what}` }, part) : part);
    if (nodes.length > SHOWN_MAX) return [...nodes, "\n…"];
  }
  return nodes;
}
