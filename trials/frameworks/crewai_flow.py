"""CrewAI: a flow of twelve steps, saved after each, and then a question to a person."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_DISABLE_TRACKING="true",
    CREWAI_TRACING_ENABLED="false",
    OTEL_SDK_DISABLED="true",
)

from crewai.flow.async_feedback.types import HumanFeedbackPending
from crewai.flow.flow import Flow, listen, router, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import persist

from holdfast import Session, open_state_store
from holdfast.adapters.crewai import HoldfastFlowPersistence
from trials.frameworks.scenario import (
    note_acknowledged,
    note_step,
    read_acknowledged,
)

NUMBERS = 12
STEPS = NUMBERS + 2
FLOW = "flow-1"


class AskLater:
    """Pauses the flow until a person answers."""

    def request_feedback(self, context: Any, flow: Any) -> str:  # noqa: ARG002
        """Pause."""
        raise HumanFeedbackPending(context=context)


def build(persistence: HoldfastFlowPersistence, folder: Path) -> type[Flow]:
    """Return the class of the flow."""

    @persist(persistence)
    class CountingFlow(Flow):
        suppress_flow_events: bool = True

        @start()
        def begin(self) -> None:
            self.state.setdefault("seen", [])

        @router(begin)
        def choose(self) -> str:
            return "question" if len(self.state["seen"]) >= NUMBERS else "number"

        @router("number")
        def count(self) -> str:
            note_step(folder)
            number = len(self.state["seen"])
            self.state["seen"].append(number)
            persistence.save_state(FLOW, "count", dict(self.state))
            note_acknowledged(folder, str(number))
            return "question" if number + 1 >= NUMBERS else "more"

        @router("more")
        def again(self) -> str:
            return "number"

        @listen("question")
        @human_feedback(message="Is it right?", provider=AskLater())
        def ask(self) -> str:
            note_step(folder)
            return "twelve numbers"

        @listen(ask)
        def end(self, result: Any) -> str:
            note_step(folder)
            self.state["answer"] = result.feedback
            return "done"

    return CountingFlow


def work(url: str, folder: Path) -> None:
    """Run the flow to its end, and answer as the person."""
    with HoldfastFlowPersistence.from_url(url) as persistence:
        flow = build(persistence, folder)
        state = persistence.load_state(FLOW) or {}
        if "answer" in state:
            return
        if persistence.load_pending_feedback(FLOW) is None:
            flow(persistence=persistence).kickoff(inputs={"id": FLOW})
        flow.from_pending(FLOW, persistence).resume("yes")


async def run(url: str, folder: Path) -> None:
    """Run the flow, from its last save if there is one."""
    await asyncio.to_thread(work, url, folder)


async def check(url: str, folder: Path) -> list[str]:
    """Check that every number was counted once, and that the answer arrived."""
    async with open_state_store(url) as store:
        session = await Session.open(store, agent_id="flow", session_id=FLOW)
        seen, answer = session.get("seen") or [], session.get("answer")
        items = session.snapshot().values("crewai/items/seen")
    problems = []
    if items != list(range(NUMBERS)):
        problems.append(f"the flow counted {items or seen}")
    if answer != "yes":
        problems.append(f"the answer is {answer!r}")
    lost = [each for each in read_acknowledged(folder) if int(each) not in items]
    return [*problems, *(f"{each} was lost" for each in lost)]
