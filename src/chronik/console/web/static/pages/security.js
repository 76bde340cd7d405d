// Users, ACLs and quotas.

import { address, at, get, post, put, remove } from "../api.js";
import { live } from "../live.js";
import { mayOnCluster } from "../permissions.js";
import { link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { fill, h } from "../ui/dom.js";
import { choice, field, searchField, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, button, card, download, notice, pageHead, tabs } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { pager, table } from "../ui/table.js";
import { addAcl, aclCells, importAcls } from "./acl-forms.js";

const TABS = [
  ["users", "Users"],
  ["acls", "ACLs"],
  ["quotas", "Quotas"],
];
const ADD = { users: ["Create user", "add-user"], acls: ["Create ACL", "create-acl"], quotas: ["Set quota", "set-quota"] };
const PAGE = 100;
const mayAdd = (tab) => mayOnCluster(tab === "quotas" ? "alter-configs" : "alter");

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
  const open = live.session?.authorizer === false ? notice("No authorizer is configured: every client is allowed to perform all operations.", "warning") : null;
  const node = h("div", {}, head, open, bar, part);
  show(params);

  function show(next) {
    const before = state;
    state = next;
    if ((next.tab ?? "users") !== tab) {
      tab = next.tab ?? "users";
      inner?.close();
      fill(
        bar,
        tabs(
          TABS.map(([id, label]) => ({ id, label, href: link("security", { tab: id === "users" ? "" : id }) })),
          tab,
        ),
      );
      const [label, action] = ADD[tab] ?? ADD.users;
      fill(actions, mayAdd(tab) && button(`${action}?`, label, () => setParams({ do: action }, { replace: false }), { tone: "primary", glyph: "plus" }));
      inner = ({ users, acls, quotas }[tab] ?? users)(() => state);
      fill(part, inner.node);
    } else if (before.search !== next.search || before.trail !== next.trail) inner.refresh();
    if (next.do && next.do !== last.do && mayAdd(tab)) FORMS[next.do]?.(inner);
    last = next;
  }

  return { title: "Security", node, refresh: () => inner.refresh(), close: () => inner.close(), update: show };
}

const closed = () => parse().params.do && setParams({ do: "" });
const trailOf = (state) => (state.trail ? state.trail.split("\n") : []);
const paged = (answer, state) =>
  pager({
    shown: answer.items.length,
    total: answer.total,
    next: answer.next,
    trail: trailOf(state),
    set: (tokens) => setParams({ trail: tokens.join("\n") }, { replace: false }),
  });

function users(state) {
  const rows = resource(
    (signal) => get("/users", { search: state().search, limit: PAGE, after: trailOf(state()).at(-1) }, signal),
    (answer) => [
      table(
        "Users",
        [
          { label: "User", grow: true, cell: (row) => h("span", { class: "name" }, row.name) },
          {
            label: "Mechanisms",
            cell: (row) =>
              h(
                "span",
                { class: "badges" },
                row.credentials.map((each) => badge(each.mechanism)),
              ),
          },
          { label: "Iterations", align: "end", cell: (row) => format.list([...new Set(row.credentials.map((each) => format.count(each.iterations)))]) },
          {
            label: "",
            cell: (row) =>
              mayOnCluster("alter") && [
                button("change-password?", "Change password", () => addUser(rows, row.name), { small: true, tone: "quiet", focus: `pw-${row.name}` }),
                button("delete-user?", "Delete", () => deleteUser(row.name, rows), { small: true, tone: "danger", focus: `del-${row.name}` }),
              ],
          },
        ],
        answer.items,
        { key: (row) => row.name, empty: "There are no users." },
      ).node,
      paged(answer, state()),
    ],
    { everyMs: 10_000, permission: "Describe on the cluster" },
  );
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Search users", state().search, (search) => setParams({ search, trail: "" })),
  );
  return { ...rows, node: card(null, { extra: "card-table" }, bar, rows.node) };
}

function addUser(rows, name) {
  formDialog({
    action: name ? "change-password" : "add-user",
    title: name ? `Change password of ${name}` : "Create user",
    intro: name ? "Sessions of this user end and must log in again." : "The user can log in, but has no permissions until you create ACLs.",
    fields: [
      ...(name ? [] : [field("name", "Name", { required: true, autofocus: true, mono: true })]),
      field("password", "Password", { type: "password", required: true, autocomplete: "new-password", autofocus: Boolean(name) }),
      choice("mechanism", "Mechanism", [
        ["both", "SCRAM-SHA-256 and SCRAM-SHA-512"],
        ["SCRAM-SHA-256", "SCRAM-SHA-256"],
        ["SCRAM-SHA-512", "SCRAM-SHA-512"],
      ]),
    ],
    label: name ? "Change password" : "Create user",
    submit: (form) =>
      post("/users", { name: name ?? form.name, password: form.password, ...(form.mechanism === "both" ? {} : { mechanisms: [form.mechanism] }) }),
    success: (form) => (name ? `The password of ${name} was changed.` : `User ${form.name} was created.`),
    done: rows.refresh,
    onclose: closed,
  });
}

function deleteUser(name, rows) {
  confirm({
    action: "delete-user",
    title: `Delete user ${name}`,
    intro: "The user can no longer log in. ACLs with this principal are not deleted.",
    typed: name,
    label: "Delete user",
    tone: "danger",
    run: () => remove(at("users", name)),
    success: `User ${name} was deleted.`,
    done: rows.refresh,
  });
}

function acls(state) {
  const rows = resource(
    (signal) => get("/acls", { limit: PAGE, after: trailOf(state()).at(-1), principal: principalOf(state().search) }, signal),
    (answer) => [
      table("ACLs", aclColumns(rows), answer.items, {
        key: (row) => JSON.stringify(row),
        empty: state().search ? "This principal has no ACLs." : "There are no ACLs.",
      }).node,
      paged(answer, state()),
    ],
    { everyMs: 10_000, permission: "Describe on the cluster" },
  );
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Filter by principal, e.g. User:alice", state().search, (search) => setParams({ search, trail: "" })),
    mayOnCluster("alter") && button("import-acls?", "Import", () => setParams({ do: "import-acls" }, { replace: false }), { small: true }),
    mayOnCluster("describe") &&
      button("export-acls", "Export", () => download(address("/acls/export", { principal: principalOf(state().search) })), {
        small: true,
        glyph: "download",
        title: "Download the listed ACLs of all pages as CSV",
      }),
  );
  return { ...rows, node: card(null, { extra: "card-table" }, bar, rows.node) };
}

const principalOf = (text) => (text ? (text.includes(":") ? text : `User:${text}`) : undefined);

export const aclColumns = (rows) => [
  ...aclCells,
  {
    label: "",
    cell: (row) =>
      mayOnCluster("alter") &&
      button("delete-acl?", "Delete", () => deleteAcl(row, rows), {
        small: true,
        tone: "danger",
        focus: `acl-${row.principal}-${row.resource}-${row.name}-${row.operation}`,
      }),
  },
];

function deleteAcl(acl, rows) {
  confirm({
    action: "delete-acl",
    title: "Delete ACL",
    intro: `Delete the ACL “${acl.permission} ${acl.principal} to ${acl.operation} ${acl.resource} ${acl.name}${acl.pattern === "prefixed" ? " (prefixed)" : ""}”. The change applies to open connections immediately.`,
    label: "Delete ACL",
    tone: "danger",
    run: () => post("/acls/delete", { acls: [acl] }),
    success: "The ACL was deleted.",
    done: rows.refresh,
  });
}

/** @type {[key: string, label: string, show: (value: any) => string][]} */
const QUOTAS = [
  ["producer_byte_rate", "Producer byte rate", format.rate],
  ["consumer_byte_rate", "Consumer byte rate", format.rate],
  ["request_percentage", "Request percentage", (value) => `${value} %`],
  ["controller_mutation_rate", "Controller mutation rate (per second)", format.perSecond],
  ["connection_creation_rate", "Connection creation rate (per second, IP addresses only)", format.perSecond],
];

function entityText(entity) {
  const part = (label, name) => (name === null || name === undefined ? null : name === "" ? `default ${label}` : `${label} ${name}`);
  return [part("user", entity.user), part("client id", entity.client_id), part("IP address", entity.ip)].filter(Boolean).join(", ");
}

function quotas(state) {
  const rows = resource(
    (signal) => get("/quotas", { limit: PAGE, after: trailOf(state()).at(-1) }, signal),
    (answer) => [
      table(
        "Quotas",
        [
          { label: "Entity", grow: true, cell: (row) => h("span", { class: "name" }, entityText(row.entity)) },
          {
            label: "Quotas",
            cell: (row) =>
              Object.entries(row.values).map(([key, value]) =>
                h(
                  "div",
                  {},
                  `${QUOTAS.find(([each]) => each === key)?.[1] ?? key}: `,
                  h("strong", {}, (QUOTAS.find(([each]) => each === key)?.[2] ?? String)(value)),
                ),
              ),
          },
          {
            label: "",
            cell: (row) =>
              mayOnCluster("alter-configs") && [
                button("change-quota?", "Change", () => setQuota(rows, row), { small: true, tone: "quiet", focus: `q-${entityText(row.entity)}` }),
                button("remove-quota?", "Remove", () => dropQuota(row, rows), { small: true, tone: "danger", focus: `qd-${entityText(row.entity)}` }),
              ],
          },
        ],
        answer.items,
        { key: (row) => entityText(row.entity), empty: "There are no quotas." },
      ).node,
      paged(answer, state()),
    ],
    { everyMs: 10_000, permission: "DescribeConfigs on the cluster" },
  );
  return { ...rows, node: card(null, { extra: "card-table" }, rows.node) };
}

function setQuota(rows, row) {
  const who = row
    ? []
    : [
        choice("kind", "Entity type", [
          ["user", "user"],
          ["client_id", "client id"],
          ["ip", "IP address"],
        ]),
        field("name", "Name", { mono: true, autofocus: true, hint: "Leave empty for the default entity." }),
      ];
  formDialog({
    action: row ? "change-quota" : "set-quota",
    title: row ? `Quotas of ${entityText(row.entity)}` : "Set quota",
    fields: [
      ...(who.length ? [side(...who)] : []),
      ...QUOTAS.map(([key, label]) => {
        const made = field(key, label, { type: "number", min: 0, value: row?.values[key] ?? "" });
        made.input.step = "any";
        return made;
      }),
    ],
    label: "Set quotas",
    submit: (form) => put("/quotas", { entity: row ? trimmed(row.entity) : { [form.kind]: form.name }, values: changed(form, row) }),
    success: "The quotas were set.",
    done: rows.refresh,
    onclose: closed,
  });
}

const trimmed = (entity) => Object.fromEntries(Object.entries(entity).filter(([, name]) => name !== null && name !== undefined));

function changed(form, row) {
  const values = Object.fromEntries(QUOTAS.map(([key]) => [key, form[key]]).filter(([key, value]) => value !== null || row?.values[key] !== undefined));
  if (!Object.keys(values).length) throw new Error("Enter at least one quota.");
  return values;
}

function dropQuota(row, rows) {
  confirm({
    action: "remove-quota",
    title: `Remove quotas of ${entityText(row.entity)}`,
    intro: "The default quotas apply instead, if there are any.",
    label: "Remove",
    tone: "danger",
    run: () => put("/quotas", { entity: trimmed(row.entity), values: Object.fromEntries(Object.keys(row.values).map((key) => [key, null])) }),
    success: "The quotas were removed.",
    done: rows.refresh,
  });
}

const FORMS = {
  "add-user": (inner) => addUser(inner),
  "create-acl": (inner) => addAcl(inner, {}, closed),
  "import-acls": (inner) => importAcls(inner, closed),
  "set-quota": (inner) => setQuota(inner),
};
