#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: port_filter_push
short_description: Have hosts filter the ports of their guests as the ledger says
version_added: "0.9.0"
description:
  - Two stages of the playbook C(port_filters), which others import after ports are new or gone.
  - A guest that comes to a host is filtered there by the operation that starts it, before it starts.
  - What is left is that other hosts learn who the members of its groups are now.
  - A host that cannot take its filters keeps its former ones, and a warning says so.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
attributes:
  check_mode: {support: full, details: "Hosts say what they would change, with O(only_due=false)."}
  diff_mode: {support: full, details: The filters of each host.}
options:
  phase:
    description:
      - V(begin) on the controller lists the hosts with ports.
      - V(work) on each of them brings its filters, with C(bootflow_firewall_driver=nftables) of that host.
      - V(end) on the controller confirms in the ledger what the hosts filter by.
    type: str
    choices: [begin, work, end]
    default: begin
  only_due:
    description:
      - Only hosts whose filters changed in the ledger after their last ones are listed, with O(phase=begin).
      - A host that is silent stays among them until it has its filters.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: List the hosts with ports
  bootflow.compute.port_filter_push:
  register: bootflow_filtered
"""

RETURN = r"""
---
compute:
  description: Hosts of the inventory with ports.
  type: list
  elements: str
  returned: with O(phase=begin)
error:
  description: Why the host has its filters from before, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
  type: dict
  returned: with O(phase=work)
"""
