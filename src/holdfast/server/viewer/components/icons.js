// Icons of buttons, drawn because not every font has them.

import { svg } from "./dom.js";

const PATHS = {
  first: "M4 3v10M13 3 6 8l7 5z",
  back: "M12 3 4 8l8 5z",
  next: "m4 3 8 5-8 5z",
  last: "M12 3v10M3 3l7 5-7 5z",
};

export function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, class: "icon", "aria-hidden": "true" },
    svg("path", { d: PATHS[name] }));
}
