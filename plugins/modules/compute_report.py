#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_report
short_description: Record the facts of a compute host in the ledger
version_added: "0.9.0"
description:
  - >-
    Collects the facts of the host with M(bootflow.compute.compute_node_info) and records them with the time. Cleans up
    first what earlier runs could not remove from the host.
  - >-
    A host that does not answer is marked, the scheduler skips it, and the play continues.
  - >-
    The power states of the guests are recorded, and an instance whose guest shut down by itself is stopped, as by M(bootflow.compute.power_sync).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
options:
  phase:
    description:
      - V(report) does all of it for the current host.
      - V(ask) asks the current host, and opens no ledger. V(write), on localhost, writes what all hosts answered in this run, and returns the hosts on which a
        report has something to do, as RV(compute). These are to report by themselves with V(report).
    type: str
    choices: [report, ask, write]
    default: report
"""

EXAMPLES = r"""
---
- name: Report
  bootflow.compute.compute_report:

- name: Ask for the facts of the host
  bootflow.compute.compute_report:
    phase: ask

- name: Write what the hosts answered
  bootflow.compute.compute_report:
    phase: write
  register: bootflow_next
"""

RETURN = r"""
---
reported:
  description: Whether the host answered.
  type: bool
  returned: with O(phase=report) and O(phase=ask)
compute:
  description: Hosts that have to report by themselves.
  type: list
  elements: str
  returned: with O(phase=write)
cleaned:
  description: UUIDs of instances whose leftovers were removed.
  type: list
  elements: str
  returned: when it answered
settled:
  description: Instances that a run left in the middle of an operation or a build when it died, UUID to vm_state, by what the host reported.
  type: dict
  returned: when it answered
to_resume:
  description: UUIDs of active instances whose guests lost their power with a restart of the host. The playbook power_sync starts them.
  type: list
  elements: str
  returned: when it answered
stopped:
  description: UUIDs of instances that are stopped now, as their guests had shut down by themselves.
  type: list
  elements: str
  returned: when it answered
"""
