#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_image_cache
short_description: Empty the image cache of a thin LVM backend
version_added: "0.9.0"
description:
  - Removes all or some of the images that M(bootflow.compute.volume_lvm) caches on a thin backend of this host.
  - Existing volumes that were created from them are not affected, and keep the blocks that they share. The next volume from such an image is copied again.
  - An image from which a run is creating volumes, or that a program has open, is kept and listed in RV(kept).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.shared.ledger_id, bootflow.compute.shared.volume_group]
attributes:
  check_mode: {support: full, details: Check mode does not detect runs that are creating volumes from an image.}
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  images:
    description: Only these images, by their id in the catalogue (current or former) or by their checksum. By default all.
    type: list
    elements: str
  unused:
    description: Only images that no volume uses any more.
    type: bool
    default: false
  discard:
    description: Also discard their blocks on the underlying device.
    type: bool
    default: false
requirements:
  - lvm2, thin-provisioning-tools
"""

EXAMPLES = r"""
---
- name: Empty the image cache
  bootflow.compute.volume_image_cache:
    volume_group: flash
  check_mode: true
  register: cache

- name: Remove the images that no volume uses any more
  bootflow.compute.volume_image_cache:
    volume_group: flash
    unused: true
"""

RETURN = r"""
---
images:
  description: The cached images, in the order of eviction.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the logical volume.
      type: str
      returned: always
    checksum:
      description: The sha256 of the image's content, which is in the file as it is published or is the file itself.
      type: str
      returned: always
    published:
      description: Other checksums that the files had from which the image was cached, as V(sha512:<hex>), such as that of a compressed file.
      type: list
      elements: str
      returned: always
    image_ids:
      description: Ids of the images of the catalogue with this content.
      type: list
      elements: str
      returned: always
    size:
      description: Virtual size in bytes, in whole extents.
      type: int
      returned: always
    written:
      description: Bytes that the image uses in the thin pool; volumes created from it may share them.
      type: int
      returned: always
    used_at:
      description: When a volume was last created from it, in seconds since the epoch by the host's clock; V(0) if unknown.
      type: int
      returned: always
    users:
      description: Number of existing volumes that were created from it.
      type: int
      returned: always
    complete:
      description: Whether the image is complete; otherwise a run is writing it, or was killed.
      type: bool
      returned: always
removed:
  description: Names of the images that were, or in check mode would be, removed.
  type: list
  elements: str
  returned: success
kept:
  description: Reasons why other selected images were kept, by name.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.logical_volumes import checked_lvm_name
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.image_cache import empty


def argument_spec():
    """The module's options."""
    return {
        **LEDGER_ARGUMENTS,
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
        report = empty(
            args["volume_group"],
            checked_lvm_name(args["thin_pool"] or args["volume_group"] + "-pool", "thin pool"),
            args["images"],
            args["unused"],
            args["discard"],
            module.check_mode,
            args["ledger_id"],
        )
    except Exception as error:
        fail(module, error)
    before = [image["name"] for image in report["images"]]
    diff = {
        "before": {"images": before},
        "after": {"images": [name for name in before if name not in report["removed"]]},
    }
    module.exit_json(changed=bool(report["removed"]), diff=diff, **report)


if __name__ == "__main__":
    main()
