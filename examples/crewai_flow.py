"""A CrewAI flow with its state in Holdfast.

It crashes in a method, resumes in a new process, waits for a person, and is rolled back, forked,
exported, imported into another store, compared and shown in the viewer. It needs no model.
Run: pip install 'holdfast[crewai]', then python examples/crewai_flow.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai.flow.async_feedback.types import HumanFeedbackPending
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import persist
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.crewai import HoldfastFlowPersistence

AGENT = "booking"
FLOW = "table-7"


# ------------------------------------------------------------------------------------------ flow


class AskLater:
    """Pauses a flow until a person answers."""

    def request_feedback(self, context: Any, flow: Any) -> str:  # noqa: ARG002
        """Pause."""
        raise HumanFeedbackPending(context=context)


def build(persistence: HoldfastFlowPersistence) -> type[Flow]:
    """Return the class of the flow."""

    @persist(persistence)
    class BookingFlow(Flow):
        suppress_flow_events: bool = True

        @start()
        def look(self) -> None:
            self.state.setdefault("messages", [])
            if not self.state["messages"]:
                self.state["messages"].append({"role": "user", "content": "Is there a table?"})

        @listen(look)
        def find(self) -> None:
            if "crash" in sys.argv:
                os._exit(137)  # the process dies in this method
            self.state["table"] = "the one at the window"

        @listen(find)
        @human_feedback(message="Do you want it?", provider=AskLater())
        def offer(self) -> str:
            return str(self.state["table"])

        @listen(offer)
        def book(self, result: Any) -> str:
            answer = f"{result.output}: {result.feedback}"
            self.state["messages"].append({"role": "assistant", "content": answer})
            self.state["booked"] = True
            return answer

    return BookingFlow


def run_flow(persistence: HoldfastFlowPersistence, flow_id: str, answer: str) -> None:
    """Run the flow until it asks, and answer as the person."""
    flow = build(persistence)
    asked = flow(persistence=persistence).kickoff(inputs={"id": flow_id})
    print(f"   it asks: {asked.context.message}", flush=True)
    resumed = flow.from_pending(flow_id, persistence)
    print(f"   {resumed.resume(answer)}", flush=True)


# ---------------------------------------------------------------------------------------- script


def demonstrate(script: str) -> None:
    """Crash a flow, and continue from what it committed."""
    print("1. A flow starts, and its process crashes in a method:", flush=True)
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: S603
    print(f"   exit code {ended.returncode}")

    url = "sqlite:///agents.db"
    with HoldfastFlowPersistence.from_url(url, agent_id=AGENT) as persistence:
        print(f"2. A new process finds {sorted(persistence.load_state(FLOW) or {})} and continues:")
        run_flow(persistence, FLOW, "yes")

        with holdfast.BlockingSession.open(url, agent_id=AGENT, session_id=FLOW) as session:
            found = next(each for each in session.events if each.data == {"method": "find"})
            session.restore(found.seq)
            print(f"3. The booking is rolled back: {sorted(session.state)}")

            session.fork("what-if")
            print("4. A fork continues differently:")
            run_flow(persistence, "what-if", "no")

            document = session.export(tags={"reason": "example"})
            document_file = Path("table_7.json")
            document_file.write_text(document.to_json(), "utf-8")
            print(f"5. The session is exported to {document_file}")

    other = "sqlite:///staging.db"
    subprocess.run(  # noqa: S603
        [sys.executable, "-m", "holdfast", "state", "import", "table_7.json", "--store", other],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with HoldfastFlowPersistence.from_url(other, agent_id=AGENT) as persistence:
        print("6. Another store imports it and continues:")
        run_flow(persistence, FLOW, "yes, please")
    with holdfast.BlockingSession.open(other, agent_id=AGENT, session_id=FLOW) as session:
        diff = session.snapshot().diff(document.snapshot)

    print("7. Compared with the file, these are new:")
    for space, key in diff["added"]:
        print(f"   {space}/{key}")

    print("8. The viewer shows it:", flush=True)
    show_in_viewer(url, AGENT, FLOW)


if __name__ == "__main__":
    SCRIPT = str(Path(__file__).absolute())
    if sys.argv[1:] == ["crash"]:
        with HoldfastFlowPersistence.from_url("sqlite:///agents.db", agent_id=AGENT) as stored:
            run_flow(stored, FLOW, "yes")
    else:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            demonstrate(SCRIPT)
