# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  names:
    description: Names of instances. Read from the variable C(bootflow_names).
    type: list
    elements: str
  uuids:
    description: UUIDs of instances. Read from the variable C(bootflow_uuids).
    type: list
    elements: str
  reservation_ids:
    description: Reservations, C(r-...). Read from the variable C(bootflow_reservation_ids).
    type: list
    elements: str
  project:
    description: Only instances of this project. Read from the variable C(bootflow_project).
    type: str
"""
