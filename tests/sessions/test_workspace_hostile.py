"""Sessions whose files anybody may have written: nothing is written outside of the folder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast import IntegrityError, WorkspaceError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.conversations import open_session
from support.file_trees import read_tree, write_tree

parts = st.sampled_from(
    [
        "a",
        "b",
        "link",
        "out",
        "..",
        ".",
        "",
        ".git",
        ".GIT ",
        ".holdfast",
        "git~1",
        "\0",
        "é",
        "x\\y",
    ]
)
paths = st.lists(parts, min_size=1, max_size=4).map("/".join)
modes = st.sampled_from([0o644, 0o777, 0, 0o4755, -1, "644"])
entries = st.one_of(
    st.builds(lambda mode: {"digest": "?", "size": 1, "mode": mode}, modes),
    st.builds(
        lambda link, mode: {"link": link, "mode": mode},
        st.sampled_from(["../outside", "/etc/passwd", "a", "", "x\0", 5]),
        modes,
    ),
    st.just({"digest": "../../x", "size": 1, "mode": 0o644}),
    st.none(),
)


@given(files=st.dictionaries(paths, entries, min_size=1, max_size=4))
def test_a_restore_stays_inside_or_is_refused(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    root, outside = folder / "root", folder / "outside"
    write_tree(outside, {"file": "keep"})
    write_tree(root, {"seed": "1", ".git/config": "keep", "link": f"->{outside}"})

    async def attack():
        session = await open_session(MemoryStateStore())
        workspace = session.workspace(root)
        await workspace.capture()
        known = session.snapshot().get("files", "seed")["digest"]
        values = [
            (
                "files",
                path,
                {**value, "digest": known} if (value or {}).get("digest") == "?" else value,
            )
            for path, value in files.items()
        ]
        session.record("import", changes={"set": values, "delete": [("files", "link")]})
        mark = session.snapshot()
        try:
            await workspace.restore(at=mark, force=True)
        except (IntegrityError, WorkspaceError):
            return False
        return True

    before = read_tree(root)
    is_done = run_async(attack())
    assert read_tree(outside) == {"file": b"keep"}
    assert sorted(path.name for path in folder.iterdir()) == ["outside", "root"]
    after = read_tree(root)
    assert after[".git/config"] == b"keep"
    assert is_done or after == before
