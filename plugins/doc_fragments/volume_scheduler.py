# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  volume_max_attempts:
    description: How many backends a volume may be tried on, 1 to 3. Read from the variable C(bootflow_volume_max_attempts), else 3.
    type: int
  volume_filters:
    description: Names of the filters of backends, in order. Read from the variable C(bootflow_volume_filters).
    type: list
    elements: str
  volume_weighers:
    description: Names of the weighers of backends. Read from the variable C(bootflow_volume_weighers).
    type: list
    elements: str
  volume_weight_multipliers:
    description: Weigher name to multiplier, where it is not the default. Read from the variable C(bootflow_volume_weight_multipliers).
    type: dict
  max_over_subscription_ratio:
    description:
      - How much more than there is a thin backend may promise, a number of 1.0 or more or V(auto), where its entry says nothing.
      - Read from the variable C(bootflow_max_over_subscription_ratio), else 20.0.
    type: raw
  service_down_time:
    description: A backend that did not report for this many seconds is down. Read from the variable C(bootflow_service_down_time), else 900.
    type: int
"""
