// The contents of blobs: where they are downloaded from, and what their first bytes tell about them.

import { sessionPath } from "./client.js";

const BASE64_IMAGE = /^(iVBORw0KGgo|\/9j\/|R0lGOD|UklGR)/;
const MAX_NAME = 255;
const DATA_URL = /^data:image\/[\w.+-]+;base64,/;

/** Return the blobs of one session. */
export function createBlobs(client, ref) {
  const path = ({ digest }) => sessionPath(ref, "blobs", digest);
  return {
    /** Return the bytes of a content, or the first `limit` of them. */
    read: (reference, options) => client.getBytes(path(reference), { scope: ref.scope }, options),
    /** Return the path and the query of a download. */
    download: (reference, mediaType) => [path(reference), {
      scope: ref.scope, name: reference.name?.slice(0, MAX_NAME), media_type: plainType(reference.mediaType ?? mediaType),
    }],
    client,
  };
}

/** Return a media type without parameters, or null if it has another form. */
const plainType = (type) => /^[a-z\d][\w.+-]{0,99}\/[a-z\d][\w.+-]{0,99}/i.exec(type ?? "")?.[0] ?? null;

const startsWith = (bytes, codes, at = 0) => codes.every((code, i) => code === null || bytes[at + i] === code);
const ascii = (text) => [...text].map((letter) => letter.charCodeAt(0));

/** Return the type of an image by its first bytes; null if it is none that browsers show. */
export function sniffImage(bytes) {
  if (startsWith(bytes, [0x89, ...ascii("PNG\r\n"), 0x1a, 0x0a])) return "image/png";
  if (startsWith(bytes, [0xff, 0xd8, 0xff])) return "image/jpeg";
  if (startsWith(bytes, ascii("GIF8"))) return "image/gif";
  if (startsWith(bytes, ascii("RIFF")) && startsWith(bytes, ascii("WEBP"), 8)) return "image/webp";
  if (startsWith(bytes, ascii("ftypavif"), 4)) return "image/avif";
  return startsWith(bytes, ascii("BM")) ? "image/bmp" : null;
}

/** Whether a text looks like an image in base64, or like a data URL of one. */
export const isEncodedImage = (text) => BASE64_IMAGE.test(text) || DATA_URL.test(text);

/** Return the bytes of an image in base64 or in a data URL; null if it is neither. */
export function decodeImage(text) {
  try {
    const encoded = text.replace(DATA_URL, "").replaceAll("-", "+").replaceAll("_", "/");
    return Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  } catch {
    return null;
  }
}

/** Return bytes as text; null if they are not UTF-8, or binary. A character that was cut at the end is left out. */
export function decodeText(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return text.includes("\u0000") ? null : text;
  } catch {
    return null;
  }
}
