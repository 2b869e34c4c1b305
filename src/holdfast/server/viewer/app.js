// The entry of the viewer: creates the client, the store and the views, and connects them.

import { Client } from "./api/client.js";
import { byId } from "./components/dom.js";
import { initDrawer } from "./components/drawer.js";
import { showError } from "./components/notices.js";
import { initTheme } from "./components/theme.js";
import { createStore } from "./store.js";
import { createAccess } from "./views/access.js";
import { createSessionPage } from "./views/session.js";
import { createSidebar } from "./views/sidebar.js";

async function start() {
  initTheme();
  initDrawer();
  const client = new Client();
  const store = createStore();
  const access = createAccess(client);
  const sidebar = createSidebar(byId("side"), { client, store });
  const page = createSessionPage({ client, store, access, sidebar });
  byId("import").addEventListener("click", page.importFile);
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the hash names the open session
    byId("main").focus();
  });
  window.addEventListener("hashchange", page.followAddress);
  await access.enter();
  await Promise.all([sidebar.load(), page.followAddress()]);
}

start().catch(showError);
