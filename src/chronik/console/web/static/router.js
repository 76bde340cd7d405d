// The URL holds all state, so that it can be bookmarked and shared: #/topics/orders?tab=messages&from=-50.

const listeners = new Set();

export function parse(hash = location.hash) {
  const [path, ...query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts: parts.length ? parts : ["overview"], params: Object.fromEntries(new URLSearchParams(query.join("?"))) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Builds a URL: `link("topics", name, {tab: "messages"})`. Empty parameters are omitted. */
export function link(...parts) {
  const params = typeof parts.at(-1) === "object" && parts.at(-1) !== null ? parts.pop() : {};
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}

export function go(...parts) {
  location.hash = link(...parts);
}

/** Changes parameters of the URL. By default it replaces the history entry, so that Back leaves the page. */
export function setParams(patch, { replace = true } = {}) {
  const { parts, params } = parse();
  const next = link(...parts, { ...params, ...patch });
  if (next === location.hash) return;
  if (!replace) {
    location.hash = next;
    return;
  }
  history.replaceState(null, "", next);
  notify();
}

export function onRoute(listener) {
  listeners.add(listener);
}

export function notify() {
  const route = parse();
  for (const listener of listeners) listener(route);
}

window.addEventListener("hashchange", notify);
