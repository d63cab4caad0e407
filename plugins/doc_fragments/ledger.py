# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  ledger_url:
    description:
      - Where the ledger is, an absolute path or C(sqlite:////path) or C(postgresql://user@server/database).
      - Read from the variable C(bootflow_ledger_url), else V(sqlite:////var/lib/bootflow/ledger.db).
    type: str
  ledger_password:
    description:
      - Password of a PostgreSQL ledger. Read from the variable C(bootflow_ledger_password).
      - Where neither this, nor O(ledger_password_file), nor the URL has one, it is the environment variable
        E(BOOTFLOW_LEDGER_PASSWORD) of the controller, and then what libpq finds (E(PGPASSWORD), C(~/.pgpass), a service file).
    type: str
  ledger_password_file:
    description:
      - File on the controller with the password in its one line, mode 0600.
      - Read from the variable C(bootflow_ledger_password_file).
    type: path
  ledger_sslmode:
    description:
      - How far TLS to PostgreSQL is asked for, V(verify-full) is recommended. The default is libpq's.
      - Read from the variable C(bootflow_ledger_sslmode).
    type: str
    choices: [disable, allow, prefer, require, verify-ca, verify-full]
  ledger_sslrootcert:
    description:
      - Certificates that the server's is verified with, a file on the controller, or V(system).
      - Read from the variable C(bootflow_ledger_sslrootcert).
    type: path
  ledger_sslcert:
    description: The client's certificate. Read from the variable C(bootflow_ledger_sslcert).
    type: path
  ledger_sslkey:
    description: The client's key, a file of mode 0600. Read from the variable C(bootflow_ledger_sslkey).
    type: path
  ledger_connect_timeout:
    description:
      - Seconds for one connection to PostgreSQL to come about.
      - Read from the variable C(bootflow_ledger_connect_timeout), else V(10).
    type: int
  ledger_lock_timeout:
    description:
      - Seconds to wait for what another run holds, 0 without end.
      - Read from the variable C(bootflow_ledger_lock_timeout), else V(60).
    type: float
  ledger_statement_timeout:
    description:
      - Seconds that one statement may take on PostgreSQL, 0 without end.
      - Read from the variable C(bootflow_ledger_statement_timeout), else V(300).
    type: float
  ledger_idle_timeout:
    description:
      - Seconds after which PostgreSQL takes its locks from a run that stopped in the middle of a transaction, 0 never.
      - Read from the variable C(bootflow_ledger_idle_timeout), else V(120).
    type: float
  ledger_retry_timeout:
    description:
      - Seconds during which a transaction is tried again that another run or a restarting server spoiled.
      - Read from the variable C(bootflow_ledger_retry_timeout), else V(60).
    type: float
"""
