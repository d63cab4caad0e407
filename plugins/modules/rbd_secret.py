#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rbd_secret
short_description: Define the secrets of Ceph users in libvirt
version_added: "0.9.0"
description:
  - QEMU opens volumes of Ceph itself. The disk of a guest refers to a secret of libvirt, and libvirt passes the key to that QEMU only.
  - Defines the secret of a cluster's user and sets its value, or removes it. A host has one for all of its guests. libvirt keeps the value in a file that only
    root can read. libvirt does not return the value, therefore it is set each time.
  - A secret that the disk of a domain refers to is not removed.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full, details: "The definition, without the value."}
  idempotent: {support: full, details: RV(outcomes.changed) reports whether the definition changed. libvirt does not report whether the value changed.}
  platform: {platforms: linux}
options:
  secrets:
    description: The secrets.
    type: list
    elements: dict
    required: true
    suboptions:
      fsid:
        description: Id of the cluster.
        type: str
        required: true
      user:
        description: User of the cluster, without C(client.).
        type: str
        required: true
      state:
        description: Requested state of the secret.
        type: str
        choices: [present, absent]
        default: present
      key:
        description: Key of the user. Required with O(secrets[].state=present).
        type: str
requirements:
  - qemu-block-extra for the guests
"""

EXAMPLES = r"""
---
- name: Define the secret with which QEMU opens volumes
  bootflow.compute.rbd_secret:
    secrets:
      - fsid: 99b63e7a-b54e-45c2-9b7f-0ddc9c7c9654
        user: cinder
        key: "{{ vault_ceph_key }}"
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each secret, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the secret was, or in check mode would be, defined or removed.
      type: bool
      returned: always
    uuid:
      description: UUID of the secret, for the XML of a disk.
      type: str
      returned: with O(secrets[].state=present)
    users:
      description: Domains whose disks refer to the secret, which is kept for them.
      type: list
      elements: str
      returned: with O(secrets[].state=absent)
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.rbd_names import secret_uuid
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.secrets import (
    remove_secret,
    set_secret,
)


def argument_spec():
    """The module's options."""
    secret = {
        "fsid": {"type": "str", "required": True},
        "user": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "key": {"type": "str", "no_log": True},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "secrets": {
            "type": "list",
            "elements": "dict",
            "required": True,
            # the list is shown, the keys in it are not
            "no_log": False,
            "options": secret,
            "required_if": [("state", "present", ["key"])],
        },
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(wanted):
                if wanted["state"] == "absent":
                    return remove_secret(connection, wanted["fsid"], wanted["user"], module.check_mode)
                return set_secret(connection, wanted["fsid"], wanted["user"], wanted["key"], module.check_mode)

            results = run_batch([(secret_uuid(s["fsid"], s["user"]), s) for s in args["secrets"]], one, workers=1)
    except Exception as error:
        fail(module, error)
    diff = {"before": {}, "after": {}}
    for (uuid, outcome), wanted in zip(results.items(), args["secrets"]):
        if outcome["error"]:
            continue
        present, changed = wanted["state"] == "present", outcome["changed"]
        stays = present or bool(outcome["users"])
        diff["before"][uuid] = "absent or other" if present and changed else "defined" if changed or stays else "absent"
        diff["after"][uuid] = "defined" if stays else "absent"
    module.exit_json(changed=any_changed(results), outcomes=results, diff=diff)


if __name__ == "__main__":
    main()
