"""A framework that is missing, broken or too old is told in one error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast import HoldfastError
from holdfast.adapters import requirement
from holdfast.adapters.requirement import (
    RequirementError,
    import_requirement,
    parse_release,
    require_version,
)


def test_a_package_that_is_missing_is_an_error_that_tells_what_to_install():
    with pytest.raises(RequirementError, match=r"pip install 'holdfast\[openai-agents\]'") as told:
        import_requirement("no_such_framework.memory", "openai-agents")
    assert "no_such_framework, which is not installed" in str(told.value)
    with pytest.raises(ImportError, match=r"pip install 'holdfast\[strands\]'"):
        require_version("no-such-framework", "1.0", "strands")
    assert issubclass(RequirementError, HoldfastError)


def test_a_package_that_cannot_be_loaded_is_told_with_its_reason(tmp_path, monkeypatch):
    (tmp_path / "broken_framework.py").write_text("from os import no_such_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RequirementError, match="cannot load broken_framework: .*no_such_name"):
        import_requirement("broken_framework", "strands")


def test_a_version_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(requirement, "version", lambda name: "1.9.7rc1")
    require_version("framework", "1.9", "strands")
    with pytest.raises(RequirementError, match=r"framework 1\.10 or later, and 1\.9\.7rc1 is inst"):
        require_version("framework", "1.10", "strands")


def test_versions_are_compared_by_their_numbers():
    assert parse_release("0.24.0") == (0, 24, 0)
    assert parse_release("2.0b3") < parse_release("2.0.1")
    assert parse_release("unknown") == ()


@pytest.mark.parametrize("name", ["openai_agents", "strands"])
def test_an_adapter_without_its_framework_says_so_and_no_more(name):
    hidden = (
        "import sys, importlib.metadata as m\n"
        "def missing(name): raise m.PackageNotFoundError(name)\n"
        "m.version = missing\n"
        f"import holdfast.adapters.{name}\n"
    )
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    extra = name.replace("_", "-")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("holdfast.adapters.requirement.RequirementError: ")
    assert f"holdfast.adapters.{name} needs the package" in last
    assert f"pip install 'holdfast[{extra}]'" in last


def test_nothing_of_holdfast_itself_imports_a_framework():
    look = (
        "import sys, holdfast, holdfast.adapters, holdfast.adapters.requirement\n"
        "holdfast.Session\n"
        "print([name for name in ('agents', 'strands', 'langgraph') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
