"""``holdfast demo``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import typer

from holdfast.cli import demo, show
from holdfast.cli.console import out
from holdfast.server import run as run_module

EXAMPLE = Path(__file__).parents[2] / "examples" / "demo.py"


def test_demo_prints_its_steps_and_leaves_its_files(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", "nonsense://")
    ran = run("demo", "--folder", "play")
    assert ran.code == 0, ran.err
    for words in (
        "holdfast state list --session ses_ports",
        "report-b-2019.pdf",
        "source_environment  production",
        "restored ses_ports to ",
        "-Port B: to do",
        "restored 1 file in ",
        "ses_what_if: 2 messages",
        "into new session",
        "into new session",
        "source_environment  staging",
        "tool.called",
        f"cd {tmp_path / 'play'}",
    ):
        assert words in ran.out
    assert Path.cwd() == tmp_path
    assert os.environ["HOLDFAST_STORE"] == "nonsense://"
    assert "HOLDFAST_ENVIRONMENT" not in os.environ
    names = {path.name for path in (tmp_path / "play").iterdir()}
    assert names == {".holdfast", "incident.json", "report", "staging.db"}
    assert (tmp_path / "play/report/ports.md").read_text().endswith("to do\n")


@pytest.mark.parametrize("program", ["/usr/bin/holdfast", None])
def test_suggested_commands_work(run, tmp_path, monkeypatch, program):
    monkeypatch.setattr(shutil, "which", lambda _: program)
    commands = run("demo", "--folder", "play").out.split("Try next")[1].splitlines()[2:]
    start = "  holdfast " if program else f"  {sys.executable} -m holdfast "
    monkeypatch.chdir(commands.pop(0).split()[1])
    assert commands.pop(0).startswith(f"{start}serve  # ")
    lines = [part for line in commands for part in line.replace(start, "").split(" && ")]
    assert len(lines) == 9
    for line in lines:
        arguments = line.removeprefix("holdfast ").removeprefix(f"{start.strip()} ").split()
        assert run(*arguments).code == 0, line


@pytest.mark.parametrize("wanted", [True, False])
def test_demo_offers_the_viewer_on_a_terminal(run, monkeypatch, wanted):
    served = []
    monkeypatch.setattr(demo, "is_terminal", lambda: True)
    monkeypatch.setattr(demo.typer, "confirm", lambda _, **__: wanted)
    monkeypatch.setattr(run_module, "serve", lambda store, **_: served.append(repr(store)))
    assert run("demo", "--folder", "play").code == 0
    assert len(served) == wanted
    assert all("state.db" in each for each in served)


def test_ctrl_c_at_the_offer_exits_with_130(run, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "is_terminal", lambda: True)
    monkeypatch.setattr(demo, "play_demo", lambda *_: None)
    monkeypatch.setattr(sys.modules[typer.confirm.__module__], "visible_prompt_func", interrupted)
    ran = run("demo", "--folder", "play")
    assert (ran.code, ran.err) == (130, "Open the viewer on them now? [y/N]:\ninterrupted\n")


def test_ctrl_c_in_a_step_exits_with_130(run, monkeypatch):
    async def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "load_document", interrupted)
    monkeypatch.setattr(
        demo, "play_demo", lambda context, _: demo.run_command(context, "state", "show", "x")
    )
    ran = run("demo", "--folder", "play")
    assert (ran.code, ran.err) == (130, "interrupted\n")


def test_demo_is_coloured_on_a_terminal(run, monkeypatch):
    from rich.color import ColorSystem

    monkeypatch.setattr(out, "_force_terminal", True)
    monkeypatch.setattr(out, "_color_system", ColorSystem.STANDARD)
    ran = run("demo", "--folder", "play")
    assert "\x1b[32m$ holdfast state show incident.json\x1b[0m" in ran.out


def test_demo_without_a_folder_uses_a_temporary_one(run, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run("demo").code == 0
    assert len(list(tmp_path.glob("holdfast-demo-*/incident.json"))) == 1


def test_non_empty_folder_is_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    run("demo", "--folder", ".").assert_failed("is not empty")
    run("demo", "--folder", "file").assert_failed("file")
    run("demo", "--folder", "file/below").assert_failed("file")


def test_failing_step_ends_the_demo(run, monkeypatch):
    monkeypatch.setattr(demo, "FORK", demo.SESSION)
    ran = run("demo", "--folder", "play")
    assert ran.code == 1
    assert "already" in ran.err
    assert "Try next" not in ran.out


def test_example_script_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    (folder,) = tmp_path.glob("holdfast-demo-*")
    assert str(folder) in done.stdout
