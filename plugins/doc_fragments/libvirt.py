# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  libvirt_uri:
    description: URI of the hypervisor of this host.
    type: str
    default: qemu:///system
  libvirt_timeout:
    description: Seconds after which a libvirt daemon that is silent is given up, when it is connected to and during a call.
    type: float
    default: 30.0
requirements:
  - python3-libvirt
  - python3-lxml
"""
