# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A PostgreSQL server for tests, on a unix socket in a folder of its own."""

from __future__ import annotations

import glob
import itertools
import os
import pathlib
import shutil
import subprocess
import tempfile
import typing as t

import psycopg

PASSWORD = "right-secret"  # of the role "checked"


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
        self.programs = os.path.dirname(found or programs[-1])
        self.folder = tempfile.mkdtemp(prefix="ledger-pg-", dir="/tmp")  # short: a socket's path has 107 bytes
        self.data = os.path.join(self.folder, "data")
        self.user = "postgres" if os.getuid() == 0 else None  # the server refuses to be root
        self._numbers = itertools.count()

    def start(self) -> None:
        if self.user:
            shutil.chown(self.folder, self.user)
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        hba = pathlib.Path(self.data, "pg_hba.conf")
        hba.write_text("local all checked scram-sha-256\nlocal all all trust\n")
        options = (
            "-c listen_addresses='' -c unix_socket_directories=%s -c fsync=off -c full_page_writes=off -c max_connections=60"
            " -c deadlock_timeout=200ms" % self.folder
        )
        self.run("pg_ctl", "-D", self.data, "-w", "-l", os.path.join(self.folder, "log"), "-o", options, "start")
        with self.connect() as conn:
            conn.execute("CREATE ROLE checked LOGIN PASSWORD '%s'" % PASSWORD)

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
        return psycopg.connect(host=self.folder, user="postgres", dbname="postgres", autocommit=True)

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
