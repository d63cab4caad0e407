#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: audit
short_description: Repair the ledger by what the hosts really have and run
version_added: "0.1.0"
description:
  - >-
    The phases of the playbook C(bootflow.compute.audit). It compares what every host has and runs with what the ledger
    says, and repairs usage, claims, devices, addresses and server groups. It ends what dead runs left behind and
    cleans their hosts before it gives their claims back.
  - >-
    Of storage hosts it looks at logical volumes and targets, of compute hosts also at iSCSI sessions and libvirt's secrets, and tells which of them nobody
    has, and which are missing.
  - >-
    Usage of a host is what it reserves plus the sum of its claims. The memory of domains that are no instances is told in
    RV(foreign_memory_mb), not counted, as Nova's libvirt driver does not count it.
  - >-
    It is safe beside running boots and other audits. Work of a run that lives, and whatever changed after the host was
    asked, is left alone.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
    details: Prints and returns the repair plan; neither a host nor the ledger is touched.
  diff_mode:
    support: full
  idempotent:
    support: full
    details: A second audit in a row reports no change.
options:
  phase:
    description:
      - V(begin), on the controller, returns RV(hosts) to be asked.
      - V(inspect), on each of them, asks. Register it as I(bootflow_inspected).
      - V(repair), on the controller, compares, repairs the ledger and returns the RV(hosts) to be cleaned. Register it as I(bootflow_audited).
      - V(clean), on each of those, removes what the others left and gives their claims back.
      - V(unexport), on each of RV(target_hosts), removes the targets that nobody has, after V(clean) ended their sessions.
      - V(release), on the controller, gives free the volumes that V(clean) and V(unexport) held, so that nobody attached them meanwhile.
      - V(finish), on the controller, finishes deletions whose run died.
    type: str
    choices: [begin, inspect, repair, clean, unexport, release, finish]
    default: begin
  hosts:
    description:
      - Only what is on these compute and storage hosts. Without it everything, also what is on no host.
      - Read from the variable C(bootflow_audit_hosts).
    type: list
    elements: str
  remove_orphans:
    description:
      - Remove domains that this collection made, and folders and local disks of instances, that no instance of this ledger stands behind; logical volumes
        that the ledger does not have in that pool, with wiping as their backend is set; and targets, sessions and secrets of no attachment.
      - Without it they are reported. Domains and logical volumes of others are never touched. Never use it where two ledgers share a host.
      - Read from the variable C(bootflow_audit_remove_orphans), else false.
    type: bool
  print_table:
    description: Print the plan. Read from the variable C(bootflow_print_table), else true.
    type: bool
requirements:
  - SQLAlchemy >= 2.0 (on the controller)
  - alembic (on the controller)
  - psycopg >= 3 (on the controller, with a PostgreSQL ledger)
notes:
  - It runs on the controller, inside the ansible-playbook process; nothing of it is copied to a host.
"""

EXAMPLES = r"""
---
- name: Compare and repair, after the hosts were asked
  bootflow.compute.audit:
    phase: repair
  register: bootflow_audited

- name: Look at what needs a person
  ansible.builtin.debug:
    msg: "{{ bootflow_audited.findings | selectattr('action', 'equalto', 'report') }}"
"""

RETURN = r"""
---
hosts:
  description: The hosts to be asked (V(begin)), or to be cleaned (V(repair)).
  type: list
  elements: str
  returned: phases begin and repair
iqn_prefixes:
  description: What the names of volumes' targets begin with.
  type: list
  elements: str
  returned: phase begin
known_targets:
  description: The targets that each compute host is to have.
  type: dict
  returned: phase begin
inspected:
  description: Whether the host answered.
  type: bool
  returned: phase inspect, on compute hosts
iscsi:
  description: The host's ends of targets, as M(bootflow.compute.compute_node_info) returns them.
  type: dict
  returned: phase inspect, on compute hosts that answered
storage:
  description:
    - What a storage host answered, with C(inspected), C(error) when it did not, C(began_at), C(backends) (with their logical volumes) and C(targets), both as
      M(bootflow.compute.storage_backend_info) returns them.
  type: dict
  returned: phase inspect, on storage hosts
began_at:
  description: When the host was asked, in seconds since the epoch.
  type: float
  returned: phase inspect, when it answered
compute_node:
  description: The facts, as M(bootflow.compute.compute_node_info) returns them.
  type: dict
  returned: phase inspect, when it answered
configuration:
  description: The host's settings from the inventory.
  type: dict
  returned: phase inspect, when it answered
findings:
  description: Every difference, in check mode the plan.
  type: list
  elements: dict
  returned: phase repair
  contains:
    kind:
      description:
        - What is wrong. V(usage), V(host_facts), V(host_unreachable), V(dead_build), V(dead_delete), V(cleanup), V(stale_claim), V(missing_claim),
          V(wrong_claim), V(device_claim), V(port), V(address), V(server_group), V(orphan_domain), V(foreign_domain), V(orphan_folder), V(orphan_disk),
          V(instance_without_domain), V(instance_elsewhere), V(volume), V(attachment), V(orphan_volume), V(missing_volume), V(orphan_target),
          V(missing_target), V(orphan_session), V(orphan_secret) or V(unread).
      type: str
      returned: always
    host:
      description: Where, null when it is on no host.
      type: str
      returned: always
    instance:
      description: UUID of the instance, the domain or the folder; null when it is about none.
      type: str
      returned: always
    what:
      description: Which of its properties.
      type: str
      returned: always
    from:
      description: What is there.
      type: raw
      returned: always
    to:
      description: What it is to be.
      type: raw
      returned: always
    action:
      description:
        - What is done. V(recount), V(record), V(mark), V(release), V(claim), V(correct), V(clean), V(end), V(finish), V(forget) or V(remove).
        - V(wait) and V(report) change nothing.
      type: str
      returned: always
    remedy:
      description: What a person is to do, empty when nothing.
      type: str
      returned: always
foreign_memory_mb:
  description: Memory of each host's domains that are no instances.
  type: dict
  returned: phase repair
todo:
  description: What each host is to be rid of, as C(builds), C(deleting) and C(remains).
  type: dict
  returned: phase repair
target_hosts:
  description: The storage hosts with targets to be removed.
  type: list
  elements: str
  returned: phase repair
ends:
  description: What each host is to be rid of that no attachment has, as C(sessions), C(secrets) and C(targets).
  type: dict
  returned: phase repair
died:
  description: The run that died, for each build of one.
  type: dict
  returned: phase repair
removed:
  description: UUIDs of instances, and names of targets, that the host is rid of.
  type: list
  elements: str
  returned: phases clean and unexport
problems:
  description: Why the host could not be rid of the others, by the same.
  type: dict
  returned: phases clean and unexport
deleted:
  description: Names of instances whose deletion was finished.
  type: list
  elements: str
  returned: phase finish
left:
  description: Instances that could not be deleted.
  type: list
  elements: dict
  returned: phase finish
error:
  description: Why the host did not answer.
  type: dict
  returned: phase inspect, when it did not answer
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: InvalidRequest
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 400
remedy:
  description: What to do about it.
  type: str
  returned: failure
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
"""
