"""The services behave as ADK's in-memory services under random operations."""

from __future__ import annotations

import copy

from google.adk.artifacts import InMemoryArtifactService
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.adapters.adk import HoldfastArtifactService, HoldfastSessionService
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.backends import SharedMemory

APPS = st.sampled_from(["shop", "a:b"])
USERS = st.sampled_from(["ana", "b%3A"])
NAMES = st.sampled_from(["s1", " s1 ", "x:y"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(["k", "user:k", "app:k", "temp:k", "user:", "deep.key", "", "odd/é:x"])
STATES = st.dictionaries(KEYS, VALUES, max_size=4)
EVENTS = st.tuples(
    st.none() | st.text(max_size=5),
    STATES,
    st.sampled_from([None, None, None, True]),
    st.sampled_from([0.0, 0.5, 2.0]),
)
WHICH = st.integers(0, 1)
PICKS = st.integers(0, 2)
SAVED = (AlreadyExistsError, SessionNotFoundError)


class Sessions(RuleBasedStateMachine):
    """Two session services that get the same calls; ours from two services on one store."""

    @initialize()
    def begin(self):
        self.content = MemoryStateStore()
        self.ours = [self.another(), self.another()]
        self.theirs = InMemorySessionService()
        self.time = 1000.0
        self.known = []

    def another(self):
        return HoldfastSessionService(SharedMemory(self.content), state_in_lists=True)

    def call(self, method, which=0, **arguments):
        """Call both; return both results, or the type of the error of both."""
        results = []
        for service in (self.ours[which], self.theirs):
            try:
                results.append(run_async(getattr(service, method)(**copy.deepcopy(arguments))))
            except SAVED as error:
                results.append(type(error))
        return results

    @rule(app=APPS, user=USERS, name=NAMES, state=STATES, which=WHICH)
    def create(self, app, user, name, state, which):
        ids = {"app_name": app, "user_id": user, "session_id": name}
        ours, theirs = self.call("create_session", which, **ids, state=state)
        compare(ours, theirs, times=False)
        self.known.append(ids)

    def pick(self, number):
        """Return the ids of a session that was created; it may be deleted since."""
        return self.known[number % len(self.known)]

    @precondition(lambda self: self.known)
    @rule(pick=PICKS, events=st.lists(EVENTS, min_size=1, max_size=3), which=WHICH)
    def append(self, pick, events, which):
        ours, theirs = self.call("get_session", which, **self.pick(pick))
        if ours is None or theirs is None:
            assert ours is theirs
            return
        for text, state, partial, step in events:
            self.time += step
            content = None if text is None else types.Content(parts=[types.Part(text=text)])
            event = Event(
                author="agent",
                invocation_id="i",
                content=content,
                partial=partial,
                timestamp=self.time,
                actions=EventActions(state_delta=state),
            )
            run_async(self.ours[which].append_event(ours, event.model_copy(deep=True)))
            run_async(self.theirs.append_event(theirs, event.model_copy(deep=True)))
            compare(ours, theirs, times=not partial)

    @precondition(lambda self: self.known)
    @rule(pick=PICKS, most=st.none() | st.integers(0, 3), after=st.none() | st.floats(0, 5))
    def get(self, pick, most, after):
        config = GetSessionConfig(
            num_recent_events=most, after_timestamp=None if after is None else self.time - after
        )
        for each in (config, None):
            ours, theirs = self.call("get_session", **self.pick(pick), config=each)
            compare(ours, theirs, times=bool(theirs and theirs.events))

    @rule(app=APPS, user=st.none() | USERS)
    def list(self, app, user):
        ours, theirs = self.call("list_sessions", 1, app_name=app, user_id=user)
        found, wanted = (
            {(each.user_id, each.id): each for each in r.sessions} for r in (ours, theirs)
        )
        assert found.keys() == wanted.keys()
        for ids, session in wanted.items():
            compare(found[ids], session, times=False)
        times = [each.last_update_time for each in ours.sessions]
        assert times == sorted(times)

    @rule(app=APPS, user=USERS)
    def user_state(self, app, user):
        ours, theirs = self.call("get_user_state", 1, app_name=app, user_id=user)
        assert ours == theirs

    @precondition(lambda self: self.known)
    @rule(pick=PICKS)
    def delete(self, pick):
        self.call("delete_session", **self.pick(pick))


def compare(ours, theirs, *, times):
    """Compare two sessions, or what was raised."""
    if theirs is None or isinstance(theirs, type):
        assert ours is theirs
        return
    ours, theirs = ours.model_dump(), theirs.model_dump()
    if not times:  # of a creation by two clocks
        ours.pop("last_update_time"), theirs.pop("last_update_time")
    assert ours == theirs


class Artifacts(RuleBasedStateMachine):
    """Two artifact services that get the same calls."""

    FILES = ("a.txt", "user:a.txt", "dir/é")
    SESSIONS = ("s1", "user2")
    PARTS = st.one_of(
        st.builds(types.Part, text=st.text(max_size=4)),
        st.builds(
            lambda data: types.Part(inline_data=types.Blob(mime_type="a/b", data=data)),
            st.binary(max_size=4),
        ),
        st.just(types.Part(file_data=types.FileData(file_uri="gs://b/f", mime_type="c/d"))),
        st.just(types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))),
    )

    @initialize()
    def begin(self):
        self.ours = HoldfastArtifactService(MemoryStateStore())
        self.theirs = InMemoryArtifactService()

    async def call(self, method, **arguments):
        return [
            await getattr(service, method)(app_name="shop", user_id="ana", **arguments)
            for service in (self.ours, self.theirs)
        ]

    @rule(
        name=st.sampled_from(SESSIONS),
        file=st.sampled_from(FILES),
        part=PARTS,
        metadata=st.none() | st.just({"a": 1}),
    )
    def save(self, name, file, part, metadata):
        ids = {"session_id": name, "filename": file}
        ours, theirs = run_async(
            self.call("save_artifact", **ids, artifact=part, custom_metadata=metadata)
        )
        assert ours == theirs

    @rule(name=st.sampled_from(SESSIONS), file=st.sampled_from(FILES))
    def delete(self, name, file):
        run_async(self.call("delete_artifact", session_id=name, filename=file))

    @invariant()
    def all_reads_agree(self):
        run_async(self.compare())

    async def compare(self):
        for name in (*self.SESSIONS, None):
            ours, theirs = await self.call("list_artifact_keys", session_id=name)
            assert ours == theirs
        for ids in (
            {"session_id": name, "filename": file} for name in self.SESSIONS for file in self.FILES
        ):
            ours, theirs = await self.call("list_versions", **ids)
            assert ours == theirs
            ours, theirs = await self.call("list_artifact_versions", **ids)
            assert [*map(describe, ours)] == [*map(describe, theirs)]
            for version in (None, 0, len(theirs) - 1, len(theirs)):
                ours, theirs_now = await self.call("load_artifact", **ids, version=version)
                assert ours == theirs_now
                ours, theirs_now = await self.call("get_artifact_version", **ids, version=version)
                assert describe(ours) == describe(theirs_now)


def describe(version):
    """A version without its time; the URI without its scheme."""
    if version is None:
        return None
    uri = version.canonical_uri.partition("://")[2]
    return version.version, uri, version.custom_metadata, version.mime_type


Sessions.TestCase.settings = settings(stateful_step_count=25)
Artifacts.TestCase.settings = settings(stateful_step_count=12)
TestSessions = Sessions.TestCase
TestArtifacts = Artifacts.TestCase
