"""Known vulnerabilities in the versions that constraints.txt pins: ``make audit``.

pip-audit asks OSV about each of them. One that is known fails the audit, unless IGNORED gives a
reason why it does not matter here. Where OSV cannot be reached nothing is known, which is said in
one line and is no failure, unless HOLDFAST_AUDIT=required is in the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
IGNORED: Mapping[str, str] = {}
"""Ids of vulnerabilities, each with the reason why it cannot hurt; GHSA, PYSEC or CVE."""

FAILED_TO_ASK = re.compile(r"ConnectionError|Timeout|ServiceError|JSONDecodeError")
AT_ONCE = 4
SECONDS, SECONDS_IF_REQUIRED = 18, 180
REQUEST_SECONDS = 5
OSV = ("api.osv.dev", 443)


class UnreachableError(Exception):
    """OSV could not be asked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A vulnerability of a pinned version."""

    package: str
    version: str
    ids: tuple[str, ...]
    fixed_in: tuple[str, ...]
    description: str

    def __str__(self) -> str:
        remedy = (
            f"raise it to {' or '.join(self.fixed_in)}" if self.fixed_in else "no version mends"
        )
        return f"{self.package}=={self.version}: {', '.join(self.ids)}: {remedy}"


def pins(constraints: Path) -> list[str]:
    """The lines that pin a version."""
    lines = (line.partition("#")[0].strip() for line in constraints.read_text("utf-8").splitlines())
    return [line for line in lines if line]


def findings(lines: Sequence[str], service: str | None, seconds: float) -> list[Finding]:
    """What is known of these pins. Several processes ask, as each waits for every answer."""
    if service is None:
        reach(OSV)
    parts = [part for part in (lines[each::AT_ONCE] for each in range(AT_ONCE)) if part]
    with ThreadPoolExecutor(len(parts)) as pool:
        answers = pool.map(lambda part: asked(part, service, seconds), parts)
        return sorted((found for answer in answers for found in answer), key=str)


def reach(address: tuple[str, int]) -> None:
    """Refuse at once where nobody listens, as starting pip-audit takes seconds."""
    try:
        socket.create_connection(address, timeout=REQUEST_SECONDS).close()
    except OSError as error:
        raise UnreachableError(f"{address[0]}: {error}") from error


def asked(lines: Sequence[str], service: str | None, seconds: float) -> list[Finding]:
    """What pip-audit says of some pins."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "pins.txt")
        listed.write_text("\n".join(lines), "utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(listed)]
        command += ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        command += ["--timeout", str(REQUEST_SECONDS), "--vulnerability-service", "osv"]
        command += ["--osv-url", service] if service else []
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=seconds
            )
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"no answer within {seconds:g} s") from error
    try:
        answer = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError) as error:
        if FAILED_TO_ASK.search(done.stderr):
            raise UnreachableError(done.stderr.strip().splitlines()[-1]) from error
        raise SystemExit(f"audit: pip-audit failed: {done.stderr.strip()}") from error
    return [found for package in answer for found in findings_of(package)]


def findings_of(package: Mapping[str, Any]) -> list[Finding]:
    """What is known of one package. One that was skipped counts as not asked about."""
    if "skip_reason" in package:
        raise UnreachableError(package["skip_reason"])
    return [
        Finding(
            package["name"],
            package["version"],
            tuple(sorted((found["id"], *found["aliases"]))),
            tuple(found["fix_versions"]),
            found["description"],
        )
        for found in package["vulns"]
    ]


def verdict(found: Sequence[Finding], ignored: Mapping[str, str]) -> list[str]:
    """What is wrong: vulnerabilities, and reasons to ignore some that are not there any more."""
    known = {name for finding in found for name in finding.ids}
    wrong = [str(finding) for finding in found if ignored.keys().isdisjoint(finding.ids)]
    wrong += [
        f"{name} is ignored, and no pin has it: take it out" for name in ignored.keys() - known
    ]
    return wrong


def audit(
    constraints: Path,
    *,
    ignored: Mapping[str, str] = IGNORED,
    service: str | None = None,
    required: bool = False,
) -> int:
    """Say what is known and give the exit code."""
    lines = pins(constraints)
    try:
        found = findings(lines, service, SECONDS_IF_REQUIRED if required else SECONDS)
    except UnreachableError as error:
        reason = str(error)[:120]
        print(f"audit: NOT DONE, as the vulnerability service could not be asked: {reason}")
        return 1 if required else 0
    wrong = verdict(found, ignored)
    for line in wrong:
        print(f"audit: {line}")
    for name, reason in ignored.items():
        print(f"audit: ignored {name}: {reason}")
    print(f"audit: {len(lines)} pinned versions, {len(wrong)} problems")
    return 1 if wrong else 0


def main() -> int:
    """Audit what development and CI install."""
    parser = argparse.ArgumentParser(description="Known vulnerabilities in pinned versions.")
    parser.add_argument("--constraints", type=Path, default=CONSTRAINTS)
    parser.add_argument("--service", metavar="URL", help="another service that speaks as OSV does")
    given = parser.parse_args()
    required = os.environ.get("HOLDFAST_AUDIT") == "required"
    return audit(given.constraints, service=given.service, required=required)


if __name__ == "__main__":
    sys.exit(main())
