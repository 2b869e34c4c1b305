"""The installed package: its files, the quick start, and each extra.

Nothing is downloaded: the declared requirements, and nothing else, are linked from the packages
that run the tests. With HOLDFAST_PACKAGING=all, pip installs everything on every Python found,
which takes minutes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path

import pytest

from support.wheels import (
    ROOT,
    build_sdist,
    check_program,
    copy_sources,
    install,
    link_distribution,
    list_requirements,
    make_environment,
    read_quick_start,
    wheel_command,
)

ALL = os.environ.get("HOLDFAST_PACKAGING") == "all"
needs_time = pytest.mark.skipif(not ALL, reason="HOLDFAST_PACKAGING=all")

# For each extra, a program that needs it: without it, the error names the extra.
USES = {
    "postgresql": "import holdfast.stores.postgresql",
    "redis": "import holdfast.stores.redis.store",
    "objectstore": "import holdfast.stores.objectstore",
    "nats": "import holdfast.stores.nats",
    "dapr": "import holdfast.stores.dapr",
    "encryption": "import holdfast.stores.wrappers.encryption",
    "signing": "from holdfast.documents.signing_keys import SigningKey; SigningKey.generate()",
    "compression": "import holdfast.stores.wrappers.compression",
    "redaction": "import holdfast; holdfast.Redactor()",
    "testing": "import holdfast.testing",
    "cli": "import holdfast.console_script; holdfast.console_script.main(['--help'])",
    "server": "import holdfast.server",
    "mcp": "import holdfast.mcp_server.http",
    "langgraph": "import holdfast.adapters.langgraph",
    "strands": "import holdfast.adapters.strands",
    "openai-agents": "import holdfast.adapters.openai_agents",
    "claude-agent": "import holdfast.adapters.claude_agent",
    "pydantic-ai": "import holdfast.adapters.pydantic_ai",
    "adk": "import holdfast.adapters.adk",
    "a2a": "import holdfast.adapters.a2a",
    "crewai": "import holdfast.adapters.crewai",
    "agent-framework": "import holdfast.adapters.agent_framework",
}
# Their requirements conflict with those of the others, so they are not part of "all".
SEPARATE = {"adk", "crewai"}
PYTHONS = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    return build_sdist(copy_sources(folder / "sources"), folder)


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    """The interpreted package, built from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    output = check_program(wheel_command(sdist, folder), folder, HOLDFAST_COMPILE="0")
    assert "HOLDFAST_COMPILE=0: building the interpreted package" in output
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> metadata.Distribution:
    folder = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(wheel, folder, "zip")
    (found,) = metadata.distributions(path=[str(folder)])
    return found


@pytest.fixture(scope="module")
def empty(wheel, unpacked, tmp_path_factory) -> Path:
    """The interpreter of an environment with the wheel and no extra."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    python = make_environment(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    for distribution in list_requirements(unpacked, set()):
        link_distribution(distribution, site)
    install(python, "--no-index", wheel)
    return python


# -------------------------------------------------------------------------------------- the content


def test_the_source_distribution_has_only_what_a_build_needs(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
    assert {"setup.py", "pyproject.toml", "LICENSE", "SECURITY.md", "PKG-INFO"} <= names
    assert "src/holdfast/py.typed" in names
    assert {name.split("/")[0] for name in names if "/" in name} == {"src"}
    assert {Path(name).suffix for name in names} <= {
        *("", ".py", ".typed", ".md", ".toml", ".cfg", ".in", ".txt", ".egg-info"),
        *(".html", ".css", ".js", ".svg"),
    }


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = {name for name in names if ".dist-info/" not in name}
    source = ROOT / "src"
    expected = {
        str(path.relative_to(source))
        for path in (source / "holdfast").rglob("*")
        if path.is_file() and path.suffix not in (".so", ".pyc")
    }
    assert inside == expected
    assert {"holdfast/py.typed", "holdfast/server/viewer/index.html"} <= inside


def test_the_wheel_has_all_metadata(unpacked):
    fields = unpacked.metadata
    assert (fields["Name"], fields["License-Expression"]) == ("holdfast", "MIT")
    assert unpacked.read_text("licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert fields["Requires-Python"] == ">=3.11"
    assert fields.get_payload().startswith("# Holdfast\n")
    points = ConfigParser()
    points.read_string(unpacked.read_text("entry_points.txt"))
    assert {group: dict(points[group]) for group in points.sections()} == {
        "console_scripts": {"holdfast": "holdfast.console_script:main"},
        "pytest11": {"holdfast": "holdfast.pytest_plugin"},
    }


def test_every_extra_is_tested_and_part_of_all(unpacked):
    names = set(unpacked.metadata.get_all("Provides-Extra"))
    assert names == {*USES, "all"}
    alone = {
        each.metadata["Name"]
        for extra in USES.keys() - SEPARATE
        for each in list_requirements(unpacked, {extra})
    }
    both = {each.metadata["Name"] for each in list_all_requirements(unpacked)}
    assert both == alone


def list_all_requirements(unpacked: metadata.Distribution) -> list[metadata.Distribution]:
    lines = [line for line in unpacked.requires or () if line.startswith("holdfast[")]
    extras = {extra for line in lines for extra in line[9 : line.index("]")].split(",")}
    return list_requirements(unpacked, extras)


# ---------------------------------------------------------------------------------------- installed


def test_the_quick_start_runs_without_extras(empty, tmp_path):
    program = f"{read_quick_start()}\nprint(holdfast.__file__, holdfast.compiled)"
    output = check_program([empty, "-I", "-c", program], tmp_path)
    assert f"{empty.parent.parent}" in output
    assert output.endswith(" False\n")
    listed = check_program([sys.executable, "-m", "pip", "--python", empty, "list"], tmp_path)
    assert {line.split()[0] for line in listed.splitlines()[2:] if line} == {
        "holdfast",
        "msgspec",
        "pathspec",
    }


def test_the_error_for_a_missing_extra_names_it(empty, tmp_path):
    program = f"""
for extra, use in {USES!r}.items():
    try:
        exec(use)
    except (Exception, SystemExit) as error:
        print(extra, "=", error)
"""
    output = check_program([empty, "-I", "-c", program], tmp_path)
    errors = dict(line.split(" = ", 1) for line in output.splitlines())
    assert [
        extra for extra in USES if f"pip install 'holdfast[{extra}]'" not in errors[extra]
    ] == []


@pytest.mark.parametrize("extra", sorted(USES.keys() - SEPARATE))
def test_an_extra_requires_all_that_its_modules_import(extra, unpacked, tmp_path):
    for distribution in list_requirements(unpacked, {extra}):
        link_distribution(distribution, tmp_path / "site")
    paths = f"{unpacked.locate_file('')}{os.pathsep}{tmp_path / 'site'}"
    check_program([sys.executable, "-S", "-P", "-c", USES[extra]], tmp_path, PYTHONPATH=paths)


# ------------------------------------------------------------------------- with packages from PyPI


def find_interpreter(version: str) -> str:
    """Return a Python of this version, or skip the test."""
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    # Those first: a shim of pyenv on the path may not work.
    found = str(kept[-1]) if kept else shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"there is no python{version} here")
    return found


@needs_time
@pytest.mark.parametrize("extra", USES)
def test_an_extra_can_be_installed_in_an_empty_environment(extra, wheel, tmp_path):
    python = make_environment(tmp_path / "venv")
    install(python, f"{wheel}[{extra}]")
    check_program([python, "-I", "-c", USES[extra]], tmp_path)
    check_program([sys.executable, "-m", "pip", "--python", python, "check"], tmp_path)


@needs_time
@pytest.mark.parametrize("version", PYTHONS)
def test_all_extras_can_be_installed_together(version, wheel, tmp_path):
    python = make_environment(tmp_path / "venv", find_interpreter(version))
    install(python, f"{wheel}[all]")
    for use in USES.values():
        check_program([python, "-I", "-c", use], tmp_path)
    check_program([python, "-I", "-c", read_quick_start()], tmp_path)
    check_program([sys.executable, "-m", "pip", "--python", python, "check"], tmp_path)


@needs_time
@pytest.mark.parametrize("version", PYTHONS)
def test_the_source_distribution_installs_compiled_and_interpreted(version, sdist, tmp_path):
    for wish, compiled in (("1", "True"), ("0", "False")):
        python = make_environment(tmp_path / wish, find_interpreter(version))
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-cache-dir"]
        check_program([*pip, sdist], tmp_path, HOLDFAST_COMPILE=wish)
        program = f"{read_quick_start()}\nprint(holdfast.compiled)"
        (tmp_path / f"run{wish}").mkdir()
        output = check_program([python, "-I", "-c", program], tmp_path / f"run{wish}")
        assert output.endswith(f" {compiled}\n") or output.splitlines()[-1] == compiled


@needs_time
def test_the_compiled_wheel_is_for_this_platform_and_has_no_c_files(sdist, tmp_path):
    check_program(wheel_command(sdist, tmp_path), tmp_path, HOLDFAST_COMPILE="1")
    (wheel,) = tmp_path.glob("*.whl")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.split("-")[2] == tag
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.endswith((".c", ".h", ".o"))]
    assert [name for name in names if name.startswith("holdfast/state/trie.c")]
    assert not [name for name in names if name.startswith(("tests", "build", "benchmarks"))]
