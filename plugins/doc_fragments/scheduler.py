# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  max_attempts:
    description: How many hosts a build may be tried on. Read from the variable C(bootflow_max_attempts), else 3.
    type: int
  service_down_time:
    description: A host that did not report for this many seconds is down. Read from the variable C(bootflow_service_down_time), else 900.
    type: int
  enabled_filters:
    description: Names of the filters, in order. Read from the variable C(bootflow_enabled_filters).
    type: list
    elements: str
  weighers:
    description: Names of the weighers. Read from the variable C(bootflow_weighers).
    type: list
    elements: str
  weight_multipliers:
    description: Weigher name to multiplier, where it is not the default. Read from the variable C(bootflow_weight_multipliers).
    type: dict
  host_subset_size:
    description: A host is drawn from this many of the best. Read from the variable C(bootflow_host_subset_size), else 1.
    type: int
  filter_dirs:
    description: Folders with filters of your own (C(*.py)). Read from the variable C(bootflow_filter_dirs), else C(bootflow_filters) beside the inventory.
    type: list
    elements: path
"""
