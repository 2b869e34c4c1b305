"""Compiles the hot modules with mypyc where a C compiler is at hand; without one, the same source
is installed to be interpreted.

HOLDFAST_COMPILE=0 asks for the interpreted package, HOLDFAST_COMPILE=1 refuses to build any other
than the compiled one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup

# A build checks types only as far as compiling needs it; `make lint` is where they must be strict.
MYPY_OPTIONS = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]

COMPILED_MODULES = [
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
]


def why_not_compiled() -> str | None:
    """What is missing for a compiled build, or None."""
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


def extensions() -> list[Extension]:
    """The compiled modules, or none with a word on why."""
    wish = os.environ.get("HOLDFAST_COMPILE", "")
    if wish == "0":
        say("HOLDFAST_COMPILE=0: building the interpreted package")
        return []
    missing = why_not_compiled()
    if missing is None:
        from mypyc.build import mypycify

        modules = mypycify([*MYPY_OPTIONS, *COMPILED_MODULES], opt_level="3", debug_level="0")
        if sys.platform != "win32":
            # Lets gcc inline across functions of a shared library: a set takes 15% less time.
            for module in modules:
                module.extra_compile_args.append("-fno-semantic-interposition")
        return modules
    if wish == "1":
        raise SystemExit(f"holdfast: HOLDFAST_COMPILE=1, but {missing}")
    say(f"{missing}: building the interpreted package, which does the same at a lower speed")
    return []


def say(message: str) -> None:
    """Tell the builder; pip shows it with -v."""
    print(f"holdfast: {message}", file=sys.stderr)


setup(ext_modules=extensions())
