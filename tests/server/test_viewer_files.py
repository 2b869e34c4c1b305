"""Pages of the viewer, and content that must not become one."""

from __future__ import annotations

from holdfast import Session
from support.async_tests import async_test


@async_test
async def test_pages_load_no_external_or_inline_scripts(api):
    for path in ("/", "/docs"):
        response = await api.get(path)
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        page = response.text
        assert "http://" not in page.replace("http://www.w3.org", "")
        assert "https://" not in page
        assert "onclick" not in page
        assert "<script>" not in page
        assert "style=" not in page
        tag = response.headers["etag"]
        again = await api.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
    response = await api.get("/viewer/app.js")
    assert response.headers["content-type"] == "text/javascript; charset=utf-8"


@async_test
async def test_agent_content_is_never_sent_as_html(store, api):

    hostile = "<script>alert(1)</script>"
    async with Session.open(store, agent_id=hostile, session_id=hostile) as session:
        session.add_message("user", hostile)
    path = "%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    for url in (
        "/agents",
        f"/agents/{path}/sessions/{path}/state",
        f"/agents/{path}/sessions/{path}/document",
        f"/agents/x{path}/sessions",
    ):
        response = await api.get(url)
        assert "script" in response.text
        assert response.headers["content-type"] in ("application/json", "application/problem+json")
