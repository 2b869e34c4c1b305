"""A framework that is missing, broken or too old is reported in one error."""

from __future__ import annotations

import pytest

from holdfast.adapters import requirement
from holdfast.adapters.requirement import (
    import_requirement,
    parse_release,
    require_version,
)
from holdfast.extras import MissingExtraError
from support.subprocesses import read_python, run_python


def test_a_package_that_is_missing_is_an_error_that_tells_what_to_install():
    with pytest.raises(MissingExtraError, match=r"no_such_framework is not .*openai-agents\]'"):
        import_requirement("no_such_framework.memory", "openai-agents")
    with pytest.raises(ImportError, match=r"pip install 'holdfast\[strands\]'"):
        require_version("no-such-framework", "1.0", "strands")


def test_a_package_that_cannot_be_loaded_is_told_with_its_reason(tmp_path, monkeypatch):
    (tmp_path / "broken_framework.py").write_text("from os import no_such_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match="cannot be loaded: .*no_such_name"):
        import_requirement("broken_framework", "strands")


def test_a_version_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(requirement, "version", lambda name: "1.9.7rc1")
    require_version("framework", "1.9", "strands")
    with pytest.raises(MissingExtraError, match=r"framework 1\.10 or newer, but 1\.9\.7rc1 is"):
        require_version("framework", "1.10", "strands")


def test_versions_are_compared_by_their_numbers():
    assert parse_release("0.24.0") == (0, 24, 0)
    assert parse_release("2.0b3") < parse_release("2.0.1")
    assert parse_release("unknown") == ()


@pytest.mark.parametrize("name", ["adk", "openai_agents", "strands"])
def test_an_adapter_without_its_framework_says_so_and_no_more(name):
    hidden = (
        "import sys, importlib.metadata as m\n"
        "def missing(name): raise m.PackageNotFoundError(name)\n"
        "m.version = missing\n"
        f"import holdfast.adapters.{name}\n"
    )
    done = run_python(hidden)
    extra = name.replace("_", "-")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("holdfast.extras.MissingExtraError: ")
    assert f"pip install 'holdfast[{extra}]'" in last


def test_nothing_of_holdfast_itself_imports_a_framework():
    look = (
        "import sys, holdfast, holdfast.adapters, holdfast.adapters.requirement\n"
        "holdfast.Session\n"
        "print([name for name in ('agents', 'strands', 'langgraph') if name in sys.modules])\n"
    )
    assert read_python(look) == "[]\n"


def test_a_version_that_is_too_new_is_refused(monkeypatch):
    monkeypatch.setattr(requirement, "version", lambda name: "2.0.1")
    require_version("framework", "1.9", "strands", before="2.1")
    with pytest.raises(MissingExtraError, match=r"framework >=1\.9,<2, but 2\.0\.1 is installed"):
        require_version("framework", "1.9", "strands", before="2")
