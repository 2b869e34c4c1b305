// What is looked at, as the hash of the address: #/agent/session?at=17. So a link leads to a moment,
// and back and forward lead through where one has been.

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody typed a lone percent sign
  }
};

/**
 * The place that a hash names: agent, session, and everything after the question mark. `at` is null for
 * the last event, a number, or the text that is not one.
 */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [agent = "", session = ""] = path.split("/").map(decoded);
  const options = Object.fromEntries(new URLSearchParams(query));
  const at = /^\d{1,12}$/.test(options.at ?? "") ? Number(options.at) : options.at || null;
  return { ...options, agent, session, at };
}

/** The hash of a place. */
export function hashOf({ agent, session, ...options }) {
  if (!agent) return "#/";
  const path = [agent, session].filter(Boolean).map(encodeURIComponent).join("/");
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

let waiting = null;

/** Show a place in the address. Steps replace one another, and only the last of a rush is written. */
export function write(place, { push = false } = {}) {
  clearTimeout(waiting);
  const wanted = hashOf(place);
  const before = location.hash;
  const now = () => {
    // Who went elsewhere in the meantime stays there.
    if (wanted === before || location.hash !== before) return;
    history[push ? "pushState" : "replaceState"](null, "", wanted);
  };
  if (push) now();
  else waiting = setTimeout(now, 200);
}
