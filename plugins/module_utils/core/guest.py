# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""TEMPORARY"""

from __future__ import annotations

import re


def domain_name(display_name: str, uuid: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", display_name).strip("-.") or "instance"
    return "%s-%s" % (safe[:200], uuid[:8])


XML = """<domain type='{vt}'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>{mem}</memory><vcpu>{vcpus}</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type><boot dev='hd'/></os><features><acpi/><apic/></features><clock offset='utc'/>
<devices>{disks}{nics}<serial type='pty'><log file='{log}' append='off'/></serial></devices></domain>"""


def quick_xml(name, uuid, mem, vcpus, vt, disks, nics, log):
    d = "".join("<disk type='file' device='%s'><driver name='qemu' type='%s'/><source file='%s'/><target dev='%s' bus='%s'/>%s</disk>" % x for x in disks)
    n = "".join("<interface type='%s'><mac address='%s'/><source %s='%s'/><model type='virtio'/></interface>" % x for x in nics)
    return XML.format(vt=vt, name=name, uuid=uuid, mem=mem, vcpus=vcpus, disks=d, nics=n, log=log)
