// Text with visible control characters. Invisible and direction-changing characters could make a value look like another one.

import { h } from "./dom.js";

const HIDDEN = /[\u0000-\u0008\u000b-\u000d\u000e-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;
const SPLIT = new RegExp(`(${HIDDEN.source})`);

/** Returns a text, or its parts if it contains control characters, which are shown by symbols or numbers. */
export function visible(text) {
  if (!HIDDEN.test(text)) return text;
  return text
    .split(SPLIT)
    .filter(Boolean)
    .map((part) => (part.length === 1 && HIDDEN.test(part) ? symbol(part) : part));
}

function symbol(character) {
  const code = character.codePointAt(0);
  const name = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  const shown = code < 0x20 ? String.fromCodePoint(0x2400 + code) : code === 0x7f ? "␡" : name;
  return h("span", { class: "control-character", title: name }, shown);
}
