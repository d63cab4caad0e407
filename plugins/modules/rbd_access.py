#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rbd_access
short_description: Check the clients of volumes in a Ceph pool, and fence the clients of a lost host
version_added: "0.9.0"
description:
  - Ceph lets any number of clients write to one image, and two guests that do so destroy its data. This module looks at the clients of a volume before a guest
    gets it, and after it is taken from one.
  - A client that was killed has a volume open for 30 s more. The module waits 35 s for that.
  - With O(volumes[].force) the cluster refuses the clients that have the volume open, so that a lost host cannot write to it any more.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.ceph_cluster
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  platform: {platforms: linux}
options:
  volumes:
    description: The volumes.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: UUID of the volume, the key of its result in RV(outcomes).
        type: str
        required: true
      state:
        description:
          - With V(present) a guest is to get the volume. It is an error if more clients than O(volumes[].users) have it open, or if it does not exist.
          - With V(absent) a guest has lost it. It is an error if more clients than O(volumes[].users) have it open still.
        type: str
        choices: [present, absent]
        default: present
      users:
        description: How many other guests have the volume.
        type: int
        default: 0
      force:
        description: Fence the clients that have the volume open, with O(volumes[].state=absent). With O(volumes[].users) it is an error.
        type: bool
        default: false
requirements:
  - ceph-common
"""

EXAMPLES = r"""
---
- name: Check that no client has the volume open
  bootflow.compute.rbd_access:
    pool: volumes
    monitors: ["192.0.2.21", "192.0.2.22"]
    user: cinder
    key: "{{ vault_ceph_key }}"
    volumes:
      - id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each volume, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether a client was, or in check mode would be, fenced.
      type: bool
      returned: always
    name:
      description: Name of the image.
      type: str
      returned: success
    watchers:
      description: Addresses of the clients that have it open.
      type: list
      elements: str
      returned: success
    fenced:
      description: Addresses that the cluster refuses now.
      type: list
      elements: str
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
fsid:
  description: Id of the cluster.
  type: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.access import ensure
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.cluster import CLUSTER_ARGUMENTS, opened
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.images import Images


def argument_spec():
    """The module's options."""
    volume = {
        "id": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "users": {"type": "int", "default": 0},
        "force": {"type": "bool", "default": False},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        "pool": {"type": "str", "required": True},
        **CLUSTER_ARGUMENTS,
        "volumes": {"type": "list", "elements": "dict", "required": True, "options": volume},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with opened(args) as cluster:
            # A guest on a full pool waits at its first write, and may be moved: only the answer of the cluster is needed.
            state = cluster.state()
            images = Images(cluster)
            outcomes = run_batch(
                [(wanted["id"], wanted) for wanted in args["volumes"]],
                lambda wanted: ensure(images, wanted, module.check_mode),
                workers=8,
            )
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(outcomes), outcomes=outcomes, fsid=state.fsid)


if __name__ == "__main__":
    main()
