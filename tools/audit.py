"""Known vulnerabilities in the versions that constraints.txt pins: ``make audit``.

pip-audit asks OSV about each of them. One that is known fails the audit, unless IGNORED gives a
reason why it does not matter here, and whatever became of the others. Where OSV gives no answer
nothing is known, which is said in one line, of all pins or of those that it concerns; that is no
failure, unless HOLDFAST_AUDIT=required is in the environment.
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

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
IGNORED: Mapping[str, str] = {}
"""Ids of vulnerabilities, each with the reason why it cannot hurt; GHSA, PYSEC or CVE."""

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
        remedy = (
            f"raise it to {' or '.join(self.fixed_in)}" if self.fixed_in else "no version mends"
        )
        return f"{self.package}=={self.version}: {', '.join(self.ids)}: {remedy}"


def pins(constraints: Path) -> list[str]:
    """The lines that pin a version."""
    lines = (line.partition("#")[0].strip() for line in constraints.read_text("utf-8").splitlines())
    return [line for line in lines if line]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of asking: what is known, and of which pins nothing is."""

    findings: list[Finding] = field(default_factory=list)
    unasked: dict[str, str] = field(default_factory=dict)
    """Pins that could not be asked about, each with the reason."""
    failures: list[str] = field(default_factory=list)
    """What pip-audit says where it did not work at all."""


def answer_to(lines: Sequence[str], service: str | None, seconds: float) -> Answer:
    """What is known of these pins. Several processes ask, as each waits for every answer."""
    if service is None and (why := unreachable(OSV)):
        return Answer(unasked=dict.fromkeys(lines, why))
    parts = [part for part in (lines[each::AT_ONCE] for each in range(AT_ONCE)) if part]
    with ThreadPoolExecutor(len(parts)) as pool:
        answers = list(pool.map(lambda part: asked(part, service, seconds), parts))
    return Answer(
        sorted((found for answer in answers for found in answer.findings), key=str),
        {pin: why for answer in answers for pin, why in answer.unasked.items()},
        [failure for answer in answers for failure in answer.failures],
    )


def unreachable(address: tuple[str, int]) -> str | None:
    """Why nobody listens there, if so: known at once, as starting pip-audit takes seconds."""
    try:
        socket.create_connection(address, timeout=REQUEST_SECONDS).close()
    except OSError as error:
        return f"{address[0]}: {error}"
    return None


def asked(lines: Sequence[str], service: str | None, seconds: float) -> Answer:
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
        except subprocess.TimeoutExpired:
            return Answer(unasked=dict.fromkeys(lines, f"no answer within {seconds:g} s"))
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        words = done.stderr.strip()
        if FAILED_TO_ASK.search(words):
            return Answer(unasked=dict.fromkeys(lines, words.splitlines()[-1]))
        return Answer(failures=[words])
    return answer_of(packages)


def answer_of(packages: Sequence[Mapping[str, Any]]) -> Answer:
    """What is known of some packages. One that was skipped counts as not asked about."""
    answer = Answer()
    for package in packages:
        if "skip_reason" in package:
            answer.unasked[package["name"]] = package["skip_reason"]
        else:
            answer.findings.extend(findings_of(package))
    return answer


def findings_of(package: Mapping[str, Any]) -> list[Finding]:
    """What is known of one package."""
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


def verdict(
    found: Sequence[Finding], ignored: Mapping[str, str], *, all_asked: bool = True
) -> list[str]:
    """What is wrong: vulnerabilities, and reasons to ignore some that are not there any more."""
    known = {name for finding in found for name in finding.ids}
    wrong = [str(finding) for finding in found if ignored.keys().isdisjoint(finding.ids)]
    if all_asked:
        gone = ignored.keys() - known
        wrong += [f"{name} is ignored, and no pin has it: take it out" for name in gone]
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
    if not lines:
        raise SystemExit(f"audit: {constraints} pins nothing")
    answer = answer_to(lines, service, SECONDS_IF_REQUIRED if required else SECONDS)
    return told(len(lines), answer, ignored, required=required)


def told(number: int, answer: Answer, ignored: Mapping[str, str], *, required: bool) -> int:
    """Say what is known of so many pins, then of which nothing is, and give the exit code."""
    unasked = answer.unasked
    wrong = verdict(answer.findings, ignored, all_asked=not (unasked or answer.failures))
    for line in wrong:
        print(f"audit: {line}")
    if len(unasked) == number:
        reason = next(iter(unasked.values()))[:120]
        print(f"audit: NOT DONE, as the vulnerability service could not be asked: {reason}")
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
    """Audit what development and CI install."""
    parser = argparse.ArgumentParser(description="Known vulnerabilities in pinned versions.")
    parser.add_argument("--constraints", type=Path, default=CONSTRAINTS)
    parser.add_argument("--service", metavar="URL", help="another service that speaks as OSV does")
    given = parser.parse_args()
    required = os.environ.get("HOLDFAST_AUDIT") == "required"
    return audit(given.constraints, service=given.service, required=required)


if __name__ == "__main__":
    sys.exit(main())
