# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  ledger_url:
    description:
      - Where the ledger is, an absolute path or C(sqlite:////path) or C(postgresql://user:password@server/database).
      - Read from the variable C(bootflow_ledger_url), else V(sqlite:////var/lib/bootflow/ledger.db).
    type: str
"""
