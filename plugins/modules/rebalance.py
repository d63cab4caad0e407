#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rebalance
short_description: Make a fleet even, or empty hosts, by live migrations
version_added: "0.9.0"
description:
  - Plans the fewest live migrations that make the hosts equally full by the weighers in use, or that empty the most hosts. Then does them.
  - Each step passes all enabled filters on the fleet as it is at that moment and has a gain. Where the guests of a host would fit on the other hosts at
    the beginning, they do so after each step.
  - Instances that a live migration refuses stay, as do instances that are locked. The plan says which, and why.
  - Before each round of live migrations its steps are judged again. A step that fails is reported, and steps that wait for it are not done.
  - Runs the playbooks C(heartbeat) and C(live_migrate) with the command line of this run, which must name one playbook. Passwords have to be in files or
    variables.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.scheduler
  - bootflow.compute.shared.run_limit
attributes:
  check_mode:
    support: full
    details: Prints the plan, by what the ledger has. No host is asked.
  diff_mode: {support: full, details: The hosts of the instances that would be migrated.}
options:
  policy:
    description:
      - V(spread) makes the hosts equally full, V(pack) empties as many hosts as possible.
      - Read from the variable C(bootflow_rebalance_policy), else V(spread).
    type: str
    choices: [spread, pack]
  moves:
    description: The most live migrations. Read from the variable C(bootflow_rebalance_moves), else there is no limit.
    type: int
  least_gain:
    description:
      - The least that a live migration must gain, in points of the score.
      - Read from the variable C(bootflow_rebalance_least_gain), else 0.0.
    type: float
  tolerance:
    description: A fleet with this score, or less, is even. Read from the variable C(bootflow_rebalance_tolerance), else 2.0.
    type: float
  keep_instances:
    description: Instances that stay where they are, by name or UUID. Read from the variable C(bootflow_rebalance_keep_instances), else V([]).
    type: list
    elements: str
  keep_hosts:
    description:
      - Compute hosts that no instance leaves or comes to. They do not count in the score.
      - Read from the variable C(bootflow_rebalance_keep_hosts), else V([]).
    type: list
    elements: str
  default_availability_zone:
    description: Availability zone of hosts that name none. Read from the variable C(bootflow_default_availability_zone), else V(nova).
    type: str
  facts_max_age:
    description:
      - All hosts are asked first, if the report of one is older than this many seconds.
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  print_table:
    description: Print the plan, each round and the result. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process.
seealso:
  - module: bootflow.compute.instance_live_migrate
  - module: bootflow.compute.service
  - module: bootflow.compute.whatif
"""

EXAMPLES = r"""
---
- name: Make the fleet even, with ten live migrations at most
  bootflow.compute.rebalance:
    moves: 10
  register: bootflow_rebalanced

- name: Empty the most hosts
  bootflow.compute.rebalance:
    policy: pack
    keep_hosts: [kvm1]
"""

RETURN = r"""
---
steps:
  description:
    - The live migrations of the plan in their order, with C(name) and C(uuid) of the instance, C(source), C(destination), C(memory_bytes),
      C(disk_bytes), C(score_before) and C(score_after).
  type: list
  elements: dict
  returned: success, and when it is incomplete
done:
  description: UUIDs of the instances that were migrated.
  type: list
  elements: str
  returned: success, and when it is incomplete
stays:
  description: Instances that are not migrated, with C(name), C(uuid), C(host) and C(reason).
  type: list
  elements: dict
  returned: success, and when it is incomplete
kept_hosts:
  description: Host that is left alone to the reason.
  type: dict
  returned: success, and when it is incomplete
score_before:
  description: The score of the fleet before. With V(pack) the number of hosts in use.
  type: float
  returned: success, and when it is incomplete
score_after:
  description: The score afterwards; in check mode, as planned.
  type: float
  returned: success, and when it is incomplete
bytes:
  description: What the plan copies at least, in bytes.
  type: int
  returned: success, and when it is incomplete
"""
