# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that select instances and volumes; documented by the fragments instance_selection and volume_selection."""

from __future__ import annotations

import typing as t

INSTANCES: dict[str, dict[str, t.Any]] = {
    "names": {"type": "list", "elements": "str", "variable": "bootflow_names"},
    "uuids": {"type": "list", "elements": "str", "variable": "bootflow_uuids"},
    "reservation_ids": {"type": "list", "elements": "str", "variable": "bootflow_reservation_ids"},
    "project": {"type": "str", "variable": "bootflow_project"},
}
VOLUMES: dict[str, dict[str, t.Any]] = {
    "volume_names": {"type": "list", "elements": "str", "variable": "bootflow_volume_names"},
    "volume_ids": {"type": "list", "elements": "str", "variable": "bootflow_volume_ids"},
    "project": {"type": "str", "variable": "bootflow_project"},
}
