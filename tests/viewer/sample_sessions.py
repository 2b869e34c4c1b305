"""Sample sessions: one as agents record them, a long one, a hostile one and others."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal

import holdfast
from holdfast import BlockingSession
from holdfast.stores.portal import get_portal

AGENT = "research-bot"
SESSION = "ses_market_report"
FORK = "ses_what_if"
LONG_AGENT = "load-bot"
LONG = "ses_1500_events"
CROWDED = "ses_many_snapshots"
PRUNED_AGENT = "old-bot"
MULTI_AGENT = "team"

SCRIPT = "<script>window.hacked=1</script>"
IMAGE = '"><img src=x onerror=window.hacked=1>'
LINK = "javascript:window.hacked=1"
HOSTILE_AGENT = f"agent/{IMAGE}"
HOSTILE_SESSION = f"ses {SCRIPT}/ä 😀 100%?#&=+;{LINK}"

LONG_TEXT = "\n".join(
    f"{n:>3}. The {n}th finding, with its source and its date." for n in range(60)
)

PRICES = (
    """{"rows": [{"vendor": "Aldane", "eur": 41.2}, {"vendor": "Brixen", "eur": 38.9}], "n": 2}"""
)


FRAMEWORKS = "frameworks"
FRAMEWORK_MESSAGES = {
    "claude-code": [
        {"type": "user", "uuid": "u0", "message": {"role": "user", "content": "Is it open?"}},
        {
            "type": "assistant",
            "uuid": "u1",
            "message": {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "look_up", "input": {"q": 1}}],
            },
        },
        {
            "type": "user",
            "uuid": "u2",
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "from nine"}],
            },
        },
        {
            "type": "assistant",
            "uuid": "u3",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "At nine."}]},
        },
    ],
    "pydantic-ai": [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Is it open?"}]},
        {
            "kind": "response",
            "parts": [
                {
                    "part_kind": "tool-call",
                    "tool_call_id": "c1",
                    "tool_name": "look_up",
                    "args": {"q": 1},
                }
            ],
        },
        {
            "kind": "request",
            "parts": [
                {
                    "part_kind": "tool-return",
                    "tool_call_id": "c1",
                    "tool_name": "look_up",
                    "content": "from nine",
                }
            ],
        },
        {"kind": "response", "parts": [{"part_kind": "text", "content": "At nine."}]},
    ],
    "adk": [
        {"author": "user", "content": {"role": "user", "parts": [{"text": "Is it open?"}]}},
        {
            "author": "clerk",
            "content": {
                "role": "model",
                "parts": [{"functionCall": {"id": "c1", "name": "look_up", "args": {"q": 1}}}],
            },
        },
        {
            "author": "clerk",
            "content": {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "c1",
                            "name": "look_up",
                            "response": {"result": "from nine"},
                        }
                    }
                ],
            },
        },
        {"author": "clerk", "content": {"role": "model", "parts": [{"text": "At nine."}]}},
    ],
    "agent-framework": [
        {
            "type": "message",
            "role": "user",
            "contents": [{"type": "text", "text": "Is it open?"}],
        },
        {
            "type": "message",
            "role": "assistant",
            "contents": [
                {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": {"q": 1}}
            ],
        },
        {
            "type": "message",
            "role": "tool",
            "contents": [{"type": "function_result", "call_id": "c1", "result": "from nine"}],
        },
        {
            "type": "message",
            "role": "assistant",
            "contents": [{"type": "text", "text": "At nine."}],
        },
    ],
    "codex": [
        {"type": "message", "role": "user", "content": [{"text": "Is it open?"}]},
        {"type": "custom_tool_call", "call_id": "c1", "name": "look_up", "input": "1"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "from nine"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "At nine."}]},
    ],
    "letta": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Is it open?"}],
            "tool_call_id": None,
        },
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "I look."}],
            "tool_calls": [{"id": "c1", "function": {"name": "look_up", "arguments": "{}"}}],
            "tool_call_id": None,
        },
        {
            "role": "tool",
            "content": [{"type": "text", "text": "OK"}],
            "tool_call_id": "c1",
            "tool_returns": [{"tool_call_id": "c1", "func_response": "from nine"}],
        },
        {"role": "assistant", "content": "At nine.", "tool_call_id": None, "tool_returns": []},
    ],
    "grampus": [
        {"role": "user", "content": "Is it open?", "tool_calls": [], "tool_results": []},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "name": "look_up", "arguments": {"q": 1}}],
        },
        {
            "role": "tool",
            "content": None,
            "tool_results": [{"tool_call_id": "c1", "output": "from nine"}],
        },
        {"role": "assistant", "content": "At nine.", "tool_calls": [], "tool_results": []},
    ],
}


def report_session(state_store, pause: float = 0) -> None:
    """Record a session with messages in several formats, values, snapshots and a fork.

    With a ``pause`` between its events, its growth looks like that of a real agent.
    """
    with BlockingSession.open(state_store, agent_id=AGENT, session_id=SESSION) as session:
        session.status = "running"
        session.add_message("system", "You compare market reports and cite what you use.")
        session.add_message(
            "user", "Compare the two reports on battery prices and tell me what changed."
        )
        session.set(
            "plan",
            {
                "steps": [
                    {"what": "find both reports", "done": False},
                    {"what": "compare prices", "done": False},
                    {"what": "write a summary", "done": False},
                ],
                "budget": {"tokens": 20_000, "eur": Decimal("1.50")},
            },
        )
        time.sleep(pause * 1)
        session.record("llm.called", {"model": "large-1", "input_tokens": 412, "output_tokens": 96})
        session.add_message(
            "assistant",
            "I will look for both reports first.",
            tool_calls=[
                call("call_1", "search_reports", '{"query": "battery prices 2025", "limit": 5}'),
                call("call_2", "search_reports", '{"query": "battery prices 2026", "limit": 5}'),
            ],
        )
        session.record("tool.called", {"tool": "search_reports", "call": "call_1"})
        time.sleep(pause * 2)
        session.add_message("tool", PRICES, tool_call_id="call_1")
        session.add_message("tool", '{"rows": [], "n": 0}', tool_call_id="call_2")
        session.set("sources", ["aldane-2025.pdf", "brixen-2025.pdf"])
        first = session.save(tags={"step": "searched"})
        time.sleep(pause * 1)
        plan = session.get("plan")
        plan["steps"][0]["done"] = True
        plan["budget"]["tokens"] = 17_900
        plan["note"] = "second search was empty"
        session.set("plan", plan)
        session.set("draft", "to be removed")
        session.append_message(
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "thinking",
                        "thinking": "The second search found nothing: read the file.",
                    },
                    {"type": "text", "text": "The 2026 report is not indexed. I read it directly."},
                    {
                        "type": "tool_use",
                        "id": "toolu_7",
                        "name": "read_file",
                        "input": {"path": "reports/2026.pdf", "pages": [1, 2, 3]},
                    },
                ],
            }
        )
        time.sleep(pause * 4)
        session.append_message(
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_7", "content": LONG_TEXT}
                ],
            }
        )
        session.delete("draft")
        time.sleep(pause * 1)
        session.record(
            "memory.written",
            {"about": "vendors"},
            changes={
                "set": [
                    ("memory", "vendors", {"Aldane": 0.82, "Brixen": 0.74}),
                    ("memory", "seen", datetime(2026, 3, 1, 9, 30, tzinfo=UTC)),
                ],
                "delete": [],
            },
        )
        session.append_message(
            {"kind": "handoff", "to": "writer-bot", "because": ["summary", "tone"]}
        )
        session.set("prices", {str(year): year / 10 for year in range(1900, 2150)})
        time.sleep(pause * 1)
        session.save(tags={"step": "read", "env": "production"})
        session.add_message(
            "assistant",
            "Prices fell by 5.6 % between the two reports. Brixen is cheaper than Aldane in both; "
            "the gap narrowed from 2.30 to 1.10 EUR.",
        )
        time.sleep(pause * 3)
        session.add_message("user", "Good. Send the summary to the team.")
        session.add_message(
            "assistant",
            None,
            tool_calls=[call("call_9", "send_mail", '{"to": "team@example.org"}')],
        )
        time.sleep(pause * 2)
        session.status = "waiting"
        session.save(tags={"step": "before sending"})
        session.fork(FORK, at=first.snapshot_id).close()


def call(call_id: str, name: str, arguments: str) -> dict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def hostile_session(state_store) -> None:
    """Record markup and scripts wherever text is possible."""
    with BlockingSession.open(
        state_store, agent_id=HOSTILE_AGENT, session_id=HOSTILE_SESSION
    ) as session:
        session.add_message("user", SCRIPT + IMAGE)
        session.add_message(IMAGE, LINK, name=SCRIPT, **{IMAGE: SCRIPT})
        session.append_message({SCRIPT: IMAGE})
        session.add_message("assistant", IMAGE, tool_calls=[call(IMAGE, SCRIPT, SCRIPT)])
        session.add_message("tool", SCRIPT, tool_call_id=IMAGE)
        session.set(IMAGE, {SCRIPT: [IMAGE, LINK], "__proto__": SCRIPT})
        session.record(
            SCRIPT, {IMAGE: SCRIPT}, changes={"set": [(SCRIPT, IMAGE, LINK)], "delete": []}
        )
        session.save(tags={IMAGE: SCRIPT})
        session.set(IMAGE, {SCRIPT: [IMAGE], "constructor": IMAGE})


def long_session(state_store) -> None:
    """Record 1,500 events, 1,349 of them messages: more than one diff lists."""
    with BlockingSession.open(state_store, agent_id=LONG_AGENT, session_id=LONG) as session:
        for number in range(1, 1350):  # with session.started and the status, 1,500 events
            session.add_message("user" if number % 2 else "assistant", f"message number {number}")
            if number % 9 == 0:
                session.set("counter", {"at": number})
            if number % 150 == 0:
                session.save(tags={"at": str(number)})
        session.status = "completed"


def many_snapshots(state_store) -> None:
    """Save more snapshots than fit beside each other on the timeline."""
    with BlockingSession.open(state_store, agent_id=LONG_AGENT, session_id=CROWDED) as session:
        for number in range(120):
            session.set("turn", number)
            session.save(tags={"turn": str(number)})


def pruned_sessions(state_store) -> None:
    """Prune a session to its head, and another that continues after it."""
    with BlockingSession.open(state_store, agent_id=PRUNED_AGENT, session_id="ses_all") as session:
        for number in range(6):
            session.set("turn", number)
            session.save()
        prune(session)
    with BlockingSession.open(state_store, agent_id=PRUNED_AGENT, session_id="ses_most") as session:
        for number in range(6):
            session.set("turn", number)
            session.save()
        prune(session)
        session.add_message("user", "still here")
        session.set("turn", 7)


def prune(session: BlockingSession) -> None:
    archive = holdfast.SnapshotArchive(session.state_store)
    policy = holdfast.RetentionPolicy(last=1)
    get_portal().call(archive.prune(location=session.location, policy=policy))


def multi_agent_session(state_store) -> None:
    """Record one conversation of two agents."""
    with BlockingSession.open(
        state_store, agent_id=MULTI_AGENT, session_id="ses_team", scope="multi_agent"
    ) as session:
        session.agent("planner").add_message("assistant", "We do the summary first.")
        session.agent("writer").add_message("assistant", "Done.")
        session.agent("writer").set("words", 412)


def framework_sessions(state_store) -> None:
    """Record a question, a tool call, its result and an answer as each framework stores them."""
    for framework, messages in FRAMEWORK_MESSAGES.items():
        with BlockingSession.open(
            state_store, agent_id=FRAMEWORKS, session_id=framework
        ) as session:
            for message in messages:
                session.append_message(message)


def agents_and_sessions_on_two_pages(state_store) -> None:
    """Create more agents, and more sessions of one agent, than the 50 of a page."""
    for number in range(52):
        with BlockingSession.open(
            state_store, agent_id=f"agent-{number:03}", session_id=f"s-{number}"
        ):
            pass
    for number in range(52):
        with BlockingSession.open(state_store, agent_id="busy", session_id=f"run-{number:03}"):
            pass


def store_with(*recorders) -> holdfast.StateStore:
    """Return a store in memory with the sessions that the functions record."""
    state_store = holdfast.open_state_store("memory:")
    for record in recorders:
        record(state_store)
    return state_store
