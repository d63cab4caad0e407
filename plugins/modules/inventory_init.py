#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: inventory_init
short_description: Write the files with which a person begins
version_added: "0.9.0"
description:
  - Writes a folder with C(ansible.cfg), an inventory of compute hosts (C(hosts.yml)) and one of guests (C(guests.bootflow.yml)), flavors, an image, a NAT
    network and a key pair (C(group_vars/all)), a first request (C(web.yml)) and a playbook that boots it and works in the guests (C(site.yml)).
  - A file that exists is left as it is. No host is contacted, and no ledger is opened.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
attributes:
  diff_mode: {support: full}
options:
  init_dir:
    description:
      - The folder on the controller. It is made if it is missing.
      - Read from the variable C(bootflow_init_dir), else the current folder.
    type: path
  init_hosts:
    description:
      - The compute hosts, each a name that SSH knows, or V(name=address). Without any, this machine is the compute host,
        on which modules become root by sudo where another user runs this.
      - Read from the variable C(bootflow_init_hosts).
    type: list
    elements: str
  init_user:
    description:
      - Who logs in to these hosts by SSH; another user than root becomes root there.
      - Read from the variable C(bootflow_init_user), else V(root).
    type: str
  init_public_key:
    description:
      - The file of the public SSH key that guests let in.
      - Read from the variable C(bootflow_init_public_key), else the first of C(id_ed25519.pub), C(id_ecdsa.pub) and C(id_rsa.pub) in C(~/.ssh).
    type: path
  print_table:
    description: Print what was written, and what to do next. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Begin with two hosts
  bootflow.compute.inventory_init:
    init_dir: ~/machines
    init_hosts: [kvm1.example.org, kvm2=192.0.2.12]
"""

RETURN = r"""
---
folder:
  description: The folder.
  type: str
  returned: success
created:
  description: The files that were, or in check mode would be, written.
  type: list
  elements: str
  returned: success
kept:
  description: The files that were there, and are as they were.
  type: list
  elements: str
  returned: success
"""
