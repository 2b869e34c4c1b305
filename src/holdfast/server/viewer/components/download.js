// Downloads. A link cannot carry a token, so with one the content is fetched first.

import { el } from "./dom.js";
import { showError } from "./notices.js";

/** Create a link that downloads a path. */
export function downloadLink(text, client, path, query, attributes = {}) {
  const link = el("a", { download: true, href: client.url(path, query).href, ...attributes }, text);
  link.addEventListener("click", (event) => {
    if (!client.token) return;
    event.preventDefault();
    download(client, path, query).catch(showError);
  });
  return link;
}

/** Fetch a path and save its content under the name that the server gives. */
export async function download(client, path, query) {
  const response = await client.send(path, { query });
  const name = /filename="([^"]*)"/.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  const url = URL.createObjectURL(await response.blob());
  const link = el("a", { href: url, download: name ?? "session.json" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
