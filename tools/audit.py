"""Find known vulnerabilities in the versions that constraints*.txt pin: ``make audit``.

pip-audit asks OSV about each pin. A vulnerability fails the audit unless IGNORED gives a reason why
it does not apply. Pins that OSV could not be asked about are listed, and fail the audit only with
HOLDFAST_AUDIT=required in the environment.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONSTRAINTS = sorted(Path(__file__).parent.parent.glob("constraints*.txt"))
IGNORED: Mapping[str, str] = {}
"""GHSA, PYSEC or CVE ids, each with the reason why it does not apply."""

FAILED_TO_ASK = re.compile(r"ConnectionError|Timeout|ServiceError|JSONDecodeError")
AT_ONCE = 4
SECONDS, SECONDS_IF_REQUIRED = 18, 180
REQUEST_SECONDS = 5
OSV = ("api.osv.dev", 443)


@dataclass(frozen=True, slots=True)
class Finding:
    """A vulnerability of a pinned version."""

    package: str
    version: str
    ids: tuple[str, ...]
    fixed_in: tuple[str, ...]
    description: str

    def __str__(self) -> str:
        remedy = f"upgrade to {' or '.join(self.fixed_in)}" if self.fixed_in else "no fixed version"
        return f"{self.package}=={self.version}: {', '.join(self.ids)}: {remedy}"


def read_pins(constraints: Path) -> list[str]:
    """Return the lines that pin a version."""
    lines = (line.partition("#")[0].strip() for line in constraints.read_text("utf-8").splitlines())
    return [line for line in lines if line]


@dataclass(frozen=True, slots=True)
class Answer:
    """What OSV knows about some pins, and which ones it was not asked about."""

    findings: list[Finding] = field(default_factory=list)
    unasked: dict[str, str] = field(default_factory=dict)
    """Pins without an answer, each with the reason."""
    failures: list[str] = field(default_factory=list)
    """Errors of pip-audit itself."""


def query(lines: Sequence[str], service: str | None, seconds: float) -> Answer:
    """Return what is known about pins. Runs several pip-audits, as each waits for its answers."""
    if service is None and (why := find_connection_error(OSV)):
        return Answer(unasked=dict.fromkeys(lines, why))
    parts = [part for part in (lines[each::AT_ONCE] for each in range(AT_ONCE)) if part]
    with ThreadPoolExecutor(len(parts)) as pool:
        answers = list(pool.map(lambda part: run_pip_audit(part, service, seconds), parts))
    return Answer(
        sorted((found for answer in answers for found in answer.findings), key=str),
        {pin: why for answer in answers for pin, why in answer.unasked.items()},
        [failure for answer in answers for failure in answer.failures],
    )


def find_connection_error(address: tuple[str, int]) -> str | None:
    """Return why an address cannot be reached, or None. Faster than starting pip-audit."""
    try:
        socket.create_connection(address, timeout=REQUEST_SECONDS).close()
    except OSError as error:
        return f"{address[0]}: {error}"
    return None


def run_pip_audit(lines: Sequence[str], service: str | None, seconds: float) -> Answer:
    """Return what pip-audit says about pins."""
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
        except subprocess.TimeoutExpired:
            return Answer(unasked=dict.fromkeys(lines, f"no answer within {seconds:g} s"))
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        words = done.stderr.strip()
        if FAILED_TO_ASK.search(words):
            return Answer(unasked=dict.fromkeys(lines, words.splitlines()[-1]))
        return Answer(failures=[words])
    return parse_packages(packages)


def parse_packages(packages: Sequence[Mapping[str, Any]]) -> Answer:
    """Return what is known about packages. A skipped one counts as not asked about."""
    answer = Answer()
    for package in packages:
        if "skip_reason" in package:
            answer.unasked[package["name"]] = package["skip_reason"]
        else:
            answer.findings.extend(parse_findings(package))
    return answer


def parse_findings(package: Mapping[str, Any]) -> list[Finding]:
    """Return the vulnerabilities of one package."""
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


def find_problems(
    found: Sequence[Finding], ignored: Mapping[str, str], *, all_asked: bool = True
) -> list[str]:
    """Return vulnerabilities, and entries of IGNORED that no pin has any more."""
    known = {name for finding in found for name in finding.ids}
    wrong = [str(finding) for finding in found if ignored.keys().isdisjoint(finding.ids)]
    if all_asked:
        gone = ignored.keys() - known
        wrong += [f"{name} is ignored, but no pin has it; remove it" for name in gone]
    return wrong


def audit(
    constraints: Path,
    *,
    ignored: Mapping[str, str] = IGNORED,
    service: str | None = None,
    required: bool = False,
) -> int:
    """Audit the pins of a file, print the result, and return the exit code."""
    lines = read_pins(constraints)
    if not lines:
        raise SystemExit(f"audit: no pins in {constraints}")
    answer = query(lines, service, SECONDS_IF_REQUIRED if required else SECONDS)
    return report(len(lines), answer, ignored, required=required)


def report(number: int, answer: Answer, ignored: Mapping[str, str], *, required: bool) -> int:
    """Print the result for a number of pins, and return the exit code."""
    unasked = answer.unasked
    wrong = find_problems(answer.findings, ignored, all_asked=not (unasked or answer.failures))
    for line in wrong:
        print(f"audit: {line}")
    if len(unasked) == number:
        reason = next(iter(unasked.values()))[:120]
        print(f"audit: NOT DONE: cannot reach the vulnerability service: {reason}")
        return 1 if required else 0
    for name, reason in ignored.items():
        print(f"audit: ignored {name}: {reason}")
    for reason in dict.fromkeys(unasked.values()):
        names = ", ".join(pin for pin, why in unasked.items() if why == reason)
        print(f"audit: NOT ASKED about {names}: {reason[:120]}")
    print(f"audit: {number} pinned versions, {len(unasked)} not asked about, {len(wrong)} problems")
    if answer.failures:
        raise SystemExit(f"audit: pip-audit failed: {answer.failures[0]}")
    return 1 if wrong or (required and unasked) else 0


def main() -> int:
    """Audit the versions that development and CI install."""
    parser = argparse.ArgumentParser(description="Known vulnerabilities in pinned versions.")
    parser.add_argument("--constraints", type=Path, nargs="+", default=CONSTRAINTS)
    parser.add_argument("--service", metavar="URL", help="another service with the API of OSV")
    given = parser.parse_args()
    required = os.environ.get("HOLDFAST_AUDIT") == "required"
    # One by one: two files may pin different versions, and pip-audit takes one of each package.
    return max(audit(each, service=given.service, required=required) for each in given.constraints)


if __name__ == "__main__":
    sys.exit(main())
