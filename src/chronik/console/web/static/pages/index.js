// Maps a URL to a page. A page is {title, node, update(params)?, live(live)?, refresh()?, close()?}.

import { groupPage, groupsPage } from "./groups.js";
import { nodePage, nodesPage } from "./nodes.js";
import { overviewPage } from "./overview.js";
import { schemaPage, schemasPage } from "./schemas.js";
import { securityPage } from "./security.js";
import { tablePage, tablesPage } from "./tables.js";
import { topicPage } from "./topic.js";
import { topicsPage } from "./topics.js";
import { transactionsPage } from "./transactions.js";

export const PAGES = [
  { id: "overview", label: "Overview", page: overviewPage },
  { id: "topics", label: "Topics", page: topicsPage, one: topicPage },
  { id: "groups", label: "Groups", page: groupsPage, one: groupPage },
  { id: "schemas", label: "Schemas", page: schemasPage, one: schemaPage },
  { id: "transactions", label: "Transactions", page: transactionsPage },
  { id: "nodes", label: "Nodes", page: nodesPage, one: nodePage },
  { id: "security", label: "Security", page: securityPage },
  { id: "tables", label: "Tables", page: tablesPage, one: tablePage },
];

export function pageFor({ parts: [id, name], params }) {
  const found = PAGES.find((each) => each.id === id);
  if (!found || (name !== undefined && !found.one)) throw new Error("This page does not exist.");
  return name === undefined ? found.page(params) : found.one(name, params);
}
