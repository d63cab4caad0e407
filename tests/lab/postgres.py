# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A PostgreSQL server for tests, on a unix socket in a folder of its own."""

from __future__ import annotations

import glob
import itertools
import os
import pathlib
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import typing as t

import psycopg

PASSWORD = "right-secret"  # of the role "checked"


Server = t.TypeVar("Server", bound="PostgresServer")


class PostgresServer:
    """A private server on a unix socket; role "checked" needs a password, everybody else is trusted."""

    def __init__(self) -> None:
        found = shutil.which("pg_ctl")
        programs = sorted(
            glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"),
            key=lambda p: int(p.split("/")[4]) if p.split("/")[4].isdigit() else 0,
        )
        if found is None and not programs:
            raise RuntimeError("PostgreSQL is not installed: install the Debian package postgresql")
        self.programs = os.path.dirname(os.path.realpath(found or programs[-1]))
        self.folder = tempfile.mkdtemp(prefix="ledger-pg-", dir="/tmp")  # short: a socket's path has 107 bytes
        self.data = os.path.join(self.folder, "data")
        self.user = "postgres" if os.getuid() == 0 else None  # the server refuses to be root
        self.settings: dict[str, str] = {}
        self._numbers = itertools.count()

    def __enter__(self: Server) -> Server:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        if self.user:
            shutil.chown(self.folder, self.user)
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        hba = pathlib.Path(self.data, "pg_hba.conf")
        hba.write_text(
            "local all checked scram-sha-256\nlocal all all trust\nlocal replication all trust\n"
            "hostssl all all 127.0.0.1/32 scram-sha-256\n"
        )
        self._start()
        with self.connect() as conn:
            conn.execute("CREATE ROLE checked LOGIN PASSWORD '%s'" % PASSWORD)

    def _start(self) -> None:
        options = (
            "-c listen_addresses='' -c unix_socket_directories=%s -c fsync=off -c full_page_writes=off -c max_connections=60"
            " -c deadlock_timeout=200ms" % self.folder
        )
        for setting in self.settings.items():
            options += " -c %s=%s" % setting
        self.run("pg_ctl", "-D", self.data, "-w", "-l", os.path.join(self.folder, "log"), "-o", options, "start")

    def halt(self, mode: str = "fast") -> None:
        """Stop serving; ``immediate`` is a crash: what was not committed is lost, and the log is replayed."""
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def resume(self) -> None:
        self._start()

    def restart(self, mode: str = "fast") -> None:
        self.halt(mode)
        self.resume()

    def use_tls(self) -> int:
        """Listen on 127.0.0.1 with a certificate for the name localhost, signed by ca.pem of the folder. Returns the port."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        for line in (
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout ca.key -out ca.pem",
            "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem",
        ):
            subprocess.run(["openssl", *line.split()], cwd=self.folder, check=True, capture_output=True)
        for name in ("server.key", "server.pem"):
            path = os.path.join(self.folder, name)
            os.chmod(path, 0o600)
            if self.user:
                shutil.chown(path, self.user)
        self.settings.update(
            ssl="on", ssl_cert_file="%s/server.pem" % self.folder, ssl_key_file="%s/server.key" % self.folder,
            listen_addresses="127.0.0.1", port=str(port),
        )  # fmt: skip
        return port

    def stop(self) -> None:
        if os.path.exists(os.path.join(self.data, "postmaster.pid")):
            self.run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, program: str, *arguments: str) -> None:
        log = os.path.join(self.folder, "out")
        with open(log, "wb") as out:
            account: dict[str, t.Any] = {"user": self.user, "extra_groups": []} if self.user else {}
            done = subprocess.run(
                [os.path.join(self.programs, program), *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder, check=False, **account,
            )  # fmt: skip
        assert done.returncode == 0, pathlib.Path(log).read_text()

    def connect(self) -> t.Any:
        port = self.settings.get("port", "5432")
        return psycopg.connect(host=self.folder, port=port, user="postgres", dbname="postgres", autocommit=True)

    def create(self) -> str:
        name = "test_%d" % next(self._numbers)
        with self.connect() as conn:
            conn.execute("CREATE DATABASE %s TEMPLATE template0" % name)
        return name

    def drop(self, name: str) -> None:
        with self.connect() as conn:
            conn.execute("DROP DATABASE %s WITH (FORCE)" % name)

    def url(self, name: str, user: str = "postgres") -> str:
        return "postgresql://%s@/%s?host=%s" % (user, name, self.folder)


class Standby(PostgresServer):
    """A streaming replica of another server, until it is promoted."""

    def __init__(self, primary: PostgresServer):
        super().__init__()
        self.primary = primary

    def start(self) -> None:
        if self.user:
            shutil.chown(self.folder, self.user)
        of = ("-h", self.primary.folder, "-U", "postgres")
        self.run("pg_basebackup", *of, "-D", self.data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._start()

    def promote(self) -> None:
        self.run("pg_ctl", "-D", self.data, "-w", "promote")

    def catch_up(self) -> None:
        """Wait until it shows what the primary has committed."""
        with self.primary.connect() as conn:
            (position,) = conn.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        end = time.monotonic() + 30
        with self.connect() as conn:
            while not conn.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [position]).fetchone()[0]:
                assert time.monotonic() < end, "the standby does not follow"
                time.sleep(0.02)


class Wire:
    """A socket before the server's that can break the connection around a COMMIT.

    ``breaks`` is a list of how the next commits go: ``before`` (it never reaches the server), ``after`` (it is done, the
    answer is lost), ``late`` (the client loses its connection, the server gets the COMMIT a second afterwards).
    """

    def __init__(self, server: PostgresServer):
        self.server = server
        self.folder = tempfile.mkdtemp(prefix="ledger-wire-", dir="/tmp")
        self.breaks: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(self.folder, ".s.PGSQL.5432"))
        self._listener.listen(20)
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, name: str) -> str:
        return "postgresql://postgres@/%s?host=%s" % (name, self.folder)

    def refuse(self) -> None:
        """Take no connection any more; those that are there stay."""
        os.unlink(os.path.join(self.folder, ".s.PGSQL.5432"))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(os.path.join(self.server.folder, ".s.PGSQL.5432"))
            while True:
                ready, _w, _x = select.select([client, server], [], [])
                for one in ready:
                    try:
                        data = one.recv(65536)
                    except OSError:
                        return
                    if not data:
                        return
                    if one is client and self.breaks and b"COMMIT\0" in data:
                        self._break(self.breaks.pop(0), data, client, server)
                        return
                    (server if one is client else client).sendall(data)

    @staticmethod
    def _break(how: str, data: bytes, client: socket.socket, server: socket.socket) -> None:
        if how == "after":
            server.sendall(data)
            server.recv(65536)
        elif how == "late":
            client.shutdown(socket.SHUT_RDWR)
            client.close()
            time.sleep(1)
            server.sendall(data)
            server.recv(65536)
