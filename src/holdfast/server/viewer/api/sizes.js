// Sizes as text.

/** Return a number of bytes as "1.2 MB". */
export function formatSize(bytes) {
  if (bytes === null || bytes === undefined) return "";
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let scaled = bytes;
  let unit = -1;
  do {
    scaled /= 1000;
    unit += 1;
  } while (scaled >= 999.5 && unit < units.length - 1);
  return `${scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)} ${units[unit]}`;
}
