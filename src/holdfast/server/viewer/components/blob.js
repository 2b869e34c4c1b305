// The content of a reference: an image, a text or a download. It is loaded when it becomes visible. Contents are
// untrusted: a text is a text node, and an image is decoded by the browser, which runs nothing in it.

import { decodeImage, decodeText, isEncodedImage, sniffImage } from "../api/blobs.js";
import { downloadLink } from "./download.js";
import { button, el, fill, setBusy } from "./dom.js";
import { size } from "./format.js";
import { describeError } from "./notices.js";
import { whenVisible } from "./visible.js";

const HEAD = 1 << 16;
const MAX_SHOWN = 32_000_000;
const TEXT_TYPE = /^(text\/|application\/(json|xml|yaml|toml|javascript|x-(sh|python|yaml|ndjson))|[\w.-]+\/[\w.-]+\+(json|xml)$)/;
const SVG = "image/svg+xml";
const KINDS = { text: "text", bytes: "bytes", attachment: "file" };

/** Create the view of a content. `blobs` downloads it; `mediaType` is the type that stands beside the reference. */
export function blobView(reference, blobs, mediaType = null) {
  const type = reference.mediaType ?? mediaType;
  const body = el("div", { class: "blob-body" });
  const [path, query] = blobs.download(reference, mediaType);
  const what = [type ?? KINDS[reference.kind], size(reference.size)].join(", ");
  const view = el("div", { class: "blob", "data-digest": reference.digest },
    el("p", { class: "blob-head" },
      reference.name && el("span", { class: "blob-name" }, reference.name),
      el("span", { class: "muted" }, what),
      downloadLink("download", blobs.client, path, query, {
        class: "blob-download", "aria-label": `download ${reference.name ?? what}`,
      })),
    body);
  whenVisible(view, () => run(body, () => content(reference, blobs, type, body)));
  return view;
}

async function run(body, work) {
  setBusy(body, true);
  try {
    fill(body, await work());
  } catch (error) {
    fill(body, el("div", { class: "blob-problem" }, describeError(error)));
  }
  setBusy(body, false);
}

/** Show a content, or offer to if it is very large; null if it can only be downloaded. */
function content(reference, blobs, type, body) {
  const isImage = type?.startsWith("image/");
  if ((type !== null && !isImage && !TEXT_TYPE.test(type)) || reference.size === 0) return null;
  const load = () => (isImage ? loadImage : loadUnknown)(reference, blobs, type);
  if (reference.size <= MAX_SHOWN) return load();
  return button(`show it (${size(reference.size)})`, () => run(body, load), { class: "quiet small" });
}

/** Load the start of a content that may be a text or an image. */
async function loadUnknown(reference, blobs, type) {
  const head = await blobs.read(reference, { limit: HEAD });
  const text = decodeText(head);
  if (text === null ? sniffImage(head) : isEncodedImage(text)) return loadImage(reference, blobs, type);
  return text === null ? null : textContent(text, reference, blobs, head.length);
}

async function loadImage(reference, blobs, type) {
  let bytes = await blobs.read(reference);
  const text = type === SVG ? null : decodeText(bytes.subarray(0, HEAD));
  if (text !== null) bytes = decodeImage(new TextDecoder().decode(bytes)) ?? bytes;
  const found = sniffImage(bytes) ?? (type === SVG ? SVG : null);
  if (found === null) return el("p", { class: "muted" }, "This is not an image that can be shown.");
  const url = URL.createObjectURL(new Blob([bytes], { type: found }));
  const picture = el("img", { src: url, alt: reference.name ?? "image", class: "blob-image" });
  const release = () => URL.revokeObjectURL(url);
  picture.addEventListener("load", release);
  picture.addEventListener("error", () => {
    release();
    picture.replaceWith(el("p", { class: "muted" }, "The image is damaged."));
  });
  return picture;
}

function textContent(start, reference, blobs, read) {
  const node = el("pre", { class: "code blob-text", tabindex: "0", "aria-label": reference.name ?? "text" }, start);
  if (read >= reference.size) return node;
  node.append("…");
  const all = button(`show all (${size(reference.size)})`, async () => {
    setBusy(node, true);
    try {
      node.textContent = new TextDecoder().decode(await blobs.read(reference));
      all.remove();
    } catch (error) {
      all.replaceWith(el("div", { class: "blob-problem" }, describeError(error)));
    }
    setBusy(node, false);
  }, { class: "quiet small" });
  return [node, reference.size <= MAX_SHOWN && all];
}
