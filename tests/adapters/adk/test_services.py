"""URIs of ADK's command line, in its registry and in a real server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request

import pytest
from google.adk.cli import service_registry
from google.adk.cli.utils.service_factory import (
    create_artifact_service_from_options,
    create_session_service_from_options,
)

from adapters.adk.scripted_agent import S1, texts
from holdfast.adapters.adk import (
    HoldfastArtifactService,
    HoldfastSessionService,
    open_session_service,
    register_services,
)
from holdfast.errors import StateStoreError
from holdfast.stores.registry import SCHEMES
from support.async_tests import run_async

YAML = """
services:
  - scheme: holdfast+sqlite
    type: session
    class: holdfast.adapters.adk.open_session_service
  - scheme: holdfast+sqlite
    type: artifact
    class: holdfast.adapters.adk.open_artifact_service
"""
AGENT = """
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


class Parrot(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = llm_request.contents[-1].parts[-1].text
        part = types.Part(text=f"Also {said}")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


root_agent = LlmAgent(name="shop", model=Parrot(model="parrot"))
"""


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Give a test a registry of its own."""
    monkeypatch.setattr(service_registry, "_service_registry_instance", None)


def test_every_store_has_a_scheme(tmp_path):
    register_services()
    registry = service_registry.get_service_registry()
    uri = f"holdfast+sqlite:///{tmp_path}/agents.db"
    for scheme in SCHEMES:
        assert f"holdfast+{scheme}" in registry._session_factories
        assert f"holdfast+{scheme}" in registry._artifact_factories
    session_service = create_session_service_from_options(
        base_dir=tmp_path, session_service_uri=uri, session_db_kwargs={"state_in_lists": True}
    )
    artifact_service = create_artifact_service_from_options(
        base_dir=tmp_path, artifact_service_uri=uri
    )
    assert isinstance(session_service, HoldfastSessionService)
    assert session_service.state_in_lists
    assert isinstance(artifact_service, HoldfastArtifactService)
    run_async(session_service.close())
    run_async(artifact_service.close())


def test_a_yaml_file_registers_them(tmp_path, monkeypatch):
    (tmp_path / "services.yaml").write_text(YAML)
    monkeypatch.syspath_prepend(tmp_path)
    service_registry.load_services_module(str(tmp_path))
    for create in (
        service_registry.get_service_registry().create_session_service,
        service_registry.get_service_registry().create_artifact_service,
    ):
        service = create(f"holdfast+sqlite:///{tmp_path}/a.db", agents_dir=str(tmp_path))
        assert "a.db" in repr(service)
        run_async(service.close())


def test_a_bad_uri_is_refused_without_its_password():
    with pytest.raises(ValueError, match=r"scheme 'postgresql'; use holdfast\+") as error:
        open_session_service("postgresql://u:secret@host/db")
    assert "secret" not in str(error.value)
    with pytest.raises(StateStoreError, match="unknown scheme 'etcd'"):
        open_session_service("holdfast+etcd://host")
    with pytest.raises(TypeError, match="pool_size"):
        open_session_service("holdfast+memory:", pool_size=3)


def test_adk_serves_agents_from_a_store(tmp_path):
    (tmp_path / "agents/shop").mkdir(parents=True)
    (tmp_path / "agents/shop/agent.py").write_text(AGENT)
    (tmp_path / "agents/services.py").write_text(
        "from holdfast.adapters.adk import register_services\n\nregister_services()\n"
    )
    url = f"sqlite:///{tmp_path}/agents.db"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "google.adk.cli", "api_server", "--port", str(port)]
    command += [f"--session_service_uri=holdfast+{url}", f"--artifact_service_uri=holdfast+{url}"]
    command.append(str(tmp_path / "agents"))
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,
    ):
        try:
            post = make_client(f"http://127.0.0.1:{port}", server, tmp_path / "log")
            post("/apps/shop/users/ana/sessions/s1", {"lang": "de"})
            events = post(
                "/run",
                {
                    "appName": "shop",
                    "userId": "ana",
                    "sessionId": "s1",
                    "newMessage": {"role": "user", "parts": [{"text": "hi"}]},
                },
            )
            assert events[-1]["content"]["parts"][0]["text"] == "Also hi"
        finally:
            server.terminate()
    found = run_async(read(url))
    assert texts(found) == ["hi", "Also hi"]
    assert found.state == {"lang": "de"}


async def read(url):
    async with HoldfastSessionService.from_url(url) as service:
        return await service.get_session(**S1)


def make_client(address, server, log):
    """Wait for a server; return a function that posts JSON to it."""
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{address}/list-apps", timeout=10).close()
            break
        except OSError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, textwrap.shorten(log.read_text(), 2000)
            time.sleep(0.1)

    def post(path, body):
        request = urllib.request.Request(
            address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    return post
