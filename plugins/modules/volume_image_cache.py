#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_image_cache
short_description: Empty the image cache of a thin LVM backend
version_added: "0.1.0"
description:
  - Removes the images that M(bootflow.compute.volume_lvm) keeps on a thin backend of this host, all or some.
  - Volumes that were made of them stay whole, and keep the blocks that they share with them. The next volume from such an image is copied anew.
  - An image that a run makes volumes of at this moment, or that a program has open, stays; RV(kept) says so.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
    details: Whether a run makes volumes of an image at this moment is not looked at.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    platforms: linux
options:
  volume_group:
    description: The volume group.
    type: str
    default: cinder-volumes
  thin_pool:
    description: Name of the thin pool. Without it the volume group's name with C(-pool) after it.
    type: str
  images:
    description: Only these images, by the id that the catalogue has or had for them, or by their sha256. Without it all.
    type: list
    elements: str
  unused:
    description: Only images that no volume is left of.
    type: bool
    default: false
  discard:
    description: Give their blocks back to the device below, too.
    type: bool
    default: false
requirements:
  - lvm2, thin-provisioning-tools
"""

EXAMPLES = r"""
---
- name: What would go
  bootflow.compute.volume_image_cache:
    volume_group: flash
  check_mode: true
  register: cache

- name: Remove the images that no volume is left of
  bootflow.compute.volume_image_cache:
    volume_group: flash
    unused: true
"""

RETURN = r"""
---
images:
  description: The images that were there, in the order in which they would go.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the logical volume.
      type: str
      returned: always
    checksum:
      description: Its sha256.
      type: str
      returned: always
    image_ids:
      description: Ids of the images of the catalogue that are this one.
      type: list
      elements: str
      returned: always
    size:
      description: Its virtual size in bytes, in whole extents.
      type: int
      returned: always
    written:
      description: Bytes that it has in the thin pool; what was made of it may share them.
      type: int
      returned: always
    used_at:
      description: When something was last made of it, in seconds since the epoch by the host's clock; V(0) is unknown.
      type: int
      returned: always
    users:
      description: Number of volumes that were made of it and are there.
      type: int
      returned: always
    complete:
      description: Whether all of it is there; otherwise a run is at work on it, or was killed.
      type: bool
      returned: always
removed:
  description: Names of those that were, or in check mode would be, removed.
  type: list
  elements: str
  returned: success
kept:
  description: Why others that were meant stayed, by name.
  type: dict
  returned: success
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: DriverNotInitialized
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 503
remedy:
  description: What to do about it.
  type: str
  returned: failure
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm.lvm_tags import checked_name
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.image_cache import empty


def argument_spec():
    """The module's options."""
    return {
        "volume_group": {"type": "str", "default": "cinder-volumes"},
        "thin_pool": {"type": "str"},
        "images": {"type": "list", "elements": "str"},
        "unused": {"type": "bool", "default": False},
        "discard": {"type": "bool", "default": False},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    args = module.params
    try:
        found = empty(
            args["volume_group"],
            checked_name(args["thin_pool"] or args["volume_group"] + "-pool", "thin pool"),
            args["images"],
            args["unused"],
            args["discard"],
            module.check_mode,
        )
    except Exception as error:
        fail(module, error)
    before = [image["name"] for image in found["images"]]
    diff = {
        "before": {"images": before},
        "after": {"images": [name for name in before if name not in found["removed"]]},
    }
    module.exit_json(changed=bool(found["removed"]), diff=diff, **found)


if __name__ == "__main__":
    main()
