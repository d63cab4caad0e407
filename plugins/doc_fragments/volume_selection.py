# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  volume_names:
    description: Names of volumes. Read from the variable C(bootflow_volume_names).
    type: list
    elements: str
  volume_ids:
    description: UUIDs of volumes. Read from the variable C(bootflow_volume_ids).
    type: list
    elements: str
  project:
    description: Only volumes of this project. Read from the variable C(bootflow_project).
    type: str
"""
