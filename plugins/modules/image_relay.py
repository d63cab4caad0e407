#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_relay
short_description: Receive images, and give them to other hosts meanwhile
version_added: "0.9.0"
description:
  - Starts a process for each image that this host lacks. It gets the image from other hosts of the run by TLS, from the controller by SSH, or from a web
    server, and gives each piece on as soon as it has it. Each piece is compared with its SHA-256 before it is kept or given on, and the whole with the
    catalogue before it is published.
  - Key and certificate are made for this process on this host, the key never leaves it. Other hosts show the token of the image. The process ends when no host
    needs it any more, when nothing comes any more, or after O(lifetime) seconds. What arrived by then stays, and a later run goes on there.
  - The failure of one image does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: none}
  diff_mode: {support: none, details: Images have no text to compare.}
  platform: {platforms: linux}
options:
  state:
    description: >-
      V(offered) begins, V(connected) tells the processes whom to ask, V(collected) waits until the images are there.
    type: str
    choices: [offered, connected, collected]
    required: true
  images:
    description: The images, as M(bootflow.compute.instance_disks) takes them, and in addition what follows.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: Id of the image, the key of its result.
        type: str
        required: true
      name:
        description: Name of the image.
        type: str
      url:
        description: URL from which hosts fetch the image.
        type: str
      path_on_host:
        description: With O(images[].serves), the file in a store of this host to give, in place of the host's own copy.
        type: path
      checksum:
        description: Checksum of the file, see M(bootflow.compute.instance_disks).
        type: str
        default: ""
      version:
        description: Version of the controller's file, for an image without a checksum.
        type: str
        default: ""
      disk_format:
        description: Format of the image according to the catalogue.
        type: str
        required: true
      size:
        description: Size of the file in bytes according to the catalogue. A larger file is rejected.
        type: int
      validate_certs:
        description: Check the certificate of the web server.
        type: bool
        default: true
      ca_path:
        description: File on this host with the certificates of the authorities.
        type: path
      client_cert:
        description: File on this host with the client certificate for the web server.
        type: path
      client_key:
        description: File on this host with the key of O(images[].client_cert).
        type: path
      url_username:
        description: User for the web server.
        type: str
      url_password:
        description: Password of O(images[].url_username).
        type: str
      headers:
        description: Headers of the request to the web server, a dictionary.
        type: json
      use_proxy:
        description: Use the proxy that the environment of this host sets.
        type: bool
        default: true
      bytes:
        description: Size of the controller's file; V(0) if it is unknown.
        type: int
        default: 0
      token:
        description: What other hosts show.
        type: str
      serves:
        description: With O(state=offered), whether this host gives the image to others where it has it.
        type: bool
        default: false
      tasks:
        description: >-
          With O(state=connected), whom to ask. C(before), C(after) and C(origins) are lists of hosts, each with C(name), C(address), C(port) and
          C(fingerprint); C(root) is the SHA-256 of what the pieces have, C(sha256) that of the file, C(size) its bytes, C(may_fetch) whether this host
          may fetch the image by its URL. With C(error) only, the process ends with it.
        type: dict
  name:
    description: Name of this host for others.
    type: str
    default: ""
  first_port:
    description: Each process listens at the first free port from this one on, at all addresses.
    type: int
    default: 49216
  last_port:
    description: The last of these ports.
    type: int
    default: 49279
  stop_token:
    description: What ends the processes. With O(state=offered).
    type: str
    default: ""
  lifetime:
    description: Seconds after which they end by themselves.
    type: float
    default: 3600.0
  begins:
    description: >-
      With O(state=offered), seconds in which all hosts learn their sources, and the controller begins to send images. A process without a connection
      by then ends.
    type: float
    default: 300.0
  wait:
    description: With O(state=collected), seconds to wait for each image.
    type: float
    default: 3600.0
  allow_unverified:
    description: Accept images without a checksum.
    type: bool
    default: false
  image_max_gb:
    description: Largest file in GiB.
    type: int
    default: 1024
  image_fetch_timeout:
    description: Seconds that a web server may take.
    type: float
    default: 3600.0
  vmdk_allowed_types:
    description: Types of VMDK files that are accepted.
    type: list
    elements: str
    choices: [streamOptimized, monolithicSparse]
    default: [streamOptimized, monolithicSparse]
requirements:
  - qemu-utils
  - openssl
"""

EXAMPLES = r"""
---
- name: Begin to receive an image
  bootflow.compute.image_relay:
    state: offered
    name: kvm1
    images:
      - id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
        url: https://images.example.com/debian-12.qcow2
        checksum: sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
        disk_format: qcow2
        token: "{{ token }}"
    stop_token: "{{ stop_token }}"
  no_log: true
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each image, by its id.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether a process was started, or the image is on the host now.
      type: bool
      returned: always
    state:
      description: V(lacks), V(has), V(whole) if the host has the very file and could give it, or V(busy) if another run fetches it.
      type: str
      returned: for images of O(state=offered)
    bytes:
      description: Bytes that the host has.
      type: int
      returned: success
    port:
      description: Where the process listens; 0 if there is none.
      type: int
      returned: for images of O(state=offered)
    fingerprint:
      description: The SHA-256 of its certificate.
      type: str
      returned: for images of O(state=offered)
    source:
      description: The host, or the web server, that sent the end of it.
      type: str
      returned: for images of O(state=collected)
    wrong:
      description: Hosts that sent something else than the image, each with the offset of it.
      type: dict
      returned: for images of O(state=collected)
    left:
      description: Hosts that were left for another one, each with the reason.
      type: dict
      returned: for images of O(state=collected)
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.server import answered
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import (
    FETCH_ARGUMENTS,
    IMAGE_ARGUMENTS,
    fetch_limits,
    image_source,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, attempt
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.relay import offers


def argument_spec():
    """The module's options."""
    image = {
        **IMAGE_ARGUMENTS,
        "bytes": {"type": "int", "default": 0},
        "token": {"type": "str", "no_log": True},
        "serves": {"type": "bool", "default": False},
        "tasks": {"type": "dict"},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        "state": {"type": "str", "choices": ["offered", "connected", "collected"], "required": True},
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "images": {"type": "list", "elements": "dict", "required": True, "options": image},
        "name": {"type": "str", "default": ""},
        "first_port": {"type": "int", "default": 49216},
        "last_port": {"type": "int", "default": 49279},
        "stop_token": {"type": "str", "default": "", "no_log": True},
        "lifetime": {"type": "float", "default": 3600.0},
        "begins": {"type": "float", "default": 300.0},
        "wait": {"type": "float", "default": 3600.0},
        **{name: spec for name, spec in FETCH_ARGUMENTS.items() if name != "uploads"},
    }


def work(args):
    """Return the function of one image, by the state."""
    path = args["instances_path"]

    def source(image):
        return image_source(image, {}, args["allow_unverified"], fetch_limits(args))

    def offered(image):
        tokens = (image["token"] or "", args["stop_token"])
        ports, seconds = (args["first_port"], args["last_port"]), args["lifetime"]
        return offers.offer(
            source(image),
            path,
            args["name"],
            image["bytes"],
            *tokens,
            ports,
            seconds,
            serves=image["serves"],
            begins=args["begins"],
        )

    def connected(image):
        return offers.connect(path, image["id"], image["token"] or "", image["tasks"] or {})

    def collected(image):
        return offers.collect(source(image), path, args["wait"], image["token"] or "")

    return {"offered": offered, "connected": connected, "collected": collected}[args["state"]]


def main():
    module = AnsibleModule(argument_spec=argument_spec())
    keep_time_limit(module)
    try:
        one = work(module.params)
        # One by one: a process is started from here.
        outcomes = {image["id"]: attempt(one, image) for image in module.params["images"]}
    except Exception as error:
        fail(module, error)
    answered()
    module.exit_json(changed=any_changed(outcomes), outcomes=outcomes)


if __name__ == "__main__":
    main()
