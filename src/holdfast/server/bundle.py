"""Bundle ES modules into one script, so that a page loads with few requests.

Each module becomes a function that returns its exports. Its lines are kept, so stack traces and
breakpoints in the browser stay readable. The modules must follow three rules:

- an import is one line, ``import { a, b } from "./path.js";``
- an export is ``export function``, ``export async function``, ``export class`` or ``export const``
- imports are not circular
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

_IMPORT = re.compile(r'import \{ (\w+(?:, \w+)*) \} from "(\.[\w./-]*)";')
_EXPORT = re.compile(r"export (?:(?:async )?function|class|const) (\w+)")


def _is_statement(keyword: str, line: str) -> bool:
    return re.match(rf"{keyword}\b", line) is not None


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """Return one script with the module ``entry`` and everything it imports.

    Args:
        entry: The path of a module.
        read: Returns the source of the module with a path.

    Raises:
        ValueError: A module does not follow the rules, or imports a name that is not exported.

    """
    exports: dict[str, list[str]] = {}
    parts = ["const modules = {};"]

    def add(path: str, importers: tuple[str, ...]) -> None:
        if path in importers:
            raise ValueError(f"circular import: {' -> '.join((*importers, path))}")
        if path in exports:
            return
        lines, names = [], []
        for number, line in enumerate(read(path).rstrip("\n").split("\n"), start=1):
            if _is_statement("import", line):
                imported = _IMPORT.fullmatch(line)
                if imported is None:
                    raise ValueError(f"{path}:{number}: unsupported import: {line}")
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), imported[2]))
                add(target, (*importers, path))
                if missing := set(imported[1].split(", ")).difference(exports[target]):
                    raise ValueError(f"{path}:{number}: {target} does not export {min(missing)}")
                lines.append(f'const {{ {imported[1]} }} = modules["{target}"];')
            elif _is_statement("export", line):
                exported = _EXPORT.match(line)
                if exported is None:
                    raise ValueError(f"{path}:{number}: unsupported export: {line}")
                names.append(exported[1])
                lines.append(line.removeprefix("export "))
            else:
                lines.append(line)
        exports[path] = names
        body = "\n".join(lines)
        returned = f"return {{ {', '.join(names)} }};"
        parts.append(f'\nmodules["{path}"] = (() => {{\n{body}\n{returned}\n}})();')

    add(entry, ())
    return "\n".join(parts) + "\n"
