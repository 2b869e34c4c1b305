"""The bundle of ES modules. That it runs is tested in a browser, by tests/viewer."""

from __future__ import annotations

import posixpath
import re
from importlib import resources

import pytest

from holdfast.server.bundle import bundle
from holdfast.server.viewer_files import SCRIPTS, STYLES, read_source


def bundle_of(**sources: str) -> str:
    """Return the bundle of modules by name; ``app`` is the entry."""
    return bundle("app.js", {f"{name}.js": source for name, source in sources.items()}.__getitem__)


def test_module_becomes_a_function_that_returns_its_exports():
    source = "export const a = 1;\nexport async function b() {}\nexport class C {}\nlet d = 2;\n"
    assert bundle_of(app=source) == (
        "const modules = {};\n\n"
        'modules["app.js"] = (() => {\n'
        "const a = 1;\nasync function b() {}\nclass C {}\nlet d = 2;\n"
        "return { a, b, C };\n"
        "})();\n"
    )


def test_imported_modules_come_first_and_once():
    sources = {
        "app.js": 'import { b } from "./views/b.js";\nimport { c, d } from "./c.js";',
        "views/b.js": 'import { c } from "../c.js";\nexport const b = c;',
        "c.js": "export const c = 1;\nexport const d = 2;",
    }
    script = bundle("app.js", sources.__getitem__)
    places = [script.index(f'modules["{path}"] = ') for path in ("c.js", "views/b.js", "app.js")]
    assert places == sorted(places)
    assert script.count("const d = 2;") == 1
    assert 'const { b } = modules["views/b.js"];\nconst { c, d } = modules["c.js"];' in script


def test_lines_of_a_module_are_kept():
    source = "// first\n\nfunction f() {\n  return `export {\nimporter`;\n}\n"
    assert source in bundle_of(app=source)


@pytest.mark.parametrize(
    "line",
    [
        'import "./b.js";',
        'import{ b } from "./b.js";',
        'import("./b.js");',
        'import b from "./b.js";',
        'import * as b from "./b.js";',
        'import { b as c } from "./b.js";',
        'import { b } from "https://example.com/b.js";',
        "import {",
        "export default function b() {}",
        'export * from "./b.js";',
        "export { b };",
        "export let b = 1;",
    ],
)
def test_unsupported_import_or_export_is_an_error_with_its_line(line):
    with pytest.raises(ValueError, match=r"^app\.js:2: unsupported (im|ex)port: "):
        bundle_of(app=f"// comment\n{line}", b="export const b = 1;")


def test_import_of_a_name_that_is_not_exported_is_an_error():
    with pytest.raises(ValueError, match=r"^app\.js:1: b\.js does not export c$"):
        bundle_of(app='import { b, c } from "./b.js";', b="export const b = 1;\nconst c = 2;")


def test_circular_import_is_an_error():
    with pytest.raises(ValueError, match=r"^circular import: app\.js -> b\.js -> app\.js$"):
        bundle_of(app='import { b } from "./b.js";', b='import { a } from "./app.js";')


def test_every_script_and_style_of_the_viewer_is_served():
    folder = resources.files("holdfast.server") / "viewer"
    sheets = {file.name for file in (folder / "styles").iterdir()}
    assert sheets == {f"{name}.css" for name in STYLES}
    modules = {
        f"{name}/{file.name}".removeprefix("/")
        for name in ("", "api", "components", "views")
        for file in (folder / name).iterdir()
        if file.name.endswith(".js")
    }
    scripts = "".join(bundle(entry, read_source) for entry in SCRIPTS.values())
    assert {path for path in modules if f'modules["{path}"] = ' not in scripts} == set()


@pytest.mark.parametrize(
    ("folder", "allowed"), [("api", {"api"}), ("components", {"api", "components"})]
)
def test_modules_of_the_viewer_import_only_downward(folder, allowed):
    for file in (resources.files("holdfast.server") / "viewer" / folder).iterdir():
        for target in re.findall(r'^import .* from "(.*)";$', file.read_text(), re.MULTILINE):
            path = posixpath.normpath(posixpath.join(folder, target))
            assert path.split("/")[0] in allowed, f"{folder}/{file.name} imports {path}"
