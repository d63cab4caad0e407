# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PgBouncer in front of a PostgreSQL server of the tests, on a unix socket in a folder of its own."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import typing as t

from postgres import PostgresServer

CONFIGURATION = """
[databases]
* = host={server.folder} port=5432
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 5432
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = {size}
ignore_startup_parameters = {ignored}
"""


class PgBouncer:
    """A pooler of its own for each test; it ends with ``stop``."""

    def __init__(self, server: PostgresServer, mode: str, size: int = 20, ignored: str = "options"):
        self.program = shutil.which("pgbouncer", path="/usr/sbin:" + os.environ["PATH"])
        if self.program is None:
            raise RuntimeError("PgBouncer is not installed: install the Debian package pgbouncer")
        self.folder = tempfile.mkdtemp(prefix="ledger-pool-", dir="/tmp")
        self.configuration = pathlib.Path(self.folder, "pgbouncer.ini")
        self.configuration.write_text(
            CONFIGURATION.format(server=server, folder=self.folder, mode=mode, size=size, ignored=ignored)
        )
        pathlib.Path(self.folder, "users").write_text('"postgres" ""\n')
        if server.user:
            shutil.chown(self.folder, server.user)
        self.account: dict[str, t.Any] = {"user": server.user, "extra_groups": []} if server.user else {}  # not as root
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with open(os.path.join(self.folder, "log"), "ab") as log:
            process = subprocess.Popen(
                [str(self.program), str(self.configuration)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, **self.account,
            )  # fmt: skip
        end = time.monotonic() + 30
        while not self._answers():
            assert process.poll() is None and time.monotonic() < end, pathlib.Path(self.folder, "log").read_text()
            time.sleep(0.05)
        return process

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(os.path.join(self.folder, ".s.PGSQL.5432")) == 0

    def url(self, name: str) -> str:
        return "postgresql://postgres@/%s?host=%s" % (name, self.folder)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)
