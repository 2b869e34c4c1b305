"""Flows without crews, so that no model is needed."""

from __future__ import annotations

from crewai.flow.async_feedback.types import HumanFeedbackPending
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import persist
from pydantic import BaseModel


class Trip(BaseModel):
    """The state of a flow."""

    id: str = ""
    city: str = ""
    steps: list[str] = []


class AskLater:
    """Pauses a flow until a person answers, in any process."""

    def request_feedback(self, context, flow):
        raise HumanFeedbackPending(context=context)


def make_trip(persistence):
    """A flow with a model as its state, saved after every method."""

    @persist(persistence)
    class TripFlow(Flow[Trip]):
        suppress_flow_events: bool = True

        @start()
        def choose(self):
            self.state.city = self.state.city or "Oslo"
            self.state.steps.append("choose")

        @listen(choose)
        def book(self):
            self.state.steps.append("book")
            return f"booked {self.state.city}"

    return TripFlow


def make_counter(persistence):
    """A flow with a dict as its state, saved after one method."""

    class CounterFlow(Flow):
        suppress_flow_events: bool = True

        @start()
        def first(self):
            self.state["count"] = self.state.get("count", 0) + 1

        @listen(first)
        @persist(persistence)
        def second(self):
            self.state["seen"] = [self.state["count"]]

        @listen(second)
        def third(self):
            self.state["lost"] = True
            return self.state["count"]

    return CounterFlow


def make_review():
    """A flow that asks a person, and continues with the answer."""

    class ReviewFlow(Flow):
        suppress_flow_events: bool = True

        @start()
        @human_feedback(message="Is it good?", provider=AskLater())
        def draft(self):
            self.state["draft"] = "a text"
            return self.state["draft"]

        @listen(draft)
        def publish(self, result):
            self.state["answer"] = result.feedback
            return f"published: {result.feedback}"

    return ReviewFlow
