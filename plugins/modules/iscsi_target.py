#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: iscsi_target
short_description: Export volumes by iSCSI
version_added: "0.9.0"
description:
  - Creates one iSCSI target per volume with LIO or tgt, accessible only to the listed initiators, and removes targets.
  - Several initiators can use one volume. The session of an initiator that is no longer listed ends; sessions of the others continue.
  - The name of a target is O(iqn_prefix), C(volume-) and the id of the volume. The volume is LUN 0 with LIO and LUN 1 with tgt.
  - Targets are restored when their service restarts. The saved configuration, including CHAP secrets, is in files that only root can read.
  - Secrets are never on a command line, except when tgt starts - its C(tgt-admin) passes the secrets of its files to C(tgtadm) that way.
  - The failure of one export does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full, details: "For CHAP credentials the difference only shows whether there are any, or whether they differ."}
  platform: {platforms: linux}
options:
  target:
    description: Target implementation that serves the volumes.
    type: str
    choices: [lio, tgt]
    default: lio
  iqn_prefix:
    description: Prefix of the names of the targets.
    type: str
    default: "iqn.2010-10.org.openstack:"
  portals:
    description:
      - Addresses at which initiators reach the targets, as C(address:port), IPv6 addresses in brackets.
      - LIO listens there; without portals it listens on port 3260 of all IPv4 addresses. tgt listens where its service is
        configured to; for tgt the option only lists its portals.
    type: list
    elements: str
    default: []
  volumes_dir:
    description: Directory of tgt's files, one per volume. The configuration of tgt must include its C(*.conf).
    type: path
    default: /etc/tgt/conf.d
  config_file:
    description:
      - With tgt, the file that its service reads at the start, by default V(/etc/tgt/targets.conf).
      - With LIO, the file that its service restores, by default that of the installed rtslib.
    type: path
  exports:
    description: The volumes.
    type: list
    elements: dict
    required: true
    suboptions:
      volume_id:
        description: UUID of the volume, the key of its result in RV(outcomes).
        type: str
        required: true
      state:
        description: Requested state of the export.
        type: str
        choices: [present, absent]
        default: present
      path:
        description: The block device or file to export. Required with O(exports[].state=present).
        type: path
      initiators:
        description: Names of the initiators that may log in. By default none may.
        type: list
        elements: str
        default: []
      chap_user:
        description: User with which the O(exports[].initiators) must log in. Requires O(exports[].chap_secret).
        type: str
      logins:
        description:
          - Initiators that may log in, each with its own credentials. Either all initiators of a volume have credentials, or none has.
          - With tgt an account is bound to the target, not to an initiator; an initiator that knows the credentials of another one can log in with them.
        type: list
        elements: dict
        default: []
        suboptions:
          initiator:
            description: Name of the initiator.
            type: str
            required: true
          chap_user:
            description: User with which the initiator must log in, different for each initiator. Requires O(exports[].logins[].chap_secret).
            type: str
          chap_secret:
            description: The secret, as O(exports[].chap_secret).
            type: str
      keep:
        description:
          - Initiators that keep their current access and credentials, also after a restart of the service.
          - Initiators without access do not get it. A missing target is not created for them.
        type: list
        elements: str
        default: []
      chap_secret:
        description: The secret of O(exports[].chap_user), 12 to 255 letters, digits, dots, underscores and hyphens; some initiators take only 16.
        type: str
      write_cache:
        description: Whether the disk has a write cache. With LIO it applies to files only; a block device has the cache of its queue.
        type: bool
        default: true
      force:
        description: Remove a target or export another path although an initiator is logged in. The guest loses its disk.
        type: bool
        default: false
requirements:
  - python3-rtslib-fb and configfs for LIO
  - tgt, running, for tgt
"""

EXAMPLES = r"""
---
- name: Export a volume for one compute host
  bootflow.compute.iscsi_target:
    portals:
      - 192.0.2.10:3260
    exports:
      - volume_id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        path: /dev/cinder-volumes/volume-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        initiators:
          - iqn.2004-10.com.example:compute1
        chap_user: "{{ chap.user }}"
        chap_secret: "{{ chap.secret }}"

- name: Export it to a second host as well, and keep the credentials of the first
  bootflow.compute.iscsi_target:
    portals:
      - 192.0.2.10:3260
    exports:
      - volume_id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        path: /dev/cinder-volumes/volume-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        logins:
          - initiator: iqn.2004-10.com.example:compute2
            chap_user: "{{ second.user }}"
            chap_secret: "{{ second.secret }}"
        keep:
          - iqn.2004-10.com.example:compute1
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each volume, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the export was, or in check mode would be, changed.
      type: bool
      returned: always
    changes:
      description: Parts that differed from the request; C(target) for a created or removed target, C(saved) if only the saved configuration differed.
      type: list
      elements: str
      returned: success
    iqn:
      description: Name of the target.
      type: str
      returned: success
    lun:
      description: The volume's LUN.
      type: int
      returned: success
    path:
      description: Path of the exported device or file.
      type: str
      returned: success
    portals:
      description: The portals in the format of Cinder.
      type: list
      elements: str
      returned: success
    provider_location:
      description: Location of the export in the format of Cinder. Empty without portals and for a volume that is not exported.
      type: str
      returned: success
      sample: 192.0.2.10:3260,1 iqn.2010-10.org.openstack:volume-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11 0
    sessions:
      description: Names of the initiators that are logged in.
      type: list
      elements: str
      returned: success
    initiators:
      description: Names of the initiators with access, including the kept ones.
      type: list
      elements: str
      returned: success
    unsaved:
      description: Kept initiators whose saved CHAP credentials are missing (tgt); they cannot log in after the service restarts.
      type: list
      elements: str
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target import STATES, TARGETS, make_exports
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target_lio import LioTarget
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target_tgt import CONFIG, TgtTarget
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    login = {
        "initiator": {"type": "str", "required": True},
        "chap_user": {"type": "str", "no_log": True},
        "chap_secret": {"type": "str", "no_log": True},
    }
    export = {
        "volume_id": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": "present"},
        "path": {"type": "path"},
        "initiators": {"type": "list", "elements": "str", "default": []},
        "chap_user": {"type": "str", "no_log": True},
        "chap_secret": {"type": "str", "no_log": True},
        "logins": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": login,
            "required_together": [("chap_user", "chap_secret")],
        },
        "keep": {"type": "list", "elements": "str", "default": []},
        "write_cache": {"type": "bool", "default": True},
        "force": {"type": "bool", "default": False},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        "target": {"type": "str", "choices": list(TARGETS), "default": "lio"},
        "iqn_prefix": {"type": "str", "default": "iqn.2010-10.org.openstack:"},
        "portals": {"type": "list", "elements": "str", "default": []},
        "volumes_dir": {"type": "path", "default": "/etc/tgt/conf.d"},
        "config_file": {"type": "path"},
        "exports": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": export,
            "required_if": [("state", "present", ["path"])],
            "required_together": [("chap_user", "chap_secret")],
        },
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        if args["target"] == "tgt":
            target = TgtTarget(args["volumes_dir"], args["config_file"] or CONFIG)
        else:
            target = LioTarget(args["config_file"] or "")
        outcome = make_exports(target, args["exports"], args["iqn_prefix"], args["portals"], module.check_mode)
    except Exception as error:
        fail(module, error)
    module.exit_json(
        changed=any_changed(outcome["outcomes"]),
        outcomes=outcome["outcomes"],
        diff={"before": outcome["before"], "after": outcome["after"]},
    )


if __name__ == "__main__":
    main()
