# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  flavors:
    description: The flavors that requests may name, a list of dictionaries. Read from the variable C(bootflow_flavors).
    type: raw
  images:
    description: The images that requests may name. Read from the variable C(bootflow_images).
    type: raw
  networks:
    description: The networks that requests may name, with their subnets. Read from the variable C(bootflow_networks).
    type: raw
  keypairs:
    description: The public keys that requests may name. Read from the variable C(bootflow_keypairs).
    type: raw
"""
