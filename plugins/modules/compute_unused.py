#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_unused
short_description: Remove base images and networks that no guest of the host uses
version_added: "0.9.0"
description:
  - >-
    Removes base images from the cache of the host (C(_base) below O(instances_path)), and destroys and undefines libvirt networks that
    M(bootflow.compute.virtual_network) defined.
  - >-
    A base image is used while its name is in the backing chain of a file below O(instances_path), or of a disk of any domain, whoever
    defined it. A network is used while a domain, running or defined, has an interface in it, or another program has one in its bridge.
  - Bridges and VXLAN devices that M(bootflow.compute.virtual_network) made are removed by the same rules.
  - Networks that others defined are never touched, and neither are other files in the cache.
  - Can run while boots run. An image from which a run makes disks at this moment is kept.
  - >-
    A removal that fails does not stop the others. The module then fails, and RV(images) and RV(networks) are what it
    removed nevertheless. RV(failed_items) names the path of each image and each C(network NAME) that is still there; C(base images) or
    C(networks) stands for all of them, where it could not be found out which are used.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  images:
    description: Remove base images.
    type: bool
    default: true
  networks:
    description: Remove networks.
    type: bool
    default: true
  minimum_age:
    description:
      - Seconds for which an image or network must have been unused.
      - >-
        The age of an image counts since a disk was last made from it or removed, or this module saw it used; that of a network since a build
        last needed it, and at most since the host started (not of VXLAN networks).
    type: float
    default: 86400.0
  keep_images:
    description: Ids of images whose newest file is kept.
    type: list
    elements: str
    default: []
  keep_networks:
    description: Names of libvirt networks, and of bridges of VXLAN networks, that are kept.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
---
- name: Remove base images that no guest has used for a week, and no networks
  bootflow.compute.compute_unused:
    minimum_age: 604800
    networks: false
"""

RETURN = r"""
---
images:
  description:
    - Base images that were, or in check mode would be, removed, with C(path), C(size) (bytes on the disk) and C(age) (seconds).
  type: list
  elements: dict
  returned: always
  sample:
  - path: /var/lib/bootflow/instances/_base/6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e-5f70bf18a0860070
    size: 1073741824
    age: 172800
networks:
  description: Names of the libvirt networks that were, or in check mode would be, removed.
  type: list
  elements: str
  returned: always
  sample:
  - old-private
failed_items:
  description:
    - What failed, each item with C(name), C(id), C(host), C(state), C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).
    - Missing if the task failed as a whole.
  type: list
  elements: dict
  returned: failure
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import PurgeIncomplete, failed_item
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.unused_images import purge_images
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.registry import (
    purge_networks,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import as_bootflow_error, fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def main():
    module = AnsibleModule(
        argument_spec={
            **TIME_LIMIT_ARGUMENTS,
            **LIBVIRT_ARGUMENTS,
            "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
            "images": {"type": "bool", "default": True},
            "networks": {"type": "bool", "default": True},
            "minimum_age": {"type": "float", "default": 86400.0},
            "keep_images": {"type": "list", "elements": "str", "default": []},
            "keep_networks": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    done = {"changed": False, "images": [], "networks": []}
    keep_time_limit(module, done)
    args = module.params
    failed, files, diff = [], [], []

    def removals(things, outcomes):
        """Return the removals that succeeded, one after the other; the others are noted as failed."""
        try:
            for outcome in outcomes:
                done["changed"] |= outcome.pop("changed")
                error = outcome.pop("error")
                if error is None:
                    yield outcome
                else:
                    what = outcome.get("path") or "network %s" % outcome["name"]
                    failed.append(failed_item(what, what, error))
        except Exception as error:
            failed.append(failed_item(things, things, as_bootflow_error(error).as_dict()))

    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:
            if args["images"]:
                unused = purge_images(
                    connection, args["instances_path"], args["minimum_age"], args["keep_images"], module.check_mode
                )
                for image in removals("base images", unused):
                    done["images"].append(image)
                    files.append("%(path)s (%(size)d bytes, unused for %(age)d s)\n" % image)
            if args["networks"]:
                unused = purge_networks(connection, args["minimum_age"], args["keep_networks"], module.check_mode)
                for network in removals("networks", unused):
                    done["networks"].append(network["name"])
                    diff.append({"before_header": network["name"], "before": network["definition"], "after": ""})
    except Exception as error:
        fail(module, error, **done)
    if files:
        diff.insert(0, {"before_header": "base images", "before": "".join(files), "after": ""})
    if failed:
        total = len(failed) + len(done["images"]) + len(done["networks"])
        fail(module, PurgeIncomplete(failed, total), diff=diff, **done)
    module.exit_json(diff=diff, **done)


if __name__ == "__main__":
    main()
