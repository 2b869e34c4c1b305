// How numbers, times and sizes are written for people.

const whole = new Intl.NumberFormat("en");

export const count = (number) => whole.format(number);

/** "1 event", "2 events". */
export const plural = (number, one, many = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : many}`;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let shown = bytes;
  let unit = -1;
  do {
    shown /= 1000;
    unit += 1;
  } while (shown >= 999.5 && unit < units.length - 1);
  return `${shown < 10 ? shown.toFixed(1) : Math.round(shown)} ${units[unit]}`;
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

/** The time of day, as the clock of the one who looks has it. */
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

/** Tags as one line: env=production, turn=3. */
export const tagLine = (tags) =>
  Object.entries(tags ?? {})
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");

/** A text cut to a length, with a sign that it was. */
export const cut = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);
