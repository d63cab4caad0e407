#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: service
short_description: Service compute hosts one after the other
version_added: "0.9.0"
description:
  - Drains each host, runs the tasks of the user on it, waits until it reports, takes it back with what left it, then does the same with the next host.
  - Before a host begins its instances must fit on the others, and all of them must be able to leave. Otherwise nothing of it is touched.
  - The first failure stops the service. The ledger has what is done, and a rerun continues where the service stopped.
  - Runs the playbooks C(heartbeat), C(drain), C(live_migrate), C(migrate) and C(confirm_resize) with the command line of this run, which must name
    one playbook. Passwords have to be in files or variables.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.scheduler
  - bootflow.compute.shared.run_limit
attributes:
  check_mode:
    support: full
    details: Prints the order of the hosts, and where their instances would go, by what the ledger has. No host is asked.
  diff_mode: {support: full, details: The states of the hosts in the service.}
options:
  name:
    description:
      - Name of the service. Hosts that a service of this name has done are left alone.
      - Read from the variable C(bootflow_service_name), else V(default).
    type: str
  hosts:
    description:
      - The compute hosts, within the limit of the run. Instances may go to other hosts.
      - Read from the variable C(bootflow_service_hosts), else all compute hosts.
    type: list
    elements: str
  tasks:
    description:
      - File on the controller with the tasks that service a host. Either it or O(role) is required.
      - Read from the variable C(bootflow_service_tasks).
    type: path
  role:
    description: Role that services a host. Read from the variable C(bootflow_service_role).
    type: str
  at_once:
    description: Hosts that are serviced together. Read from the variable C(bootflow_service_at_once), else 1.
    type: int
  zone_at_once:
    description: Hosts of one availability zone that are serviced together. Read from the variable C(bootflow_service_zone_at_once), else 1.
    type: int
  window:
    description:
      - Seconds after the begin of the run in which hosts are to be done. No host begins that would not be. 0 has no end.
      - Read from the variable C(bootflow_service_window), else 0.
    type: int
  host_time:
    description:
      - Seconds that hosts which are serviced together are expected to take. What others of the service took counts, if it was longer.
      - Read from the variable C(bootflow_service_host_time), else 1800.
    type: int
  tasks_timeout:
    description: Seconds that the tasks of a host may take. Read from the variable C(bootflow_service_tasks_timeout), else 3600.
    type: int
  report_timeout:
    description: Seconds in which a host has to report after its tasks. Read from the variable C(bootflow_service_report_timeout), else 900.
    type: int
  return:
    description: Whether instances that left a host return to it. Read from the variable C(bootflow_service_return), else true.
    type: bool
  restart:
    description: Whether hosts that are done are serviced again. Read from the variable C(bootflow_service_restart), else false.
    type: bool
  live:
    description: Whether guests that can move while they run do so. Read from the variable C(bootflow_drain_live), else true.
    type: bool
  pci_alias:
    description: The PCI devices that flavors may name. Read from the variable C(bootflow_pci_alias).
    type: raw
  quotas:
    description: What projects may have. Read from the variable C(bootflow_quotas), else unlimited.
    type: dict
  instance_overhead:
    description: What the hypervisor needs for each guest. Read from the variable C(bootflow_instance_overhead), else V({}).
    type: dict
  default_availability_zone:
    description: Availability zone of hosts that name none. Read from the variable C(bootflow_default_availability_zone), else V(nova).
    type: str
  facts_max_age:
    description:
      - All hosts are asked before a host begins, if the report of one is older than this many seconds.
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  print_table:
    description: Print the plan, each step and the result. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process.
seealso:
  - module: bootflow.compute.instance_drain
  - module: bootflow.compute.compute_host_state
  - module: bootflow.compute.whatif
"""

EXAMPLES = r"""
---
- name: Service the hosts of a rack
  bootflow.compute.service:
    hosts: [kvm1, kvm2]
    tasks: /etc/bootflow/update.yml
  register: bootflow_serviced
"""

RETURN = r"""
---
service:
  description: Name of the service.
  type: str
  returned: success, and when it stopped
hosts:
  description:
    - The selected hosts, with C(host), C(zone) and C(state).
    - The state is V(pending), V(drain), V(tasks), V(report), V(return) or V(done), by the step that is next.
  type: list
  elements: dict
  returned: success, and when it stopped
planned:
  description: Hosts that would be serviced.
  type: list
  elements: str
  returned: in check mode
serviced:
  description: Hosts that this run has done.
  type: list
  elements: str
  returned: success, and when it stopped
not_returned:
  description: Host to the names of instances that left it and did not come back.
  type: dict
  returned: success, and when it stopped
finished:
  description: Whether all selected hosts are done.
  type: bool
  returned: success, and when it stopped
"""
