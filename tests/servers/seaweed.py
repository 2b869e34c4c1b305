"""SeaweedFS, an object store with the S3 protocol, with two users and one bucket."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from servers.process import Server, answers, free_port

BUCKET = "holdfast-tests"
ACCESS_KEY = "tester-of-holdfast"
SECRET_KEY = "the-secret-of-the-tester"
# May do everything except delete.
KEEPER = {"access_key_id": "keeper-of-all", "secret_access_key": "the-secret-of-the-keeper"}


class SeaweedServer(Server):
    """Master, volume, filer and S3 gateway in one process. ``port`` is the gateway's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # The gRPC port of each is its port + 10,000.
        self.ports = {part: free_port(also=10_000) for part in ("master", "volume", "filer", "s3")}
        self.port = self.ports["s3"]
        identity = {
            "name": "tester",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        keeper = {
            "name": "keeper",
            "credentials": [
                {"accessKey": KEEPER["access_key_id"], "secretKey": KEEPER["secret_access_key"]}
            ],
            "policyNames": ["keeps"],
        }
        rights = [
            {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]},
            {"Effect": "Deny", "Action": ["s3:DeleteObject"], "Resource": ["arn:aws:s3:::*"]},
        ]
        policy = json.dumps({"Version": "2012-10-17", "Statement": rights})
        config = {
            "identities": [identity, keeper],
            "policies": [{"name": "keeps", "content": policy}],
        }
        (self.folder / "s3.json").write_text(json.dumps(config))

    def command(self) -> list[str]:
        return [
            str(Path(sys.executable).with_name("weed")),
            "server",
            f"-dir={self.folder}",
            "-ip=127.0.0.1",
            "-master.telemetry=false",
            "-master.peers=none",
            "-volume.max=100",
            "-filer",
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            f"-s3.config={self.folder / 's3.json'}",
            *(f"-{part}.port={port}" for part, port in self.ports.items()),
        ]

    def ready(self) -> bool:
        """Return whether an object can be written, which takes all four."""
        if not answers(self.port):
            return False
        try:
            self._create_bucket()
            obstore.put(self.bucket(), "ready", b"1")
        except (OSError, BaseError):
            return False
        return True

    def stop(self) -> None:
        self.kill()  # A clean shutdown is slow, and its data is not needed.
        for part, port in self.ports.items():
            for name in (f"{part}-{port}", f"{part}-grpc-{port + 10_000}"):
                Path(f"/tmp/seaweedfs-{name}.sock").unlink(missing_ok=True)

    def bucket(self, name: str = BUCKET) -> S3Store:
        """Return a client of the bucket, to bypass the store."""
        return S3Store(
            name,
            config={"endpoint": f"http://127.0.0.1:{self.port}", "region": "us-east-1"},
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True, "timeout": timedelta(seconds=5)},
            retry_config={"max_retries": 0},
        )

    def url(self, prefix: str, *, port: int | None = None, **options: object) -> str:
        """Return the URL of a store, optionally through another port."""
        query = {
            "endpoint": f"http://127.0.0.1:{port or self.port}",
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            **options,
        }
        return f"s3://{BUCKET}/{quote(prefix)}?{urlencode(query)}"

    def _create_bucket(self) -> None:
        address = obstore.sign(self.bucket(), "PUT", "", timedelta(minutes=1))
        try:
            urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=5).close()
        except urllib.error.HTTPError as answer:
            with answer:
                if answer.code != 409:  # it exists
                    raise
