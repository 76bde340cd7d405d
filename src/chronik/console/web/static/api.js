// The client of the admin API: JSON requests and responses, and errors with messages that can be shown to the user.

const BASE = "/api/v1";
const REGISTRY = "/registry";
const ANSWER_WITHIN_MS = 35_000;

export class ApiError extends Error {
  constructor(message, status, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const events = new EventTarget();
export const onLoginNeeded = (listener) => events.addEventListener("login", listener);
export const onSilence = (listener) => events.addEventListener("silence", listener);

export function address(path, query = {}, base = BASE) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") params.set(name, String(value));
  }
  const text = params.toString();
  return `${base}${path}${text ? `?${text}` : ""}`;
}

/** Builds a path from unescaped parts: names of topics and groups may contain any character. */
export const at = (...parts) => `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;

/**
 * @param {string} method
 * @param {string} path
 * @param {{ query?: Record<string, unknown>, body?: unknown, signal?: AbortSignal, base?: string }} options
 */
async function ask(method, path, { query, body, signal, base } = {}) {
  const limit = AbortSignal.timeout(ANSWER_WITHIN_MS);
  /** @type {RequestInit & { headers: Record<string, string> }} */
  const request = { method, headers: { Accept: "application/json" }, credentials: "same-origin", cache: "no-store" };
  request.signal = signal ? AbortSignal.any([signal, limit]) : limit;
  if (method !== "GET") request.headers["Content-Type"] = "application/json";
  if (body !== undefined) request.body = JSON.stringify(body);
  let response;
  let text;
  try {
    response = await fetch(address(path, query, base), request);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    events.dispatchEvent(new Event("silence"));
    const waited = error.name === "TimeoutError";
    const unknown = method === "GET" ? "" : " The operation may have been executed.";
    throw new ApiError(`The node ${waited ? "did not respond in time" : "does not respond"}.${unknown}`, 0);
  }
  const answer = parsed(text);
  if (response.ok) return answer;
  if (response.status === 401 && path !== "/login") events.dispatchEvent(new Event("login"));
  throw new ApiError(
    answer?.error ?? answer?.message ?? `The node responded with HTTP status ${response.status}.`,
    response.status,
    answer?.code ?? answer?.error_code ?? null,
  );
}

function parsed(text) {
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const get = (path, query, signal) => ask("GET", path, { query, signal });
/** Downloads bytes. */
export async function getBytes(location, signal) {
  let response;
  try {
    response = await fetch(location, { credentials: "same-origin", cache: "no-store", signal });
    if (response.ok) return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The node does not respond.", 0);
  }
  throw new ApiError(parsed(await response.text())?.error ?? `The node responded with HTTP status ${response.status}.`, response.status);
}

export const post = (path, body = {}, signal) => ask("POST", path, { body, signal });
export const put = (path, body) => ask("PUT", path, { body });
export const patch = (path, body) => ask("PATCH", path, { body });
export const remove = (path, query) => ask("DELETE", path, { query });

/** The client of the schema registry's REST API, which is the same as Confluent's. */
export const registry = {
  get: (path, query, signal) => ask("GET", path, { query, signal, base: REGISTRY }),
  post: (path, body, query) => ask("POST", path, { body, query, base: REGISTRY }),
  put: (path, body) => ask("PUT", path, { body, base: REGISTRY }),
  remove: (path, query) => ask("DELETE", path, { query, base: REGISTRY }),
};
