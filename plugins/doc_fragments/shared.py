# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that several modules share, each under a name: bootflow.compute.shared.workers."""

    VOLUME_CHANGE = r"""
options:
  project:
    description: Project of the instances and volumes. Read from the variable C(bootflow_project), else V(default).
    type: str
  phase:
    description:
      - V(begin) before the hosts work, V(finish) afterwards, which fails when something is left.
      - V(undo) in between releases volumes that could not be attached, and names the storage hosts with exports to remove in RV(storage).
      - V(clean) before all of it takes over what an earlier run could not end of these volumes since a host did not answer, and names these hosts.
    type: str
    choices: [clean, begin, undo, finish]
    default: begin
  print_table:
    description: Print what was done, or in check mode what would be done. Read from the variable C(bootflow_print_table), else V(true).
    type: bool
"""

    ATTACHMENTS = r"""
options:
  attachments:
    type: list
    elements: raw
    required: true
"""

    CONTROLLER = r"""
options: {}
notes:
  - Runs on the controller, inside the ansible-playbook process; nothing is copied to a host.
"""

    INSTANCES_PATH = r"""
options:
  instances_path:
    description: Absolute path of the directory that holds one directory per instance, named by its UUID.
    type: path
    default: /var/lib/bootflow/instances
"""

    LEDGER_ID = r"""
options:
  ledger_id:
    description:
      - Id of the ledger that the items belong to. Several ledgers may use one host.
      - New items are marked with it. Items with the mark of another ledger are neither changed nor reported as items of this one.
    type: str
    default: ""
"""

    RUN_LIMIT = r"""
options:
  run_limit:
    description:
      - The limit of ansible-playbook, as C(ansible_limit) has it, where the play names all hosts. localhost must be within the limit.
      - With it, instances and volumes are placed only on hosts within the limit, and operations refuse instances on others.
    type: str
"""

    STATISTICS = r"""
options:
  set_stats:
    description:
      - Leave the instances to later jobs as the custom statistic C(bootflow_guests), as M(ansible.builtin.set_stats) does, with name,
        uuid, project, host, vm_state and addresses of each.
      - AWX hands it to the next jobs of a workflow, ansible-runner keeps it among the artifacts.
    type: bool
    default: false
"""

    SCHEDULE = r"""
options:
  round:
    description: Number of the round. In check mode the plan is shown in the first.
    type: int
    default: 1
  print_table:
    description: Print the plan in check mode. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

    STORAGE_FACTS = r"""
options:
  facts_max_age:
    description:
      - Storage hosts whose last report is older than this many seconds are listed in RV(ask).
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
"""

    USER_DATA = r"""
options:
  instances:
    description:
      - The requested instances. Only their user data, injected files and passwords are read.
      - Read from the variable C(bootflow_instances).
    type: list
    elements: raw
    required: true
  project:
    description: The project of entries that name none. Read from the variable C(bootflow_project), else V(default).
    type: str
"""

    ADMIN_PASSWORDS = r"""
options:
  instances:
    description: Requested instances, whose passwords count where they have one. Read from the variable C(bootflow_instances).
    type: list
    elements: raw
  project:
    description: The project of entries that name none. Read from the variable C(bootflow_project), else V(default).
    type: str
  admin_password_dir:
    description:
      - Folder on the controller (absolute path; made with mode 0700) in which the password of each instance is left, in a file of mode 0600
        named by the instance's UUID. Nothing removes the files. Read from the variable C(bootflow_admin_password_dir).
    type: path
"""

    VOLUME_CLEAR = r"""
options:
  volume_clear:
    description:
      - How to clear logical volumes before they are removed. V(zero) and V(shred) overwrite them; with V(none) the next guest can read the old data.
    type: str
    choices: [zero, shred, none]
    default: zero
  volume_clear_size_mb:
    description: Size of the beginning of each logical volume to overwrite, in MiB; V(0) for all of it.
    type: int
    default: 0
"""

    VOLUME_GROUP = r"""
options:
  volume_group:
    description: The volume group.
    type: str
    default: cinder-volumes
  thin_pool:
    description: Name of the thin pool. By default the name of the volume group followed by C(-pool).
    type: str
"""

    CEPH_CLUSTER = r"""
options:
  pool:
    description: The pool.
    type: str
    required: true
  monitors:
    description: Addresses of all monitors of the cluster, C(address) or C(address:port); the port is 6789 by default.
    type: list
    elements: str
    required: true
  user:
    description: User of the cluster, without C(client.). It needs the capabilities C(mon 'profile rbd') and C(osd 'profile rbd pool=POOL').
    type: str
    required: true
  key:
    description: Key of O(user). It is in a file that only this module's process uses, while it works.
    type: str
    required: true
"""

    MAX_BUILDS = r"""
options:
  max_builds:
    description: Number of builds that all runs together work on at once on this host. 0 means no limit.
    type: int
    default: 0
  place_timeout:
    description: Seconds that a build waits for one of these places.
    type: float
    default: 600.0
"""

    TIME_LIMIT = r"""
options:
  time_limit:
    description:
      - Seconds after which the module and the programs that it runs end, and the task fails with the error C(HostTimeout).
      - By default there is no limit.
    type: float
"""

    WORKERS = r"""
options:
  workers:
    description: Number of items to process in parallel.
    type: int
    default: 4
"""
