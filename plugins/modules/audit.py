#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: audit
short_description: Compare the ledger with the hosts, and repair it
version_added: "0.9.0"
description:
  - >-
    The phases of the playbook C(bootflow.compute.audit). Compares what every host has and runs with the ledger, and
    repairs usage, claims, devices, addresses and server groups. Finishes the work of dead runs and cleans their hosts
    before it releases their claims.
  - >-
    On storage hosts it compares logical volumes and targets, on compute hosts also iSCSI sessions and secrets of libvirt, and reports which of them are
    unowned and which are missing. DHCP servers of managed networks get the reservations that they lack.
  - >-
    The usage of a host is what it reserves plus the sum of its claims. The memory of domains that are not instances is
    reported in RV(foreign_memory_mb) but not counted, as in Nova's libvirt driver.
  - >-
    The audit can run while boots and other audits run. It does not touch the work of a live run, or anything that changed after
    the host reported.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
attributes:
  check_mode: {support: full, details: Prints and returns the repair plan; neither a host nor the ledger is touched.}
  diff_mode: {support: full}
  idempotent: {support: full, details: A second audit in a row reports no change.}
options:
  phase:
    description:
      - V(begin), on the controller, returns the RV(compute) hosts to inspect.
      - V(inspect), on each of them, collects the facts.
      - V(repair), on the controller, compares, repairs the ledger and returns the RV(compute) hosts to clean.
      - V(clean), on each of those, removes what dead runs left and releases their claims, and restores DHCP reservations of guests.
      - V(unexport), on each of RV(storage), removes unowned targets after V(clean) ended their sessions.
      - V(release), on the controller, releases the volumes that were reserved during V(clean) and V(unexport) so that no other run attached them.
      - V(finish), on the controller, completes deletions whose run died.
    type: str
    choices: [begin, inspect, repair, clean, unexport, release, finish]
    default: begin
  hosts:
    description:
      - Limit the audit to these compute and storage hosts. By default it covers everything, including items that are on no host.
      - Read from the variable C(bootflow_audit_hosts).
    type: list
    elements: str
  remove_orphans:
    description:
      - Remove domains created by this collection and directories and local disks of instances that do not belong to an instance of this ledger; logical volumes
        that the ledger does not have in that pool, wiped as their backend is configured; and targets, sessions and secrets without an attachment.
      - By default they are only reported. What others made, or another ledger, is never touched.
      - Read from the variable C(bootflow_audit_remove_orphans), else false.
    type: bool
  print_table:
    description: Print the plan. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Compare and repair after all hosts were inspected
  bootflow.compute.audit:
    phase: repair
  register: bootflow_audited

- name: Show findings that need manual work
  ansible.builtin.debug:
    msg: "{{ bootflow_audited.findings | selectattr('action', 'equalto', 'report') }}"
"""

RETURN = r"""
---
compute:
  description: Compute hosts of the next play.
  type: list
  elements: str
  returned: phases begin and repair
storage:
  description: Storage hosts of the next play.
  type: list
  elements: str
  returned: phase repair
findings:
  description: All differences; in check mode the plan.
  type: list
  elements: dict
  returned: phase repair
  contains:
    kind:
      description:
        - Kind of the difference. V(usage), V(host_facts), V(host_unreachable), V(dead_build), V(dead_delete), V(move_status), V(cleanup), V(stale_claim),
          V(missing_claim),
          V(wrong_claim), V(device_claim), V(port), V(address), V(server_group), V(orphan_domain), V(foreign_domain), V(other_ledger), V(orphan_folder),
          V(orphan_disk), V(instance_without_domain), V(instance_elsewhere), V(other_disks), V(volume), V(attachment), V(orphan_volume),
          V(missing_volume), V(orphan_target),
          V(missing_target), V(orphan_session), V(orphan_secret), V(missing_reservation), V(orphan_reservation),
          V(unplugged_interface) or V(unread).
      type: str
      returned: always
    host:
      description: Host of the item; null when it is on no host.
      type: str
      returned: always
    instance:
      description: UUID of the instance, domain or directory; null for other items.
      type: str
      returned: always
    what:
      description: The item or property that differs.
      type: str
      returned: always
    from:
      description: The current value.
      type: raw
      returned: always
    to:
      description: The correct value.
      type: raw
      returned: always
    action:
      description:
        - What the audit does. V(recount), V(record), V(mark), V(release), V(claim), V(correct), V(adopt), V(keep), V(clean), V(end), V(finish),
          V(forget), V(remove) or V(reserve).
        - With V(adopt) an instance is active whose build had ended on its host when its run died; with V(keep) it is in error, and its host keeps what it has.
        - V(wait) and V(report) change nothing.
      type: str
      returned: always
    remedy:
      description: Manual work that is needed; empty if none is.
      type: str
      returned: always
foreign_memory_mb:
  description: Memory of domains that are not instances, by host.
  type: dict
  returned: phase repair
todo:
  description: What to clean up on each host, as C(builds), C(deleting) and C(leftovers).
  type: dict
  returned: phase repair
ends:
  description: What to clean up on each host that belongs to no attachment, as C(sessions), C(secrets) and C(targets).
  type: dict
  returned: phase repair
died:
  description: The dead run of each abandoned build.
  type: dict
  returned: phase repair
deleted:
  description: Names of instances whose deletion was completed.
  type: list
  elements: str
  returned: phase finish
left:
  description: Instances that could not be deleted.
  type: list
  elements: dict
  returned: phase finish
"""
