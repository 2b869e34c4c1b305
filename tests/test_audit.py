"""The audit fails on what is known to be vulnerable, and never takes silence for an answer."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from servers.process import free_port, needs

found = importlib.util.spec_from_file_location(
    "audit", Path(__file__).parent.parent / "tools" / "audit.py"
)
tool = sys.modules[found.name] = importlib.util.module_from_spec(found)
found.loader.exec_module(tool)

WEAK = tool.Finding("weak", "1.0", ("GHSA-1", "CVE-2026-1"), ("1.1",), "it is")


class Osv(BaseHTTPRequestHandler):
    """Answers as OSV does: an empty object, the vulnerabilities of a version, or a failure."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = asked["package"]["name"]
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}]
        known = {
            "id": "GHSA-1",
            "aliases": ["CVE-2026-1"],
            "summary": "it is",
            "affected": [{"package": {"name": "weak", "ecosystem": "PyPI"}, "ranges": ranges}],
        }
        body = json.dumps({"vulns": [known]} if name == "weak" else {}).encode()
        self.send_response(503 if name == "silent" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service():
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
        thread.join()


@pytest.fixture
def constraints(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text("# pinned\nfine==2.0\nweak==1.0  # old\n")
    return path


def test_a_known_vulnerability_fails_the_audit_also_if_others_could_not_be_asked_about(
    service, constraints, capsys
):
    needs("pip_audit")
    with constraints.open("a") as file:
        file.write("silent==3.0\n")
    assert tool.audit(constraints, service=service) == 1
    output = capsys.readouterr().out
    assert "audit: weak==1.0: CVE-2026-1, GHSA-1: upgrade to 1.1\n" in output
    assert "audit: NOT ASKED about silent==3.0: " in output
    assert "3 pinned versions, 1 not asked about, 1 problems" in output


def test_a_service_that_cannot_be_reached_is_said_in_one_line_and_fails_where_it_is_required(
    tmp_path, capsys
):
    needs("pip_audit")
    path = tmp_path / "constraints.txt"
    path.write_text("fine==2.0\n")
    for required in (False, True):
        gone = f"http://127.0.0.1:{free_port()}/"
        assert tool.audit(path, service=gone, required=required) == int(required)
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith("audit: NOT DONE: cannot reach the vulnerability service")


def test_a_failure_of_another_kind_is_not_taken_for_a_service_out_of_reach(tmp_path):
    needs("pip_audit")
    path = tmp_path / "constraints.txt"
    path.write_text("fine>=2.0\n")
    with pytest.raises(SystemExit, match="pip-audit failed"):
        tool.audit(path, service="http://127.0.0.1:9/")


def test_what_is_ignored_has_a_reason_and_is_still_there():
    assert tool.find_problems([WEAK], {}) == ["weak==1.0: GHSA-1, CVE-2026-1: upgrade to 1.1"]
    assert tool.find_problems([WEAK], {"CVE-2026-1": "not called here"}) == []
    assert tool.find_problems([], {"CVE-2026-1": "not called here"}) == [
        "CVE-2026-1 is ignored, but no pin has it; remove it"
    ]
    assert all(reason.strip() for reason in tool.IGNORED.values())


def test_a_package_that_was_skipped_counts_as_not_asked_about_and_hides_no_other(capsys):
    known = {"id": "GHSA-1", "aliases": [], "fix_versions": ["1.1"], "description": "it is"}
    skipped = {"name": "fine", "skip_reason": "not found"}
    sound = {"name": "sound", "version": "1.0", "vulns": []}
    weak = {"name": "weak", "version": "1.0", "vulns": [known]}
    for packages, code, code_if_required in (
        ([skipped, weak], 1, 1),
        ([skipped, sound], 0, 1),
        ([skipped], 0, 1),
        ([sound], 0, 0),
    ):
        answer = tool.parse_packages(packages)
        assert answer.unasked == ({"fine": "not found"} if skipped in packages else {})
        for required in (False, True):
            expected = code_if_required if required else code
            assert tool.report(len(packages), answer, {}, required=required) == expected
            output = capsys.readouterr().out
            assert ("weak==1.0: GHSA-1" in output) == (weak in packages)
            assert ("NOT" in output) == (skipped in packages)


def test_what_is_ignored_is_not_taken_for_gone_while_some_were_not_asked_about(capsys):
    ignored = {"CVE-2026-1": "not called here"}
    assert tool.report(2, tool.Answer(unasked={"weak": "slow"}), ignored, required=False) == 0
    assert tool.report(2, tool.Answer(), ignored, required=False) == 1
    assert capsys.readouterr().out.count("; remove it") == 1


def test_where_pip_audit_fails_what_is_known_is_said_first(capsys):
    with pytest.raises(SystemExit, match="pip-audit failed: it broke"):
        tool.report(2, tool.Answer([WEAK], failures=["it broke"]), {}, required=False)
    assert "weak==1.0" in capsys.readouterr().out


def test_every_line_of_the_constraints_pins_one_version():
    assert len(tool.CONSTRAINTS) == 3
    for file in tool.CONSTRAINTS:
        assert all(line.count("==") == 1 for line in tool.read_pins(file))
