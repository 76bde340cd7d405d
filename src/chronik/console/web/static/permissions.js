// The operations that the principal may perform. Pages offer only these; the node checks every request again.

import { get } from "./api.js";

const RELOAD_MS = 10_000;
let known = null;
let loadedMs = 0;

/** Loads the permissions unless they are recent, and returns whether they have changed. */
export async function loadPermissions() {
  if (known && Date.now() - loadedMs < RELOAD_MS) return false;
  const before = JSON.stringify(known);
  try {
    known = await get("/permissions");
    loadedMs = Date.now();
  } catch {
    return false; // the node is unreachable: offer what was allowed before
  }
  return before !== "null" && before !== JSON.stringify(known);
}

export function forgetPermissions() {
  known = null;
}

/** Whether the principal may perform the operation on the cluster. Unknown permissions count as granted. */
export const mayOnCluster = (operation) => !known || known.cluster.includes(operation);

/** Whether the principal may perform the operation on at least one resource of a type, such as "topic". */
export const mayOnAny = (operation, type) => !known || known.any[type].includes(operation);

/** Whether the principal may perform the operation on every resource of a type. */
export const mayOnAll = (operation, type) => !known || known.all[type].includes(operation);

/** Whether the principal may perform the operation on a resource of a response. */
export const mayOn = (resource, operation) => Boolean(resource?.authorized_operations.includes(operation));

export const mayCreateTopics = () => mayOnCluster("create") || mayOnAny("create", "topic");
