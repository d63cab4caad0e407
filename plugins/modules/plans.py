#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: plans
short_description: List plans that hold places, and discard them
version_added: "0.9.0"
description:
  - A boot in check mode with C(bootflow_plan_out) writes a plan, which holds places until it is used, discarded or expired.
  - Lists all plans of the ledger, and gives up the ones that O(discard) names. Their places are free then.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller, bootflow.compute.shared.run_limit]
attributes:
  diff_mode: {support: full, details: The states of the plans.}
options:
  discard:
    description:
      - Ids of plans to be given up. A plan that holds nothing any more is left as it is.
      - Read from the variable C(bootflow_plan_discard).
    type: list
    elements: str
  print_table:
    description: Print the list. Read from the variable C(bootflow_print_table), else V(true).
    type: bool
seealso:
  - module: bootflow.compute.boot_schedule
"""

EXAMPLES = r"""
---
- name: List the plans
  bootflow.compute.plans:
  register: bootflow_plans_listed

- name: Give up a plan
  bootflow.compute.plans:
    discard: [7d1f3c52-6a0e-4a4e-9d3a-0a4c6e2f7b11]
"""

RETURN = r"""
---
plans:
  description:
    - All plans of the ledger, the newest first, with C(id), C(kind), C(state), C(actor), C(created), C(expires), C(changed), C(run), C(instance_count)
      and C(instances).
    - The state is V(held), V(used), V(discarded) or V(expired). The run is the one that used it. Instances are what it holds, with C(name), C(uuid) and
      C(host).
  type: list
  elements: dict
  returned: success
discarded:
  description: Ids of the plans that were, or in check mode would be, given up.
  type: list
  elements: str
  returned: success
"""
