// Users, rights (ACLs) and limits (quotas).

import { at, get, post, put, remove } from "../api.js";
import { live } from "../live.js";
import { link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { fill, h } from "../ui/dom.js";
import { choice, field, searchField, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, button, card, notice, pageHead, tabs } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { pager, table } from "../ui/table.js";

const TABS = [["users", "Users"], ["acls", "Rights (ACLs)"], ["quotas", "Limits (quotas)"]];
const ADD = { users: ["Add a user", "add-user"], acls: ["Give a right", "give-right"], quotas: ["Set a quota", "set-quota"] };
const PAGE = 100;

export function securityPage(params) {
  let tab = null;
  let inner = null;
  let state = params;
  let last = {};
  const actions = h("div", { class: "actions" });
  const bar = h("div", {});
  const part = h("div", {});
  const head = pageHead("Security");
  head.append(actions);
  const open = live.session?.authorizer === false ? notice("This node has no authorizer: whoever reaches it may do everything.", "warning") : null;
  const node = h("div", {}, head, open, bar, part);
  show(params);

  function show(next) {
    const before = state;
    state = next;
    if ((next.tab ?? "users") !== tab) {
      tab = next.tab ?? "users";
      inner?.close();
      fill(bar, tabs(TABS.map(([id, label]) => ({ id, label, href: link("security", { tab: id === "users" ? "" : id }) })), tab));
      const [label, action] = ADD[tab] ?? ADD.users;
      fill(actions, button(`${action}?`, label, () => setParams({ do: action }, { replace: false }), { tone: "primary", glyph: "plus" }));
      inner = ({ users, acls, quotas }[tab] ?? users)(() => state);
      fill(part, inner.node);
    } else if (before.search !== next.search || before.trail !== next.trail) inner.refresh();
    if (next.do && next.do !== last.do) FORMS[next.do]?.(inner);
    last = next;
  }

  return { title: "Security", node, refresh: () => inner.refresh(), close: () => inner.close(), update: show };
}

const closed = () => parse().params.do && setParams({ do: "" });
const trailOf = (state) => (state.trail ? state.trail.split("\n") : []);
const paged = (answer, state) => pager({ shown: answer.items.length, total: answer.total, next: answer.next, trail: trailOf(state), set: (tokens) => setParams({ trail: tokens.join("\n") }, { replace: false }) });

function users(state) {
  const rows = resource((signal) => get("/users", { search: state().search, limit: PAGE, after: trailOf(state()).at(-1) }, signal), (answer) => [
    table("Users", [
      { label: "User", grow: true, cell: (row) => h("span", { class: "name" }, row.name) },
      { label: "Mechanisms", cell: (row) => h("span", { class: "badges" }, row.credentials.map((each) => badge(each.mechanism))) },
      { label: "Iterations", align: "end", cell: (row) => format.list([...new Set(row.credentials.map((each) => format.count(each.iterations)))]) },
      { label: "", cell: (row) => [button("change-password?", "New password", () => addUser(rows, row.name), { small: true, tone: "quiet", focus: `pw-${row.name}` }), button("delete-user?", "Delete", () => deleteUser(row.name, rows), { small: true, tone: "danger", focus: `del-${row.name}` })] },
    ], answer.items, { key: (row) => row.name, empty: "There are no users with passwords." }).node,
    paged(answer, state()),
  ], { everyMs: 10_000 });
  const bar = h("div", { class: "filter-bar" }, searchField("Search users", state().search, (search) => setParams({ search, trail: "" })));
  return { ...rows, node: card(null, { extra: "card-table" }, bar, rows.node) };
}

function addUser(rows, name) {
  formDialog({
    action: name ? "change-password" : "add-user",
    title: name ? `A new password for ${name}` : "Add a user",
    intro: name ? "Whoever is logged in as this user has to log in again." : "A user can log in, and may do nothing until a right is given.",
    fields: [
      ...(name ? [] : [field("name", "Name", { required: true, autofocus: true, mono: true })]),
      field("password", "Password", { type: "password", required: true, autocomplete: "new-password", autofocus: Boolean(name) }),
      choice("mechanism", "Mechanism", [["both", "SCRAM-SHA-256 and SCRAM-SHA-512"], ["SCRAM-SHA-256", "SCRAM-SHA-256"], ["SCRAM-SHA-512", "SCRAM-SHA-512"]]),
    ],
    label: name ? "Change" : "Add the user",
    submit: (form) => post("/users", { name: name ?? form.name, password: form.password, ...(form.mechanism === "both" ? {} : { mechanisms: [form.mechanism] }) }),
    success: (form) => (name ? `${name} has a new password.` : `User ${form.name} can log in.`),
    done: rows.refresh,
    onclose: closed,
  });
}

function deleteUser(name, rows) {
  confirm({ action: "delete-user", title: `Delete user ${name}`, intro: "Nobody can log in with this name any more. ACLs that name it stay.", typed: name, label: "Delete the user", tone: "danger", run: () => remove(at("users", name)), success: `User ${name} is deleted.`, done: rows.refresh });
}

const RESOURCES = ["topic", "group", "cluster", "transactional-id", "user", "delegation-token"];
const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "cluster-action", "describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens", "two-phase-commit"];

function acls(state) {
  const rows = resource((signal) => get("/acls", { limit: PAGE, after: trailOf(state()).at(-1), principal: principalOf(state().search) }, signal), (answer) => [
    table("Rights", [
      { label: "Who", cell: (row) => h("span", { class: "name" }, row.principal) },
      { label: "May", cell: (row) => badge(`${row.permission === "deny" ? "must not" : "may"} ${row.operation}`, row.permission === "deny" ? "error" : "ok") },
      { label: "What", grow: true, cell: (row) => h("span", {}, `${row.resource} `, h("span", { class: "mono" }, row.name), row.pattern === "prefixed" && badge("and all that begin so")) },
      { label: "From host", cell: (row) => h("span", { class: "mono" }, row.host) },
      { label: "", cell: (row) => button("take-right?", "Take away", () => takeAway(row, rows), { small: true, tone: "danger", focus: `acl-${row.principal}-${row.resource}-${row.name}-${row.operation}` }) },
    ], answer.items, { key: (row) => JSON.stringify(row), empty: state().search ? "This principal has none." : "There are no ACLs." }).node,
    paged(answer, state()),
  ], { everyMs: 10_000 });
  const bar = h("div", { class: "filter-bar" }, searchField("Of whom: User:name", state().search, (search) => setParams({ search, trail: "" })));
  return { ...rows, node: card(null, { extra: "card-table" }, bar, rows.node) };
}

const principalOf = (text) => (text ? (text.includes(":") ? text : `User:${text}`) : undefined);

function addAcl(rows) {
  formDialog({
    action: "give-right",
    title: "Give a right",
    fields: [
      field("principal", "Who", { required: true, autofocus: true, mono: true, value: "User:", hint: "User:name, or User:* for everybody." }),
      side(choice("permission", "May or must not", [["allow", "may"], ["deny", "must not"]]), choice("operation", "Operation", OPERATIONS, { value: "read" })),
      side(choice("resource", "On", RESOURCES), field("name", "Name", { required: true, mono: true, hint: "* for all; kafka-cluster for the cluster." })),
      side(choice("pattern", "Counts for", [["literal", "this name"], ["prefixed", "all names that begin so"]]), field("host", "From host", { value: "*", required: true, mono: true })),
    ],
    label: "Give the right",
    submit: (form) => post("/acls", { acls: [form] }),
    success: (form) => `${form.principal} ${form.permission === "deny" ? "must not" : "may"} ${form.operation}.`,
    done: rows.refresh,
    onclose: closed,
  });
}

function takeAway(acl, rows) {
  confirm({
    action: "take-right",
    title: "Take a right away",
    intro: `${acl.principal} ${acl.permission === "deny" ? "must not" : "may"} ${acl.operation} ${acl.resource} ${acl.name}${acl.pattern === "prefixed" ? " and all that begin so" : ""}. This ACL goes; open connections feel it at once.`,
    label: "Take it away",
    tone: "danger",
    run: () => post("/acls/delete", { acls: [acl] }),
    success: "Taken away.",
    done: rows.refresh,
  });
}

const QUOTAS = [
  ["producer_byte_rate", "Bytes written per second", format.rate],
  ["consumer_byte_rate", "Bytes read per second", format.rate],
  ["request_percentage", "Share of a node’s time, in percent", (value) => `${value} %`],
  ["controller_mutation_rate", "Changes of topics per second", format.perSecond],
  ["connection_creation_rate", "New connections per second (of an address)", format.perSecond],
];

function entityText(entity) {
  const part = (label, name) => (name === null || name === undefined ? null : name === "" ? `every other ${label}` : `${label} ${name}`);
  return [part("user", entity.user), part("client id", entity.client_id), part("address", entity.ip)].filter(Boolean).join(", ");
}

function quotas(state) {
  const rows = resource((signal) => get("/quotas", { limit: PAGE, after: trailOf(state()).at(-1) }, signal), (answer) => [
    table("Limits", [
      { label: "Of whom", grow: true, cell: (row) => h("span", { class: "name" }, entityText(row.entity)) },
      { label: "Limits", cell: (row) => Object.entries(row.values).map(([key, value]) => h("div", {}, `${QUOTAS.find(([each]) => each === key)?.[1] ?? key}: `, h("strong", {}, (QUOTAS.find(([each]) => each === key)?.[2] ?? String)(value)))) },
      { label: "", cell: (row) => [button("change-quota?", "Change", () => setQuota(rows, row), { small: true, tone: "quiet", focus: `q-${entityText(row.entity)}` }), button("remove-quota?", "Remove", () => dropQuota(row, rows), { small: true, tone: "danger", focus: `qd-${entityText(row.entity)}` })] },
    ], answer.items, { key: (row) => entityText(row.entity), empty: "Nobody is limited." }).node,
    paged(answer, state()),
  ], { everyMs: 10_000 });
  return { ...rows, node: card(null, { extra: "card-table" }, rows.node) };
}

function setQuota(rows, row) {
  const who = row ? [] : [choice("kind", "Of", [["user", "a user"], ["client_id", "a client id"], ["ip", "an address"]]), field("name", "Name", { mono: true, autofocus: true, hint: "Empty: the default, for whoever has none of their own." })];
  formDialog({
    action: row ? "change-quota" : "set-quota",
    title: row ? `Limits of ${entityText(row.entity)}` : "Set a quota",
    fields: [...(who.length ? [side(...who)] : []), ...QUOTAS.map(([key, label]) => {
      const made = field(key, label, { type: "number", min: 0, value: row?.values[key] ?? "" });
      made.input.step = "any";
      return made;
    })],
    label: "Set the limits",
    submit: (form) => put("/quotas", { entity: row ? trimmed(row.entity) : { [form.kind]: form.name }, values: changed(form, row) }),
    success: "The limits are set.",
    done: rows.refresh,
    onclose: closed,
  });
}

const trimmed = (entity) => Object.fromEntries(Object.entries(entity).filter(([, name]) => name !== null && name !== undefined));

function changed(form, row) {
  const values = Object.fromEntries(QUOTAS.map(([key]) => [key, form[key]]).filter(([key, value]) => value !== null || row?.values[key] !== undefined));
  if (!Object.keys(values).length) throw new Error("Name at least one limit.");
  return values;
}

function dropQuota(row, rows) {
  confirm({
    action: "remove-quota",
    title: `Remove the limits of ${entityText(row.entity)}`,
    intro: "The defaults count again, if there are any.",
    label: "Remove",
    tone: "danger",
    run: () => put("/quotas", { entity: trimmed(row.entity), values: Object.fromEntries(Object.keys(row.values).map((key) => [key, null])) }),
    success: "Removed.",
    done: rows.refresh,
  });
}

const FORMS = { "add-user": (inner) => addUser(inner), "give-right": addAcl, "set-quota": (inner) => setQuota(inner) };
