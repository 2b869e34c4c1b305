// References to blobs: large values and attachments in a session, whose contents are downloaded on their own.

import { formatSize } from "./sizes.js";

const DIGEST = /^[0-9a-f]{64}$/;
const MEDIA_TYPES = ["media_type", "mime_type", "mediaType", "mimeType"];
const MAX_DEPTH = 5;

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const textOrNull = (value) => (typeof value === "string" && value ? value : null);

/** Return `{digest, size, kind, mediaType, name}` if a value is a reference, else null. */
export function parseReference(value) {
  if (!isObject(value)) return null;
  const [tag, ...others] = Object.keys(value);
  const items = value[tag];
  if (others.length || !Array.isArray(items) || !isReferenceTo(items)) return null;
  const [digest, bytes, third, fourth] = items;
  if (tag === "$blob") {
    return { digest, size: bytes, kind: third === "bytes" ? "bytes" : "text", mediaType: null, name: null };
  }
  if (tag !== "$attachment") return null;
  return { digest, size: bytes, kind: "attachment", mediaType: textOrNull(third), name: textOrNull(fourth) };
}

const isReferenceTo = ([digest, bytes]) => DIGEST.test(digest) && Number.isSafeInteger(bytes) && bytes >= 0;

/** Return what is known of a content without downloading it: "chart.png, 48 kB". */
export const describeReference = ({ name, size }) => (name ? `${name}, ${formatSize(size)}` : formatSize(size));

/** Return the media type that an object says of its content, or null. */
export function mediaTypeOf(value) {
  if (!isObject(value)) return null;
  return MEDIA_TYPES.map((name) => textOrNull(value[name])).find((found) => found !== null) ?? null;
}

/** Return the first reference inside a value, with the media type beside it; null if there is none. */
export function findReference(value, mediaType = null, depth = MAX_DEPTH) {
  const reference = parseReference(value);
  if (reference) return { reference, mediaType };
  if (depth === 0 || value === null || typeof value !== "object") return null;
  const inner = mediaTypeOf(value) ?? mediaType;
  for (const item of Object.values(value)) {
    const found = findReference(item, inner, depth - 1);
    if (found) return found;
  }
  return null;
}
