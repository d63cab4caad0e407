#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_operation
short_description: Stop, start, reboot, rebuild, pause, suspend, rescue and shelve instances, make images of them, and have them go back to these
version_added: "0.9.0"
description:
  - One step of an operation on many instances. O(phase=begin) checks the selected instances and takes them into the operation, O(phase=work) does it
    on one host for all of its instances, O(phase=finish) writes what came of all of them. The playbooks of operations, as C(stop) and C(rebuild), run
    them all.
  - A shelve has more steps, as instances may leave their hosts. O(phase=shelved) writes which are shelved, O(phase=offload) removes them from their
    hosts, and O(phase=offloaded) writes what came of that. An offload has the last two in place of O(phase=work).
  - Instances selected by O(names) or O(uuids) must exist.
  - States are checked as by Nova. If one of the selected instances is in a state that does not allow the operation, is locked, or is being worked on by
    another run, the task fails and no instance is touched. An instance that is already what the operation makes of it is left
    alone, unless its host reported another power state of the guest.
  - An instance that fails on its host does not fail the others, and is again what it was before.
    After a reboot, or the end of a rescue, whose guest does not run it is C(error), and so it is after a rebuild that has removed its disks.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.instance_selection, bootflow.compute.operation,
  bootflow.compute.shared.run_limit]
attributes:
  check_mode: {support: full, details: The hosts are asked what would change there. Neither ledger nor hosts are written.}
  diff_mode: {support: full}
  idempotent: {support: partial, details: "An instance that is as requested is left alone. Operations without a lasting state, as C(reboot) and
    C(create_backup), are done each time."}
options:
  operation:
    description:
      - Name of the operation, as of its playbook, for example C(stop) or C(rebuild). C(docs/operations.md) lists all of them.
      - Read from the variable C(bootflow_operation).
    type: str
    required: true
  phase:
    description:
      - Which step. V(freeze), V(release), V(work), V(offload) and V(clear) run on the compute hosts, V(store) on the host of a store of images, the others
        on the controller.
      - V(release) runs on the compute hosts of C(rebuild) whose guests have root volumes that storage hosts write again. It shuts the guests down, and
        disconnects the hosts from these volumes.
      - V(clear) runs on the compute hosts of instances that were deleted while these hosts worked on them. It removes their guests again, or takes their
        power. V(report) then returns what V(finish) would have returned.
      - V(settle) runs where storage hosts made snapshots of volumes. It gives up the snapshots of an instance of which one failed.
    type: str
    choices: [begin, freeze, release, work, store, settle, shelved, offload, offloaded, finish, clear, report]
    default: begin
  open_ledger:
    description: With O(phase=begin), create or upgrade the ledger before, as M(bootflow.compute.ledger) does.
    type: bool
    default: false
  ask:
    description:
      - With O(phase=begin), nothing begins where hosts should report first (M(bootflow.compute.compute_report)), and RV(ask) names them. These are the
        hosts of instances which the ledger already has as requested, so that a guest that was started or stopped by other means is seen, and the hosts on
        which a run died, which O(open_ledger) finds. When they have reported, run the step again without this option.
    type: bool
    default: false
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  admin_password_dir:
    description:
      - Of C(set_admin_password) and C(rescue), a folder on the controller that gets the passwords, each in a file of mode 0600, C(UUID) or
        C(UUID.rescue).
      - Read from the variable C(bootflow_admin_password_dir), else they are not written.
    type: path
  quotas:
    description: What projects may have, which C(restore) checks. Read from the variable C(bootflow_quotas), else unlimited.
    type: dict
  follow_file:
    description:
      - With O(operation=rebuild) and without O(rebuild_image), each instance gets the image and the key pair that its entry of
        C(bootflow_instances) has.
      - Read from the variable C(bootflow_follow_file), which the playbook apply sets, else false.
    type: bool
  print_table:
    description: Print what was done. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process. With O(phase=work) it runs M(bootflow.compute.domain_power) on the host, and
    M(bootflow.compute.instance_build) for guests that are reset or rescued, M(bootflow.compute.domain_rescue) for guests that
    are rescued, with C(bootflow_images), M(bootflow.compute.domain_password) for passwords, M(bootflow.compute.instance_snapshot) for images, with
    C(bootflow_image_stores), M(bootflow.compute.instance_backup) for incremental backups,
    M(bootflow.compute.domain_quiesce) where storage hosts make snapshots. A rebuild runs M(bootflow.compute.instance_disks),
    M(bootflow.compute.instance_cleanup) and then what a boot runs, with the variables C(bootflow_images), C(bootflow_pci_alias),
    C(bootflow_allow_zero_disk_flavor) and C(bootflow_instances). An unshelve runs what a boot runs, with the variables of the scheduler.
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process. The hosts of the next play are the result that
    the playbook registers as C(bootflow_next).
seealso:
  - module: bootflow.compute.domain_power
  - module: bootflow.compute.domain_rescue
"""

EXAMPLES = r"""
---
- name: Take the web servers into the operation stop
  bootflow.compute.instance_operation:
    operation: stop
    names: [web-1, web-2]
  register: bootflow_next
"""

RETURN = r"""
---
compute:
  description: Compute hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin)
storage:
  description: Storage hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin)
freezing:
  description: Compute hosts of guests whose file systems are to stand still while storage hosts make snapshots.
  type: list
  elements: str
  returned: O(phase=begin)
cleaning:
  description: Storage hosts that remove the snapshots of failed instances.
  type: list
  elements: str
  returned: O(phase=settle)
release:
  description: Compute hosts of the play that disconnects root volumes, which storage hosts write again.
  type: list
  elements: str
  returned: O(phase=begin)
images:
  description: Hosts of the play that brings images of the stores of hosts, if there are some.
  type: list
  elements: str
  returned: O(phase=begin)
lacking:
  description: The file that is there once a host of that play lacks an image.
  type: str
  returned: O(phase=begin)
clearing:
  description: Compute hosts of the play that ends what was made for instances which were deleted meanwhile.
  type: list
  elements: str
  returned: O(phase=finish)
stores:
  description: Hosts of stores that receive what the compute hosts give.
  type: list
  elements: str
  returned: O(phase=begin)
uuids:
  description: UUIDs of the instances of the operation.
  type: list
  elements: str
  returned: O(phase=begin)
ask:
  description: With O(ask), hosts that should report first. Nothing is begun where there are some.
  type: list
  elements: str
  returned: O(phase=begin)
  sample: [kvm1]
instances:
  description: The instances of the operation.
  type: list
  elements: dict
  returned: O(phase=finish)
  contains:
    name:
      description: Name of the instance.
      type: str
      returned: always
    uuid:
      description: UUID of the instance.
      type: str
      returned: always
    host:
      description: Its compute host; null of an instance that has left its host.
      type: str
      returned: always
    vm_state:
      description: Its state now, in check mode the one that it would have.
      type: str
      returned: always
    power_state:
      description: Nova's number for what its host reports of the guest, or what the ledger has where it reports nothing.
      type: int
      returned: always
    forced:
      description:
        - Whether the guest lost its power, as it had not shut down, or restarted, in time.
        - After C(unrescue), whether its definition is that of the ledger, as its own was lost or refused.
      type: bool
      returned: always
    note:
      description:
        - Of a rebuild or revert the image; of a rebuild also the one before, where that is another.
        - Of a snapshot, backup or shelve the image, of a backup also the deleted ones. Of an unshelve the image that it is built from, or its root volume.
      type: str
      returned: always
    image:
      description: The image of a snapshot, backup, shelve or revert, with C(id) and C(name).
      type: dict
      returned: for a snapshot, backup or revert to an image, and for a shelve unless the root is a volume
    backup:
      description: The incremental backup, with C(id), C(state), C(kind) (full, incremental), C(parent_id), C(reason) (why it is full) and C(size).
        Of a revert with C(id) only.
      type: dict
      returned: for an incremental backup, and for a revert to one
    deleted_images:
      description: The backups beyond the rotation that were, or in check mode would be, deleted, with C(id) and C(name), the oldest first.
      type: list
      elements: dict
      returned: for a backup
    error:
      description: Why it failed, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
