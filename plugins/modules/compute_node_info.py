#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_node_info
short_description: Report what a compute node has and what of it is used
version_added: "0.1.0"
description:
  - Asks libvirt and the kernel of the host for the fields of Nova's C(get_available_resource), for the scheduler and for the guests' definitions.
  - KVM counts only where it works. With O(virt_type=auto) a guest of 512 bytes is run once for each boot of the host, which takes
    a tenth of a second; the answer is kept below C(_probe) in O(instances_path).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
    details: In check mode neither the answer about KVM nor the CPU times are kept.
  diff_mode:
    support: none
  idempotent:
    support: full
  platform:
    platforms: linux
options:
  libvirt_uri:
    description: The hypervisor of this host.
    type: str
    default: qemu:///system
  instances_path:
    description: Absolute path of the folder in which each instance has its own, named by its UUID.
    type: path
    default: /var/lib/bootflow/instances
  virt_type:
    description:
      - What guests are to run under.
      - V(auto) is V(kvm) where a guest really runs under it, and V(qemu) elsewhere.
    type: str
    choices: [auto, kvm, qemu]
    default: auto
  arch:
    description: Architecture of the guests to come. Without it that of the host.
    type: str
  pci_device_spec:
    description:
      - Which PCI devices of the host may be given to guests, in the form of Nova's C(passthrough_whitelist).
      - Each entry names any of C(vendor_id), C(product_id) and either C(address) or C(devname); what it leaves out may be anything.
        C(address) is a text such as V(*:0a:00.*), or a dictionary of regular expressions for C(domain), C(bus), C(slot) and C(function).
        The address of a physical function stands for its virtual functions as well.
      - All other keys (C(physical_network), C(trusted)) become tags of the devices.
      - Without entries no device is offered.
    type: list
    elements: dict
    default: []
  isolated_disks:
    description:
      - Physical disks that are set aside for guests, each of which goes to one guest whole. Names below C(/dev/disk/by-id) last.
      - A disk that is mounted, has a partition in use, is an LVM physical volume, is held by another device or by a domain is
        reported with the reason, and not offered.
    type: list
    elements: path
    default: []
  disk_backend:
    description: What keeps the local disks of guests. With V(lvm) and V(qcow2_on_lvm) the sizes of disk in RV(compute_node) are those of O(volume_group).
    type: str
    choices: [qcow2, raw, lvm, qcow2_on_lvm]
    default: qcow2
  volume_group:
    description: The volume group of the disks. It is an error where it is not there.
    type: str
  disk_medium:
    description: What local disks lie on. Flavors can ask for it with the extra spec C(capabilities:disk_medium).
    type: str
    choices: ["", hdd, ssd, nvme]
    default: ""
  iqn_prefixes:
    description:
      - What the names of volumes' targets begin with. With it RV(iscsi) tells of which such targets the host has a session, a record of C(iscsiadm) or a
        secret of libvirt.
    type: list
    elements: str
    default: []
  known_targets:
    description: Names of targets that somebody knows the host to have. They are left out of RV(iscsi).
    type: list
    elements: str
    default: []
requirements:
  - python3-libvirt
  - python3-lxml
  - lvm2 for disks in a volume group
"""

EXAMPLES = r"""
---
- name: Ask a compute node
  bootflow.compute.compute_node_info:
  register: node

- name: Show what is left of its memory
  ansible.builtin.debug:
    msg: "{{ node.compute_node.memory_mb - node.compute_node.memory_mb_used }} MB"
"""

RETURN = r"""
---
compute_node:
  description: The host. Memory is in MB, disk in GB.
  type: dict
  returned: success
  contains:
    hypervisor_hostname:
      description: Name of the host, as libvirt has it.
      type: str
      returned: success
    host_uuid:
      description: UUID of the host, as libvirt has it.
      type: str
      returned: success
    host_ip:
      description: Address from which the host reaches others, as Nova's C(my_ip); empty without a default route.
      type: str
      returned: success
    vcpus:
      description: CPUs that are online.
      type: int
      returned: success
    vcpus_used:
      description: Virtual CPUs of the running domains.
      type: int
      returned: success
    memory_mb:
      description: Memory of the host.
      type: int
      returned: success
    memory_mb_used:
      description: Memory that is neither free nor buffer nor page cache.
      type: int
      returned: success
    local_gb:
      description:
        - Size of the file system that holds O(instances_path), or of O(volume_group).
        - With O(disk_backend=qcow2_on_lvm) how much of it can be disks of guests, that is less what their file systems need.
      type: int
      returned: success
    local_gb_used:
      description: What of it is used.
      type: int
      returned: success
    disk_available_least:
      description:
        - What is free, less what the disks of all domains may still grow by. May be negative.
        - Of a volume group what is free in it.
      type: int
      returned: success
    hypervisor_type:
      description: Kind of hypervisor.
      type: str
      returned: success
    hypervisor_version:
      description: Its version as a number, 7002022 for 7.2.22.
      type: int
      returned: success
    libvirt_version:
      description: Version of libvirt as a number.
      type: int
      returned: success
    cpu_info:
      description: The host's CPU with C(arch), C(model), C(vendor), C(features) and C(topology) (C(sockets), C(cores), C(threads), C(cells)).
      type: dict
      returned: success
    numa_topology:
      description: The NUMA cells with C(id), C(memory_mb), C(cpus), C(siblings) and C(pages); null where libvirt reports none.
      type: dict
      returned: success
    supported_instances:
      description: What guests can be, as lists of architecture, hypervisor type and VM mode.
      type: list
      elements: list
      returned: success
    pci_passthrough_devices:
      description:
        - PCI devices that O(pci_device_spec) admits, whether or not a guest has them.
        - Each has C(address), C(vendor_id), C(product_id), C(numa_node) (null where the host does not say), C(dev_type) (V(type-PCI),
          V(type-PF) or V(type-VF)), C(parent_addr) (of a virtual function its physical one), C(tags), C(dev_id) and C(label).
      type: list
      elements: dict
      returned: success
    isolated_disks:
      description:
        - The disks of O(isolated_disks), with C(path), C(size_gb), C(medium) (V(hdd), V(ssd) or V(nvme)), C(serial) and C(reason).
        - A disk with a C(reason) is not to be given away.
      type: list
      elements: dict
      returned: success
    metrics:
      description:
        - Numbers of Nova's CPU monitor, C(cpu.frequency) in MHz, C(cpu.user.time), C(cpu.kernel.time), C(cpu.idle.time) and
          C(cpu.iowait.time) in nanoseconds since the host started, the same with C(percent) for C(time), and C(cpu.percent) for all but idle.
        - The percentages are of the time since the report before this one.
        - Empty where libvirt does not have the numbers.
      type: dict
      returned: success
    stats:
      description: What flavors can ask for by name, C(disk_backend) and, where one is given, C(disk_medium).
      type: dict
      returned: success
    virt_type:
      description: What guests run under, V(kvm) or V(qemu).
      type: str
      returned: success
    virt_type_reason:
      description: Why.
      type: str
      returned: success
    emulators:
      description: Path of the emulator for each architecture.
      type: dict
      returned: success
    machine_types:
      description: Machine types for each architecture.
      type: dict
      returned: success
    uefi:
      description: Whether a UEFI firmware for guests is there.
      type: bool
      returned: success
    initiator:
      description: Name of the host's iSCSI initiator, from C(/etc/iscsi/initiatorname.iscsi); null where it has none.
      type: str
      returned: success
    qemu_iscsi:
      description: Whether QEMU can open iSCSI volumes by itself (Debian's qemu-block-extra).
      type: bool
      returned: success
    running_domains:
      description: Number of running domains.
      type: int
      returned: success
    domains:
      description:
        - All domains, with C(uuid), C(name), C(power_state) (Nova's number), C(memory_mb), C(vcpus), and C(ours), whether this collection made it.
      type: list
      elements: dict
      returned: success
    instance_volumes:
      description: Names of the logical volumes in O(volume_group) that bear an instance's tag, by the instance's UUID.
      type: dict
      returned: with the disk backends lvm and qcow2_on_lvm
    instance_folders:
      description: UUIDs that have a folder below O(instances_path).
      type: list
      elements: str
      returned: success
iscsi:
  description: What the host has of targets that are not in O(known_targets).
  type: dict
  returned: with O(iqn_prefixes)
  contains:
    sessions:
      description:
        - Targets that it is logged in to or keeps a record of, with C(iqn), C(volume_id), C(session) (whether it is logged in), C(luns), C(portals)
          and C(in_use), the reasons why their disks may not go.
      type: list
      elements: dict
      returned: always
    secrets:
      description: Targets that this collection gave libvirt a secret of, with C(iqn) and C(volume_id).
      type: list
      elements: dict
      returned: always
    error:
      description: What could not be read, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: HypervisorUnavailable
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 503
remedy:
  description: What to do about it.
  type: str
  returned: failure
  sample: Start libvirtd on that host, or disable the host.
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import MEDIA
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_backends import BACKENDS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts.facts import compute_node
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.stale_sessions import iscsi_ends
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import connect
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail


def main():
    module = AnsibleModule(
        argument_spec={
            "libvirt_uri": {"type": "str", "default": "qemu:///system"},
            "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
            "virt_type": {"type": "str", "choices": ["auto", "kvm", "qemu"], "default": "auto"},
            "arch": {"type": "str"},
            "pci_device_spec": {"type": "list", "elements": "dict", "default": []},
            "isolated_disks": {"type": "list", "elements": "path", "default": []},
            "disk_backend": {"type": "str", "choices": list(BACKENDS), "default": "qcow2"},
            "volume_group": {"type": "str"},
            "disk_medium": {"type": "str", "choices": ["", *MEDIA], "default": ""},
            "iqn_prefixes": {"type": "list", "elements": "str", "default": []},
            "known_targets": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    args = module.params
    more = {}
    try:
        with connect(args["libvirt_uri"]) as connection:
            node = compute_node(
                connection,
                args["instances_path"],
                args["virt_type"],
                args["arch"] or "",
                not module.check_mode,
                args["pci_device_spec"],
                args["isolated_disks"],
                args["disk_backend"],
                args["volume_group"] or "",
                args["disk_medium"],
            )
            if args["iqn_prefixes"]:
                more["iscsi"] = iscsi_ends(connection, args["iqn_prefixes"], args["known_targets"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=False, compute_node=node, **more)


if __name__ == "__main__":
    main()
