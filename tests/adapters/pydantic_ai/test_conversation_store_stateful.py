"""HoldfastConversationStore behaves as Pydantic AI's InMemoryConversationStore."""

from __future__ import annotations

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

from holdfast import SnapshotArchive
from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.backends import SharedMemory

NAMES = ["a", "b", "odd/näme .."]
SCOPES = st.sampled_from([None, "user-1", "user-2"])
CONVERSATIONS = st.sampled_from(NAMES)
YES_OR_NO = st.booleans()
MESSAGES = st.lists(
    st.one_of(
        st.sampled_from("xyz").map(lambda text: ModelRequest(parts=[UserPromptPart(text)])),
        st.sampled_from("xyz").map(lambda text: ModelResponse(parts=[TextPart(text)])),
    ),
    max_size=3,
)
NUMBERS = st.integers(-1, 6)
LIMITS = st.sampled_from([None, -1, 0, 1, 2, 5])


class Stores(RuleBasedStateMachine):
    """Two stores of ours over the same content, and theirs, which get the same calls.

    The ids that the one store makes are different from those of the other, so entries are compared
    by their position.
    """

    @initialize()
    def begin(self):
        self.content = MemoryStateStore()
        self.ours = [self.another(), self.another()]
        self.theirs = InMemoryConversationStore()
        self.ids = {}
        """Our ids of entries by theirs."""
        self.loaded = []
        """Pairs of conversations, ours and theirs, that were loaded or made at any time."""

    def another(self):
        return HoldfastConversationStore(SharedMemory(self.content), agent_id="bot")

    def both(self, which, name, *given, **named):
        """Call a method of both stores with the same arguments; return what they answer."""
        ours = self.answer(self.ours[which], name, *given, **named)
        theirs = self.answer(self.theirs, name, *given, **named)
        return self.same(ours, theirs)

    @staticmethod
    def answer(store, name, *given, **named):
        try:
            return run_async(getattr(store, name)(*given, **named))
        except (UserError, LookupError) as error:
            return error

    @staticmethod
    def same(ours, theirs):
        assert type(ours) is type(theirs), (ours, theirs)
        return ours, theirs

    # --------------------------------------------------------------------------------- changes

    @rule(name=CONVERSATIONS, messages=MESSAGES)
    def make(self, name, messages):
        """Start a conversation without a store."""
        pair = [Conversation(conversation_id=name, messages=list(messages)) for _ in range(2)]
        self.loaded.append(pair)

    @rule(
        name=CONVERSATIONS,
        limit=LIMITS,
        scope=SCOPES,
        which=YES_OR_NO,
    )
    def load(self, name, limit, scope, which):
        ours, theirs = self.both(which, "load", name, limit=limit, scope=scope)
        if isinstance(theirs, Conversation):
            self.check_conversation(ours, theirs)
            self.loaded.append([ours, theirs])

    @precondition(lambda self: self.loaded)
    @rule(
        data=st.data(),
        messages=MESSAGES,
        scope=SCOPES,
        edit=st.sampled_from(["append", "append", "rewrite", "serialize"]),
        waits=YES_OR_NO,
        which=YES_OR_NO,
    )
    def save(self, data, messages, scope, edit, waits, which):
        """Save a conversation that may be out of date, with messages added or rewritten."""
        pair = data.draw(st.sampled_from(self.loaded))
        cut = data.draw(st.integers(0, len(pair[1].messages)))
        answers = []
        for store, conversation in zip((self.ours[which], self.theirs), pair, strict=True):
            if edit == "rewrite":
                del conversation.messages[cut:]
            if edit == "serialize":
                conversation.messages[:] = copy.deepcopy(conversation.messages)
            conversation.messages.extend(messages)
            conversation.usage = conversation.usage + RunUsage(requests=1, input_tokens=cut)
            call = ToolCallPart("pay", {"n": cut}, "call_1")
            conversation.deferred_tool_requests = (
                DeferredToolRequests(approvals=[call]) if waits else None
            )
            answers.append(self.answer(store, "save", conversation, scope=scope))
        ours, theirs = self.same(*answers)
        if isinstance(theirs, list):
            assert [each.message for each in ours] == [each.message for each in theirs]
            self.ids.update(zip((e.id for e in theirs), (e.id for e in ours), strict=True))

    @precondition(lambda self: self.loaded)
    @rule(
        data=st.data(),
        at=NUMBERS,
        scope=SCOPES,
        by_entry=YES_OR_NO,
        which=YES_OR_NO,
    )
    def branch(self, data, at, scope, by_entry, which):
        ours, theirs = data.draw(st.sampled_from(self.loaded))
        name = theirs.conversation_id
        mine = yours = {"at": at}
        if by_entry and self.ids:
            entry = data.draw(st.sampled_from(list(self.ids)))
            mine, yours = {"from_entry": self.ids[entry]}, {"from_entry": entry}
        pair = self.same(
            self.answer(
                self.ours[which],
                "branch",
                name,
                expected_revision=ours.revision,
                scope=scope,
                **mine,
            ),
            self.answer(
                self.theirs, "branch", name, expected_revision=theirs.revision, scope=scope, **yours
            ),
        )
        if isinstance(pair[1], Conversation):
            self.check_conversation(*pair)
            self.loaded.append(list(pair))

    @rule(
        data=st.data(),
        name=CONVERSATIONS,
        new=CONVERSATIONS,
        at=st.one_of(st.none(), NUMBERS),
        scope=SCOPES,
        source_scope=SCOPES,
        by_entry=YES_OR_NO,
        which=YES_OR_NO,
    )
    def fork(self, data, name, new, at, scope, source_scope, by_entry, which):
        mine = yours = {"at": at}
        if by_entry and self.ids:
            entry = data.draw(st.sampled_from(list(self.ids)))
            mine, yours = {"from_entry": self.ids[entry]}, {"from_entry": entry}
        more = {"new_conversation_id": new, "scope": scope, "source_scope": source_scope}
        pair = self.same(
            self.answer(self.ours[which], "fork", name, **more, **mine),
            self.answer(self.theirs, "fork", name, **more, **yours),
        )
        if isinstance(pair[1], Conversation):
            self.check_conversation(*pair)
            self.loaded.append(list(pair))

    @rule(name=CONVERSATIONS, scope=SCOPES, which=YES_OR_NO)
    def delete(self, name, scope, which):
        self.both(which, "delete", name, scope=scope)

    @rule(name=CONVERSATIONS, which=YES_OR_NO)
    def delete_record(self, name, which):
        """Delete a record that may have changed."""
        for ours, theirs in self.loaded[-1:]:
            if theirs.revision is not None:
                self.same(
                    self.answer(
                        self.ours[which], "delete_record", name, expected_revision=ours.revision
                    ),
                    self.answer(
                        self.theirs, "delete_record", name, expected_revision=theirs.revision
                    ),
                )

    @rule(which=YES_OR_NO)
    def restart(self, which):
        """Start another process."""
        self.ours[which] = self.another()

    # ----------------------------------------------------------------------------------- reads

    @rule(scope=SCOPES, limit=LIMITS, which=YES_OR_NO)
    def list(self, scope, limit, which):
        ours, theirs = self.both(which, "list_conversations", scope=scope, limit=limit)
        if not isinstance(theirs, Exception):
            assert len(ours) == len(theirs)
            for mine, yours in zip(ours, theirs, strict=True):
                self.check_record(mine, yours)

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), which=YES_OR_NO, limit=st.sampled_from([None, 0, 1, 3]))
    def read_entry(self, data, which, limit):
        """Read entries by ids, also those of branches and of deleted conversations."""
        entry_id = data.draw(st.sampled_from(list(self.ids)))
        ours, theirs = self.same(
            self.answer(self.ours[which], "read_entry", self.ids[entry_id]),
            self.answer(self.theirs, "read_entry", entry_id),
        )
        if not isinstance(theirs, Exception):
            self.check_entries([ours], [theirs])
        ours, theirs = self.same(
            self.answer(self.ours[which], "read_history", self.ids[entry_id], limit=limit),
            self.answer(self.theirs, "read_history", entry_id, limit=limit),
        )
        if not isinstance(theirs, Exception):
            self.check_entries(ours, theirs)

    @rule(
        name=CONVERSATIONS,
        limit=LIMITS,
        scope=SCOPES,
        which=YES_OR_NO,
    )
    def load_entries(self, name, limit, scope, which):
        ours, theirs = self.both(which, "load_entries", name, limit=limit, scope=scope)
        if isinstance(theirs, list):
            self.check_entries(ours, theirs)

    @rule(name=CONVERSATIONS, which=YES_OR_NO)
    def read_record(self, name, which):
        ours, theirs = self.both(which, "read_record", name)
        if theirs is not None:
            self.check_record(ours, theirs)

    def teardown(self):
        for name in NAMES if hasattr(self, "theirs") else ():
            ours, theirs = self.both(1, "load_entries", name)
            if theirs is not None:
                self.check_entries(ours, theirs)
                state = SnapshotArchive(self.content)
                verified = run_async(state.verify(location=self.ours[0].location(name)))
                assert verified.ok, verified.damage
        for entry_id in self.ids if hasattr(self, "theirs") else ():
            self.same(
                self.answer(self.another(), "read_entry", self.ids[entry_id]),
                self.answer(self.theirs, "read_entry", entry_id),
            )

    # ------------------------------------------------------------------------------ comparing

    def check_conversation(self, ours, theirs):
        assert ours.messages == theirs.messages
        assert ours.usage == theirs.usage
        assert ours.deferred_tool_requests == theirs.deferred_tool_requests
        assert ours.conversation_id == theirs.conversation_id
        assert ours.new_message_index == theirs.new_message_index

    def check_record(self, ours, theirs):
        for name in ("conversation_id", "usage", "deferred_tool_requests", "scope", "forked_from"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert ours.head_id == self.map(theirs.head_id)
        assert ours.forked_at == self.map(theirs.forked_at)
        assert ours.branches == [self.map(each) for each in theirs.branches]

    def check_entries(self, ours, theirs):
        assert [each.id for each in ours] == [self.map(each.id) for each in theirs]
        assert [each.parent_id for each in ours] == [self.map(each.parent_id) for each in theirs]
        dump = ModelMessagesTypeAdapter.dump_json
        assert dump([each.message for each in ours]) == dump([each.message for each in theirs])

    def map(self, entry_id):
        return None if entry_id is None else self.ids[entry_id]


TestStores = Stores.TestCase
TestStores.settings = settings(settings.default, stateful_step_count=30)
