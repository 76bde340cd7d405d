// All elements are created here. Text becomes text nodes, never markup, which prevents cross-site scripting.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "indeterminate", "selected"]);

function assign(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "style" || name === "innerHTML") throw new Error(`${name} is not allowed: the content security policy forbids it`);
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (PROPERTIES.has(name) && name in element) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function append(element, ...children) {
  for (const child of /** @type {any[]} */ (children).flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {any} The element; its type depends on the tag.
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  assign(element, props);
  return append(element, ...children);
}

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 */
export function svg(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  assign(element, props);
  return append(element, ...children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, ...children);
}

/**
 * Replaces the children of an element and keeps the keyboard focus and the selection.
 *
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function redraw(element, ...children) {
  const active = /** @type {any} */ (document.activeElement);
  const mark = element.contains(active) ? active.dataset.focus || active.id : null;
  const selection = mark && "selectionStart" in active ? [active.selectionStart, active.selectionEnd] : null;
  fill(element, ...children);
  if (!mark) return element;
  const next = /** @type {any} */ (element).querySelector(`[data-focus="${CSS.escape(mark)}"], #${CSS.escape(mark)}`);
  next?.focus({ preventScroll: true });
  if (next && selection && selection[0] !== null) {
    try {
      next.setSelectionRange(...selection);
    } catch {
      // Number and time fields have no selection.
    }
  }
  return element;
}

let counter = 0;
export const uid = (prefix) => `${prefix}-${++counter}`;

export const hidden = (text) => h("span", { class: "visually-hidden" }, text);
