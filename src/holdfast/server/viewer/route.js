// The open session and position as the hash of the address: #/agent/session?at=17. A link leads to a position, and
// the browser's back and forward buttons work.

const WRITE_DELAY = 200;

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone percent sign, typed by hand
  }
}

/**
 * Parse a hash into agent, session and the options after the question mark. `at` is a number, null for the head, or
 * the text that is not a number.
 */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [agent = "", session = ""] = path.split("/").map(decode);
  const options = Object.fromEntries(new URLSearchParams(query));
  const at = /^\d{1,12}$/.test(options.at ?? "") ? Number(options.at) : options.at || null;
  return { ...options, agent, session, at };
}

/** Return the hash of a route. Empty options are left out. */
export function formatRoute({ agent, session, ...options }) {
  if (!agent) return "#/";
  const path = [agent, session].filter(Boolean).map(encodeURIComponent).join("/");
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/**
 * Create a function that writes a route into the address bar: with `push` as a new entry of the browser's history,
 * else in place of the current one, and then only the last of several in a row.
 */
export function createAddressBar() {
  let timer = null;
  return (route, { push = false } = {}) => {
    clearTimeout(timer);
    const hash = formatRoute(route);
    const before = location.hash;
    const write = () => {
      if (hash === before || location.hash !== before) return; // the user has navigated since
      history[push ? "pushState" : "replaceState"](null, "", hash);
    };
    if (push) write();
    else timer = setTimeout(write, WRITE_DELAY);
  };
}
