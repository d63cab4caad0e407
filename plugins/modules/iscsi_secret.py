#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: iscsi_secret
short_description: Give libvirt the CHAP secrets of volumes that QEMU opens by itself
version_added: "0.1.0"
description:
  - QEMU has an iSCSI initiator of its own. A guest's disk of C(type='network') names a secret of libvirt, and the secret is given to that QEMU alone.
  - Defines the secret of a target and sets its value, or takes it away. libvirt keeps the value in memory, or with O(secrets[].ephemeral=false) in a file that
    only root reads, and shows it to nobody, so that it is set each time.
  - A secret that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: The definition, without the value.
  idempotent:
    support: full
    details: RV(outcomes.changed) tells whether the definition changed. libvirt does not tell whether the value did.
  platform:
    platforms: linux
options:
  libvirt_uri:
    description: The hypervisor of this host.
    type: str
    default: qemu:///system
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
        description: Whether libvirt is to have it.
        type: str
        choices: [present, absent]
        default: present
      value:
        description: The CHAP secret. Required with O(secrets[].state=present).
        type: str
      ephemeral:
        description: Keep it in memory only. It is gone when libvirt's daemon ends.
        type: bool
        default: false
requirements:
  - python3-libvirt
  - python3-lxml
  - qemu-block-extra for the guests
"""

EXAMPLES = r"""
---
- name: Let QEMU log in to a volume's target
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
      description: Whether it was, or in check mode would be, defined or removed.
      type: bool
      returned: always
    uuid:
      description: UUID of the secret, which a disk's XML names.
      type: str
      returned: with O(secrets[].state=present)
    error:
      description: What went wrong with this one, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: HypervisorUnavailable
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 503
remedy:
  description: What to do about it.
  type: str
  returned: failure
  sample: Start libvirtd on that host, or disable the host.
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import connect
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.secrets import remove_secret, set_secret
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail


def argument_spec():
    """The module's options."""
    secret = {
        "iqn": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "value": {"type": "str", "no_log": True},
        "ephemeral": {"type": "bool", "default": False},
    }
    return {
        "libvirt_uri": {"type": "str", "default": "qemu:///system"},
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
    args = module.params
    try:
        with connect(args["libvirt_uri"]) as connection:

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
