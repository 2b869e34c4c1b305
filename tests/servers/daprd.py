"""A real Dapr sidecar, if ``daprd`` is on the PATH, with two of its components."""

from __future__ import annotations

import shutil
import urllib.request
from pathlib import Path

import pytest

from servers.process import Server, free_port
from servers.redis_server import RedisServer

COMPONENT = """\
apiVersion: dapr.io/v1alpha1
kind: Component
metadata:
  name: {name}
spec:
  type: {type}
  version: v1
  metadata: {metadata}
"""


def needs_daprd() -> str:
    """Return the path of ``daprd``, or skip the test."""
    found = shutil.which("daprd")
    if found is None:
        pytest.skip("daprd is not on the PATH: `dapr init --slim` puts it into ~/.dapr/bin")
    return found


class Daprd(Server):
    """``statestore`` is in memory, ``redisstore`` in a Redis server."""

    def __init__(self, folder: Path, program: str, redis: RedisServer) -> None:
        super().__init__(folder)
        self.program = program
        self.redis = redis
        self.port = free_port()
        self.http_port = free_port()
        self.environment = {
            "DAPR_GRPC_PORT": str(self.port),
            "DAPR_HTTP_PORT": str(self.http_port),
        }

    def command(self) -> list[str]:
        resources = self.folder / "resources"
        resources.mkdir(exist_ok=True)
        settings = {
            "redisHost": f"127.0.0.1:{self.redis.port}",
            "redisPassword": self.redis.password,
        }
        for name, type_, metadata in (
            ("statestore", "state.in-memory", {}),
            ("redisstore", "state.redis", settings),
        ):
            listed = [f'{{name: {key}, value: "{value}"}}' for key, value in metadata.items()]
            text = COMPONENT.format(name=name, type=type_, metadata=f"[{', '.join(listed)}]")
            (resources / f"{name}.yaml").write_text(text)
        options = {
            "app-id": "holdfast-tests",
            "dapr-grpc-port": self.port,
            "dapr-http-port": self.http_port,
            "dapr-internal-grpc-port": free_port(),
            "dapr-listen-addresses": "127.0.0.1",
            "enable-metrics": "false",
            "resources-path": resources,
            "log-level": "warn",
        }
        return [self.program, *(f"--{name}={value}" for name, value in options.items())]

    def ready(self) -> bool:
        url = f"http://127.0.0.1:{self.http_port}/v1.0/healthz/outbound"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return answer.status == 204
        except OSError:
            return False
