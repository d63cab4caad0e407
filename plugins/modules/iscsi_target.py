#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: iscsi_target
short_description: Export volumes by iSCSI
version_added: "0.1.0"
description:
  - Makes one iSCSI target per volume, for the initiators that are named and for nobody else, with LIO or tgt; and takes targets away.
  - Several initiators may have one volume. One that is not named any more is put out; the sessions of the others go on.
  - The target is named by O(iqn_prefix) and C(volume-) with the volume's id. The volume is its LUN 0 with LIO and its LUN 1 with tgt.
  - A target comes back when its service starts again. What is kept for that, CHAP secrets among it, is in files that only root reads.
  - No secret is on a command line, but for tgt's own start - its C(tgt-admin) passes the secrets of its files to C(tgtadm) that way.
  - An export that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Of CHAP credentials the difference only says whether there are some, or others.
  idempotent:
    support: full
  platform:
    platforms: linux
options:
  target:
    description: Which target serves the volumes.
    type: str
    choices: [lio, tgt]
    default: lio
  iqn_prefix:
    description: What the targets' names begin with.
    type: str
    default: "iqn.2010-10.org.openstack:"
  portals:
    description:
      - Addresses at which initiators reach the targets, as C(address:port), an IPv6 address in brackets.
      - LIO listens there, without any on port 3260 of all IPv4 addresses. tgt listens where its service was told to; here they are only named.
    type: list
    elements: str
    default: []
  volumes_dir:
    description: Folder of tgt's files, one per volume. Its configuration has to include C(*.conf) of it.
    type: path
    default: /etc/tgt/conf.d
  config_file:
    description:
      - The file that tgt's service reads at its start, V(/etc/tgt/targets.conf) by default.
      - With LIO the file that its service restores, by default the one of the installed rtslib.
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
        description: Whether the volume is to be exported.
        type: str
        choices: [present, absent]
        default: present
      path:
        description: The block device or file to export. Required with O(exports[].state=present).
        type: path
      initiators:
        description: Names of the initiators that may log in. Without any, nobody may.
        type: list
        elements: str
        default: []
      chap_user:
        description: User with which they have to log in. With O(exports[].chap_secret).
        type: str
      logins:
        description:
          - Initiators that may log in, each with credentials of its own. All of a volume's initiators have some, or none has.
          - With tgt an account is bound to the target, not to an initiator; who knows another one's credentials gets in with them.
        type: list
        elements: dict
        default: []
        suboptions:
          initiator:
            description: Its name.
            type: str
            required: true
          chap_user:
            description: User with which it has to log in, another one than the others'. With O(exports[].logins[].chap_secret).
            type: str
          chap_secret:
            description: The secret, as O(exports[].chap_secret).
            type: str
      keep:
        description:
          - Initiators that were let in before, and stay with the credentials that they have, over a restart of the service too.
          - Those that are not let in now stay out. A target that is not there is not made for them.
        type: list
        elements: str
        default: []
      chap_secret:
        description: The secret of O(exports[].chap_user), 12 to 255 letters, digits, dots, underscores and hyphens; some initiators take only 16.
        type: str
      write_cache:
        description: Whether the disk has a write cache. LIO follows it for files; a block device has the cache of its own queue.
        type: bool
        default: true
      force:
        description: End a target, or export another path, although an initiator is logged in. Its guest loses the disk.
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

- name: Export it for a second one, too, whatever the first logs in with
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
      description: Whether its export was, or in check mode would be, changed.
      type: bool
      returned: always
    changes:
      description: What was not as wished; C(target) when all of it was to be made or taken away, C(saved) when only a restart would have lost it.
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
      description: What is exported.
      type: str
      returned: success
    portals:
      description: The portals in the form in which Cinder keeps them.
      type: list
      elements: str
      returned: success
    provider_location:
      description: Where the volume is exported, as Cinder keeps it. Empty without portals, and when it is not exported.
      type: str
      returned: success
      sample: 192.0.2.10:3260,1 iqn.2010-10.org.openstack:volume-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11 0
    sessions:
      description: Names of the initiators that are logged in.
      type: list
      elements: str
      returned: success
    initiators:
      description: Names of the initiators that are let in, those that were kept among them.
      type: list
      elements: str
      returned: success
    unsaved:
      description: Initiators to be kept that a restart of the service shuts out, as what they log in with was lost from its file (tgt).
      type: list
      elements: str
      returned: success
    error:
      description: What went wrong with this one, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: InvalidInput
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 400
remedy:
  description: What to do about it.
  type: str
  returned: failure
  sample: Write 192.0.2.1:3260 or [2001:db8::1]:3260.
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target import STATES, TARGETS, make_exports
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target_lio import LioTarget
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target_tgt import CONFIG, TgtTarget
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail


def argument_spec():
    """The module's options."""
    login = {
        "initiator": {"type": "str", "required": True},
        "chap_user": {"type": "str"},
        "chap_secret": {"type": "str", "no_log": True},
    }
    export = {
        "volume_id": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": "present"},
        "path": {"type": "path"},
        "initiators": {"type": "list", "elements": "str", "default": []},
        "chap_user": {"type": "str"},
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
