#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_host_state
short_description: Disable, enable, force down or delete compute hosts
version_added: "0.9.0"
description:
  - A host that is disabled or forced down gets no new instances. Its running instances are not affected.
  - The state is kept in the ledger. The variable C(bootflow_disabled) in the inventory disables a host independently of it.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
attributes:
  diff_mode: {support: full}
options:
  hosts:
    description:
      - Compute hosts that have reported.
      - Read from the variable C(bootflow_host).
    type: list
    elements: str
    required: true
  state:
    description:
      - V(disabled) and V(enabled) are one pair, V(forced_down) and V(up) another. A host can be disabled and forced down at the same time.
      - V(up) ends V(forced_down); then the reports of the host decide whether it is up.
      - >-
        V(deleted) is for a machine that is gone for good: the ledger forgets it, with claims and addresses that wait for it to be cleaned. It must be
        forced down and have no instances. A host that reports again is a new one.
      - Read from the variable C(bootflow_host_state).
    type: str
    choices: [enabled, disabled, forced_down, up, deleted]
    required: true
  reason:
    description:
      - Reason for V(disabled) or V(forced_down), at most 255 characters. The explanations of the scheduler show it.
      - Read from the variable C(bootflow_host_reason).
    type: str
  print_table:
    description: Print the state of the hosts. Read from the variable C(bootflow_print_table), else V(true).
    type: bool
"""

EXAMPLES = r"""
---
- name: Disable kvm3 for new instances
  bootflow.compute.compute_host_state:
    hosts: [kvm3]
    state: disabled
    reason: more memory on Monday
"""

RETURN = r"""
---
changes:
  description: Changes, each with C(host), C(what), C(from) and C(to).
  type: list
  elements: dict
  returned: success
hosts:
  description: The hosts with C(disabled), C(disabled_reason), C(forced_down), C(forced_down_reason) and C(by_inventory). In check mode their current state.
  type: dict
  returned: success
"""
