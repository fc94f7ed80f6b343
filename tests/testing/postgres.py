"""A PostgreSQL server of the tests' own: made in a temporary directory, on a Unix socket and a loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcac.deployment.processes import free_port

#: Password of the user who may only read; tests look for it where it must not appear.
PASSWORD = "correct-horse-battery"


@dataclass(frozen=True)
class Postgres:
    """A running server: the socket's directory and the port."""

    socket: str
    port: int

    @property
    def owner(self) -> str:
        """Address of the owner, who needs no password."""
        return f"postgresql:///postgres?host={self.socket}&port={self.port}&user=postgres"

    @property
    def address(self) -> str:
        """Address over the network, where the user `reader` needs a password."""
        return f"postgresql://127.0.0.1:{self.port}/postgres"

    @property
    def local(self) -> str:
        """Address through the socket, where `reader` needs no password and little is in transit."""
        return f"postgresql:///postgres?host={self.socket}&port={self.port}&user=reader"

    def run(self, *statements: str) -> list[Any]:
        """Run statements as the owner and return the rows of the last one."""
        from adbc_driver_postgresql import dbapi

        rows: list[Any] = []
        with dbapi.connect(self.owner, autocommit=True) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
                    rows = cursor.fetchall() if cursor.description else []
        return rows


def programs() -> Path | None:
    """Return the directory of the newest server's programs, or None if there is no server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    beside = shutil.which("initdb")
    return None if beside is None else Path(beside).parent


@contextmanager
def running() -> Iterator[Postgres]:
    """Start a server and stop it in the end."""
    bin = programs()
    assert bin is not None
    # a socket's path must be short, and the server refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="fcac-pg-"))
    user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
    as_user: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    data, port = folder / "data", free_port()

    def call(name: str, *arguments: str) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([bin / name, *arguments], check=True, cwd=folder, **quiet, **as_user)

    try:
        call("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        (data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        settings = f"-k {folder} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=20"
        call("pg_ctl", "-D", str(data), "-o", settings, "-l", str(folder / "log"), "-w", "-t", "300", "start")
        try:
            server = Postgres(str(folder), port)
            server.run(
                f"create role reader login password '{PASSWORD}'",
                "grant pg_read_all_data to reader",
            )
            yield server
        finally:
            call("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
