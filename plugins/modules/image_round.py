#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_round
short_description: Send large images to the hosts of a round, each once
version_added: "0.9.0"
description:
  - The part of a boot in which large images come to the hosts that lack them. Hosts give an image to each other while they receive it, so it leaves the
    controller, or the web server, once, whatever the number of hosts. M(bootflow.compute.boot_schedule) names the hosts
    and the images, of the inventory or of the ledger.
  - An image that only a store of a host has (C(bootflow_image_stores)) comes from that host, which takes part to give it. Rebuilds, rescues and
    evacuations have a round for such images, too.
  - Nothing fails here. What did not come so, the builds get by themselves, and a warning says why. A build whose image only a store of a host has
    fails without it.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
options:
  phase:
    description: >-
      V(offer) begins to receive images that the host lacks, V(serve) gives images that it has and others lack, V(connect) tells its processes whom to
      ask. V(send) sends files of the controller to it, or to the next host if it takes nothing, where it is the first one to get them.
    type: str
    choices: [offer, serve, connect, send]
    required: true
attributes:
  check_mode: {support: full, details: Does nothing.}
"""

EXAMPLES = r"""
---
- name: Begin to receive images
  bootflow.compute.image_round:
    phase: offer
"""

RETURN = r"""
---
changed:
  description: Whether a process of the host began to receive or to give an image, was connected, or the controller sent it a file.
  type: bool
  returned: always
"""
