// The files of a workspace, as the namespace `files` has them: by path, with the digest of the content, its size and
// mode, or with the target of a symbolic link.

import { formatSize } from "./sizes.js";

const IMAGES = {
  __proto__: null, png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp",
  avif: "image/avif", bmp: "image/bmp", svg: "image/svg+xml",
};
const EXECUTABLE = 0o100;

export const FILES = "files";

/** Whether a value is the record of a file or of a link. */
export const isFileRecord = (value) => value !== null && typeof value === "object"
  && (typeof value.link === "string" || (/^[0-9a-f]{64}$/.test(value.digest) && Number.isSafeInteger(value.size)));

/** Whether an entry of a diff is about a file. */
export const isFileEntry = ({ namespace, before, after }) => namespace === FILES
  && [before, after].every((each) => each === undefined || isFileRecord(each));

/** Return the size of a file, or the target of a link. */
export const recordText = ({ link, size }) => (link === undefined ? formatSize(size) : `→ ${link}`);

const baseName = (path) => path.slice(path.lastIndexOf("/") + 1);

/** Return a file as a reference to its content. */
export function fileReference(path, { digest, size }) {
  const mediaType = IMAGES[/\.(\w+)$/.exec(path)?.[1].toLowerCase()] ?? null;
  return { digest, size, kind: "attachment", mediaType, name: baseName(path) };
}

/** Return a mode in octal: "644". */
export const modeText = ({ mode }) => (Number.isInteger(mode) ? mode.toString(8).padStart(3, "0") : "");

export const isExecutable = ({ mode, link }) => link === undefined && (mode & EXECUTABLE) !== 0;

/** Return the folder of all files. A folder is `{entries}`, a map of names, and a file `{path, record}`. */
export function buildFolders(records, removedPaths = []) {
  const root = { entries: new Map() };
  const folderOf = (path) => path.split("/").slice(0, -1).reduce((folder, name) => {
    if (!folder.entries.get(name)?.entries) folder.entries.set(name, { entries: new Map() });
    return folder.entries.get(name);
  }, root);
  for (const path of Object.keys(records)) folderOf(path).entries.set(baseName(path), { path, record: records[path] });
  removedPaths.forEach(folderOf); // so that a folder without other files shows what was removed
  return root;
}
