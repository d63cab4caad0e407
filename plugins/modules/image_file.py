#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_file
short_description: Write and remove files of a store of images
version_added: "0.9.0"
description:
  - >-
    Writes images to the directory of a store, from a URL, a file of this host, or another host that gives them: in one stream, under another name,
    hashed meanwhile. A file gets its name when its checksum, its format and its header are as they should be, so that a half image is never seen.
  - The failure of one image does not affect the others. What a failed one wrote is removed.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.shared.time_limit]
options:
  path:
    description: The directory of the store. It is never created, as it may be where a file system is not mounted.
    type: path
    required: true
  mode:
    description: The mode of new files, in octal digits.
    type: str
    default: "0600"
  images:
    description: The images to write. The file of an image that is there is replaced.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: Id of the image. The file has this name.
        type: str
        required: true
      name:
        description: Name of the image, for messages.
        type: str
      url:
        description: URL of the file (http, https or file).
        type: str
      path_on_host:
        description: Path of the file on this host, in place of O(images[].url).
        type: path
      giver:
        description: The process of another host that gives the file (M(bootflow.compute.image_relay)), in place of O(images[].url).
        type: dict
        suboptions:
          address:
            description: Where this host reaches the other one.
            type: str
            required: true
          port:
            description: Where the process listens.
            type: int
            required: true
          fingerprint:
            description: The SHA-256 of its certificate.
            type: str
            required: true
          token:
            description: What the process wants to see.
            type: str
            required: true
          stop_token:
            description: What ends the process, once all bytes have arrived.
            type: str
            required: true
      checksum:
        description: Checksum as C(sha256:<hex>) or C(sha512:<hex>), or with the address of a file with checksums as C(sha256:https://...).
        type: str
        default: ""
      version:
        description: Path, size and time of the controller's file.
        type: str
        default: ""
      disk_format:
        description: Format of the image in Glance's words (qcow2, raw, vmdk, vdi, vhd, vhdx...). It is checked, never guessed.
        type: str
        required: true
      size:
        description: Size of the file in bytes. A larger file is refused.
        type: int
      validate_certs:
        description: Whether the certificate of a web server must be valid.
        type: bool
        default: true
      ca_path:
        description: Certificates of the authorities to trust, a file on this host.
        type: path
      client_cert:
        description: Certificate that identifies this host to the web server, a file on this host.
        type: path
      client_key:
        description: Its key, a file on this host.
        type: path
      url_username:
        description: User of the web server (HTTP basic authentication).
        type: str
      url_password:
        description: Password of this user.
        type: str
      headers:
        description: HTTP headers of the request, a mapping of names to texts.
        type: json
      use_proxy:
        description: Whether proxies of the environment are used.
        type: bool
        default: true
  removed:
    description: Ids of images whose files to remove, whole ones and half ones.
    type: list
    elements: str
    default: []
  uploads:
    description: Image id to the path on this host to which the controller copied the file.
    type: dict
    default: {}
  allow_unverified:
    description: Accept images without a checksum.
    type: bool
    default: false
  image_max_gb:
    description: Largest file of an image, in GiB; V(0) for no limit.
    type: int
    default: 1024
  image_fetch_timeout:
    description: Seconds that reading one image may take; V(0) for no limit.
    type: float
    default: 3600.0
  vmdk_allowed_types:
    description: Types of VMDK images to accept.
    type: list
    elements: str
    choices: [streamOptimized, monolithicSparse]
    default: [streamOptimized, monolithicSparse]
attributes:
  check_mode: {support: full, details: "Sources are not read: an image of which nothing is there counts as changed."}
  idempotent: {support: partial, details: "O(images) are always written."}
"""

EXAMPLES = r"""
---
- name: Write an image to a store, and remove another
  bootflow.compute.image_file:
    path: /srv/images
    images:
      - id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
        url: https://images.example.com/debian-12.qcow2
        checksum: sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
        disk_format: qcow2
    removed: [9b1f3d5c-0f7a-4c39-8f0e-5f0d2c1b7a22]
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each image, by its id.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether a file was, or in check mode would be, written or removed.
      type: bool
      returned: always
    size:
      description: Size of the written file in bytes.
      type: int
      returned: for written images
    checksum:
      description: Its sha256.
      type: str
      returned: for written images
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import (
    FETCH_ARGUMENTS,
    IMAGE_ARGUMENTS,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.store_files import work_on
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.relay.given import GIVER_ARGUMENTS, receive


def argument_spec():
    """The module's options."""
    return {
        **TIME_LIMIT_ARGUMENTS,
        "path": {"type": "path", "required": True},
        "mode": {"type": "str", "default": "0600"},
        "images": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {**IMAGE_ARGUMENTS, "giver": {"type": "dict", "options": GIVER_ARGUMENTS}},
        },
        "removed": {"type": "list", "elements": "str", "default": []},
        **FETCH_ARGUMENTS,
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    try:
        outcomes = work_on(module.params, module.check_mode, receive)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(outcomes), outcomes=outcomes)


if __name__ == "__main__":
    main()
