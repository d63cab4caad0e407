#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: iscsi_secret
short_description: Define the CHAP secrets of volumes in libvirt
version_added: "0.9.0"
description:
  - QEMU has its own iSCSI initiator. The disk of a guest with C(type='network') refers to a secret of libvirt, and libvirt passes the secret only to that QEMU.
  - Defines the secret of a target and sets its value, or removes it. libvirt keeps the value in memory, or with O(secrets[].ephemeral=false) in a file that
    only root can read. libvirt does not return the value, therefore it is set each time.
  - The failure of one secret does not affect the others. RV(outcomes) has the result of each.
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
      iqn:
        description: Name of the target, the key of its result in RV(outcomes). A target has one secret on a host.
        type: str
        required: true
      state:
        description: Requested state of the secret.
        type: str
        choices: [present, absent]
        default: present
      value:
        description: The CHAP secret. Required with O(secrets[].state=present).
        type: str
      ephemeral:
        description: Keep the secret in memory only. It is lost when the libvirt daemon stops.
        type: bool
        default: false
requirements:
  - qemu-block-extra for the guests
"""

EXAMPLES = r"""
---
- name: Define the secret with which QEMU logs in to the target of a volume
  bootflow.compute.iscsi_secret:
    secrets:
      - iqn: iqn.2010-10.org.openstack:volume-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        value: "{{ chap.secret }}"
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each secret, by its target's name.
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
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.secrets import remove_secret, set_secret
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    secret = {
        "iqn": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "value": {"type": "str", "no_log": True},
        "ephemeral": {"type": "bool", "default": False},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "secrets": {
            "type": "list",
            "elements": "dict",
            "required": True,
            # the list is shown, the values in it are not
            "no_log": False,
            "options": secret,
            "required_if": [("state", "present", ["value"])],
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
                    return remove_secret(connection, wanted["iqn"], module.check_mode)
                return set_secret(
                    connection, wanted["iqn"], wanted["value"], wanted["ephemeral"], check_mode=module.check_mode
                )

            results = run_batch([(wanted["iqn"], wanted) for wanted in args["secrets"]], one)
    except Exception as error:
        fail(module, error)
    diff = {"before": {}, "after": {}}
    for wanted in args["secrets"]:
        present, changed = wanted["state"] == "present", results[wanted["iqn"]]["changed"]
        diff["before"][wanted["iqn"]] = (
            "absent or other" if present and changed else "defined" if changed or present else "absent"
        )
        diff["after"][wanted["iqn"]] = "defined" if present else "absent"
    module.exit_json(changed=any_changed(results), outcomes=results, diff=diff)


if __name__ == "__main__":
    main()
