#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_operation
short_description: Stop, start, reboot, rebuild, pause, suspend and rescue instances
version_added: "0.9.0"
description:
  - One step of an operation on many instances. O(phase=begin) checks the selected instances and takes them into the operation, O(phase=work) does it
    on one host for all of its instances, O(phase=finish) writes what came of all of them. The playbooks C(stop), C(start), C(reboot), C(rebuild),
    C(pause), C(unpause), C(suspend), C(resume), C(rescue), C(unrescue), C(set_admin_password) and C(trigger_crash_dump) run them all.
  - Instances selected by O(names) or O(uuids) must exist.
  - States are checked as by Nova. If one of the selected instances is in a state that does not allow the operation, is locked, or is being worked on by
    another run, the task fails and no instance is touched. An instance that is already what the operation makes of it is left
    alone, unless its host reported another power state of the guest.
  - An instance that fails on its host does not fail the others, and is again what it was before.
    After a reboot, or the end of a rescue, whose guest does not run it is C(error), and so it is after a rebuild that has removed its disks.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.instance_selection, bootflow.compute.shared.run_limit]
attributes:
  check_mode: {support: full, details: The hosts are asked what would change there. Neither ledger nor hosts are written.}
  diff_mode: {support: full}
options:
  operation:
    description:
      - C(stop), C(start), C(reboot), C(rebuild), C(pause), C(unpause), C(suspend), C(resume), C(rescue), C(unrescue),
        C(set_admin_password) or C(trigger_crash_dump).
      - Read from the variable C(bootflow_operation).
    type: str
    required: true
  phase:
    description: Which step. V(work) runs on the compute hosts, the others on the controller.
    type: str
    choices: [begin, work, finish]
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
  reboot_type:
    description:
      - Of a reboot. V(SOFT) asks the guest, and resets it when it does not restart in time. V(HARD) takes its power at once.
      - A guest that is reset starts by a definition that is written again from the ledger, after its networks and volumes are there.
      - Read from the variable C(bootflow_reboot_type), else V(SOFT).
    type: str
    choices: [SOFT, HARD]
  rebuild_image:
    description:
      - Of a rebuild. Name or id of the image in C(bootflow_images) that the local disks are made from. Without it, each instance's own.
      - Read from the variable C(bootflow_rebuild_image).
    type: str
  admin_password:
    description:
      - Of C(set_admin_password), the new password.
      - Read from the variable C(bootflow_admin_password), else one is generated for each instance, which needs O(admin_password_dir).
    type: str
  rescue_image_ref:
    description:
      - Of C(rescue), name or id of the image in C(bootflow_images) that the guests boot. Their own disks are behind it.
      - Read from the variable C(bootflow_rescue_image_ref), else the image of each instance.
    type: str
  rescue_password:
    description:
      - Of C(rescue), the admin password that the config drives of the guests tell. An instance without config drive is refused with it.
      - Read from the variable C(bootflow_rescue_password), else one is generated for each.
    type: str
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
    are rescued, with C(bootflow_images), M(bootflow.compute.domain_password) for passwords. A rebuild runs M(bootflow.compute.instance_disks),
    M(bootflow.compute.instance_cleanup) and then what a boot runs, with the variables C(bootflow_images), C(bootflow_pci_alias),
    C(bootflow_allow_zero_disk_flavor) and C(bootflow_instances).
  - O(phase=work) reads what O(phase=begin) returned from C(bootflow_operation_begun) of C(localhost), and O(phase=finish) reads C(bootflow_operated) of
    the hosts; register them under these names.
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
  register: bootflow_operation_begun
"""

RETURN = r"""
---
ask:
  description: With O(ask), hosts that should report first. Nothing is begun where there are some.
  type: list
  elements: str
  returned: O(phase=begin)
  sample: [kvm1]
run_limit:
  description: The hosts within the limit of the run, where it has one.
  type: list
  elements: str
  returned: O(phase=begin), with RV(ask)
begun_at:
  description: When it began, in seconds since the epoch. Hosts that work later than half a lease after it look whether the instances are this run's still.
  type: float
  returned: O(phase=begin), where it began
instances:
  description: The instances of the operation. Its outcome is there after O(phase=finish).
  type: list
  elements: dict
  returned: O(phase=begin) and O(phase=finish)
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
      description: Its compute host.
      type: str
      returned: always
    vm_state:
      description: Its state now, in check mode the one that it would have.
      type: str
      returned: O(phase=finish)
    power_state:
      description: Nova's number for what its host reports of the guest, or what the ledger has where it reports nothing.
      type: int
      returned: O(phase=finish)
    forced:
      description:
        - Whether the guest lost its power, as it had not shut down, or restarted, in time.
        - After C(unrescue), whether its definition is that of the ledger, as its own was lost or refused.
      type: bool
      returned: O(phase=finish)
    note:
      description: Of a rebuild the image, and the one before where that is another.
      type: str
      returned: O(phase=finish)
    error:
      description: Why it failed, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: O(phase=finish)
unchanged:
  description:
    - Selected instances that are already what the operation makes of them, with C(name), C(uuid), C(host), C(power_state) and C(silent),
      which says that the host was asked and did not answer.
  type: list
  elements: dict
  returned: O(phase=begin)
hosts:
  description: Hosts that have something to do.
  type: list
  elements: str
  returned: O(phase=begin)
  sample: [kvm1, kvm2]
storage_hosts:
  description: Storage hosts that export volumes which a fault left without a connection.
  type: list
  elements: str
  returned: O(phase=begin)
work:
  description: What each of these hosts has to do.
  type: dict
  returned: O(phase=begin)
outcomes:
  description: The outcome of each instance of the host by its UUID, as M(bootflow.compute.domain_power) or M(bootflow.compute.domain) returns it.
  type: dict
  returned: O(phase=work)
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
