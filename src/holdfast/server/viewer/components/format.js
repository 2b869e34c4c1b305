// Numbers, times and sizes as text.

import { formatSize } from "../api/sizes.js";

const integer = new Intl.NumberFormat("en");

export const count = (number) => integer.format(number);

/** Return "1 event" or "2 events". */
export const plural = (number, one, many = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : many}`;

export const size = formatSize;

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

/** Return the time of day in the browser's time zone. */
export function clock(at) {
  const time = new Date(at);
  if (!at || Number.isNaN(time.getTime())) return "";
  return `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
}

export function day(at) {
  const time = new Date(at);
  if (!at || Number.isNaN(time.getTime())) return "";
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
}

export const dayAndClock = (at) => (at ? `${day(at)} ${clock(at)}` : "");

/** Return tags on one line: "env=production, turn=3". */
export const tagLine = (tags) =>
  Object.entries(tags ?? {})
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");

/** Truncate a text, with an ellipsis if it was longer. */
export const truncate = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);
