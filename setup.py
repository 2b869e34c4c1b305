"""Compile the hot modules with mypyc if there is a C compiler; otherwise they run interpreted.

HOLDFAST_COMPILE=0 builds the interpreted package, HOLDFAST_COMPILE=1 fails if it cannot compile.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup

# Types are checked only as far as mypyc needs; `make lint` checks them strictly.
MYPY_OPTIONS = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]

COMPILED_MODULES = [
    "src/holdfast/ids.py",
    "src/holdfast/values/extensions.py",
    "src/holdfast/values/scalars.py",
    "src/holdfast/values/lowering.py",
    "src/holdfast/values/binary_encoding.py",
    "src/holdfast/values/json_encoding.py",
    "src/holdfast/values/exact_copy.py",
    "src/holdfast/state/trie.py",
    "src/holdfast/state/diff.py",
    "src/holdfast/state/snapshot.py",
    "src/holdfast/state/live.py",
    "src/holdfast/state/merge.py",
    "src/holdfast/state/batch.py",
    "src/holdfast/state/store.py",
    "src/holdfast/log/changes.py",
    "src/holdfast/log/encoded_event.py",
    "src/holdfast/sessions/working_state.py",
    "src/holdfast/log/hash_chain.py",
]


def find_missing_tool() -> str | None:
    """Return what is missing for a compiled build, or None."""
    try:
        import mypyc.build  # noqa: F401
    except ImportError as error:
        return f"mypyc is not installed ({error})"
    from setuptools.command.build_ext import new_compiler
    from setuptools.errors import CCompilerError, ExecError, PlatformError

    try:
        from distutils.sysconfig import customize_compiler, get_python_inc
    except ImportError:
        from setuptools._distutils.sysconfig import customize_compiler, get_python_inc
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.c")
        probe.write_text("#include <Python.h>\nint probe(void) { return PY_VERSION_HEX; }\n")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            compiler.compile([str(probe)], output_dir=folder, include_dirs=[get_python_inc()])
        except (CCompilerError, ExecError, PlatformError, OSError) as error:
            return f"no working C compiler with Python's headers ({error})"
    return None


def list_extensions() -> list[Extension]:
    """Return the modules to compile, or none."""
    setting = os.environ.get("HOLDFAST_COMPILE", "")
    if setting == "0":
        log("HOLDFAST_COMPILE=0: building the interpreted package")
        return []
    missing = find_missing_tool()
    if missing is None:
        from mypyc.build import mypycify

        modules = mypycify([*MYPY_OPTIONS, *COMPILED_MODULES], opt_level="3", debug_level="0")
        if sys.platform != "win32":
            # Let gcc inline across functions of a shared library: Store.set is 15% faster.
            for module in modules:
                module.extra_compile_args.append("-fno-semantic-interposition")
        return modules
    if setting == "1":
        raise SystemExit(f"holdfast: HOLDFAST_COMPILE=1, but {missing}")
    log(f"{missing}; building the interpreted package, which is slower")
    return []


def log(message: str) -> None:
    """Print a message, which pip shows with -v."""
    print(f"holdfast: {message}", file=sys.stderr)


setup(ext_modules=list_extensions())
