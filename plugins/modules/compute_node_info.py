#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_node_info
short_description: Report the resources and usage of a compute node
version_added: "0.9.0"
description:
  - Collects the fields of Nova's C(get_available_resource) from libvirt and the kernel of the host, for the scheduler and the definitions of guests.
  - KVM is used only where it works. With O(virt_type=auto) a guest of 512 bytes runs once for each boot of the host, which takes
    a tenth of a second; the result is cached in C(_probe) below O(instances_path).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.disk_pool
attributes:
  check_mode: {support: full, details: In check mode the result for KVM and the CPU times are not cached.}
  platform: {platforms: linux}
options:
  virt_type:
    description:
      - Virtualization type of the guests.
      - V(auto) selects V(kvm) where a guest really runs under it, and V(qemu) elsewhere.
    type: str
    choices: [auto, kvm, qemu]
    default: auto
  arch:
    description: Architecture of future guests. By default that of the host.
    type: str
  pci_device_spec:
    description:
      - PCI devices of the host that guests may use, in the format of Nova's C(passthrough_whitelist).
      - Each entry has any of C(vendor_id), C(product_id) and either C(address) or C(devname); a missing key matches anything.
        C(address) is a string such as V(*:0a:00.*), or a dictionary of regular expressions for C(domain), C(bus), C(slot) and C(function).
        The address of a physical function also matches its virtual functions.
      - All other keys (C(physical_network), C(trusted)) become tags of the devices.
      - Without entries, no device is offered.
    type: list
    elements: dict
    default: []
  isolated_disks:
    description:
      - Physical disks that are reserved for guests; each is given to one guest as a whole. Names below C(/dev/disk/by-id) are persistent.
      - A disk that is mounted, has a partition in use, is an LVM physical volume, or is held by another device or a domain is
        reported with the reason and not offered.
    type: list
    elements: path
    default: []
  volume_attach:
    description:
      - How guests of this host get volumes. With V(kernel) their disks are block devices of the host.
      - By default this is not known, and RV(compute_node.guest_content) is about local disks only.
    type: str
    choices: [kernel, qemu]  # connectors
  disk_backend:
    description:
      - Storage of the local disks of guests. With V(lvm) and V(qcow2_on_lvm) the disk sizes in RV(compute_node) are the sizes of O(volume_group).
      - With V(rbd) they are the sizes of O(disk_pool). A pool that does not answer, is full or is not counted has none, and C(disk_refusal) of
        RV(compute_node.stats) says why.
    type: str
    choices: [qcow2, raw, lvm, qcow2_on_lvm, rbd]  # disk backends
    default: qcow2
  volume_group:
    description: Volume group of the disks. It must exist.
    type: str
  firewall_driver:
    description: Driver that filters the ports of guests. With V(nftables) it is reported whether this host can.
    type: str
    choices: [noop, nftables]
    default: noop
  disk_medium:
    description: Medium of the local disks. Flavors can request it with the extra spec C(capabilities:disk_medium).
    type: str
    choices: ["", hdd, ssd, nvme]
    default: ""
  cpu_flags:
    description: CPU features that guests are to have (V(pcid), V(+pcid)) or not to have (V(-vmx)). Features that libvirt does not know are reported.
    type: list
    elements: str
    default: []
  physical_interface_mappings:
    description: Physical network -> interface of this host in it, which gets the frames of VLANs.
    type: dict
    default: {}
  vxlan_address:
    description: IP address of the host in the network between the compute hosts, for VXLAN networks. Without one the host serves none.
    type: str
    default: ""
  iqn_prefixes:
    description:
      - Prefixes of the names of volume targets. If set, RV(iscsi) lists the targets for which the host has a session, a record of C(iscsiadm) or a
        secret of libvirt.
    type: list
    elements: str
    default: []
  known_targets:
    description: Names of targets that the host should have. RV(iscsi) does not list them.
    type: list
    elements: str
    default: []
  list_reservations:
    description: Also return the DHCP reservations of the libvirt networks of the host, as RV(dhcp).
    type: bool
    default: false
  list_other_disks:
    description: Also list the disks to which guests write and that are not their instances', as C(other_disks) of a domain in RV(compute_node).
    type: bool
    default: false
  volumes:
    description:
      - By the UUIDs of instances and of the volumes that they have, where this host has them, the path of a device or IQN/LUN.
      - With O(list_other_disks), what a guest has in place of one of them, an overlay or a copy, is listed.
    type: dict
    default: {}
requirements:
  - lvm2 for disks in a volume group
"""

EXAMPLES = r"""
---
- name: Collect the facts of a compute node
  bootflow.compute.compute_node_info:
  register: node

- name: Show its free memory
  ansible.builtin.debug:
    msg: "{{ node.compute_node.memory_mb - node.compute_node.memory_mb_used }} MiB"
"""

RETURN = r"""
---
compute_node:
  description: Facts of the host. Memory is in MiB, disk in GiB.
  type: dict
  returned: success
  contains:
    hypervisor_hostname:
      description: Name of the host in libvirt.
      type: str
      returned: success
    memory_mb:
      description: Memory of the host.
      type: int
      returned: success
    local_gb:
      description:
        - Size of the file system that holds O(instances_path), of O(volume_group) or of O(disk_pool).
        - With O(disk_backend=qcow2_on_lvm) the part of it that disks of guests can use, which excludes the overhead of their file systems.
      type: int
      returned: success
    vcpus:
      description: Number of CPUs that are online.
      type: int
      returned: success
    domains:
      description:
        - All domains, with C(uuid), C(name), C(power_state) (Nova's number), C(memory_mb), C(vcpus), and C(ours), whether this collection created it.
        - One with the id of a ledger in its metadata has this as C(ledger), and C(disk_gb), the size of its local disks.
      type: list
      elements: dict
      returned: success
    host_uuid:
      description: UUID of the host in libvirt.
      type: str
      returned: success
    at_work:
      description: UUIDs of the guests that a module of this collection defines, starts or stops now. What is reported of them is not their last state.
      type: list
      elements: str
      returned: success
    host_ip:
      description: Address from which the host reaches others, as Nova's C(my_ip); empty without a default route.
      type: str
      returned: success
    memory_mb_used:
      description: Memory that is neither free nor used for buffers or the page cache.
      type: int
      returned: success
    local_gb_used:
      description: Used part of it.
      type: int
      returned: success
    vcpus_used:
      description: Number of virtual CPUs of the running domains.
      type: int
      returned: success
    disk_available_least:
      description:
        - Free space minus the space by which the disks of all domains can still grow. May be negative.
        - For a volume group, its free space.
      type: int
      returned: success
    hypervisor_type:
      description: Kind of hypervisor.
      type: str
      returned: success
    hypervisor_version:
      description: Version of the hypervisor as a number, 7002022 for 7.2.22.
      type: int
      returned: success
    libvirt_version:
      description: Version of libvirt as a number.
      type: int
      returned: success
    cpu_info:
      description: CPU of the host, with C(arch), C(model), C(vendor), C(features) and C(topology) (C(sockets), C(cores), C(threads), C(cells)).
      type: dict
      returned: success
    supported_instances:
      description: Supported guests, as lists of architecture, hypervisor type and VM mode.
      type: list
      elements: list
      returned: success
    stats:
      description:
        - Capabilities that flavors can request by name, C(disk_backend) and, if set, C(disk_medium).
        - C(disk_pool) is the pool of the disks, and C(disk_refusal) says why none can be made.
        - With O(firewall_driver=nftables) C(firewall_driver), or why the host cannot filter ports as C(not_filtering).
      type: dict
      returned: success
    numa_topology:
      description: NUMA cells, with C(id), C(memory_mb), C(cpus), C(siblings) and C(pages); null where libvirt reports none.
      type: dict
      returned: success
    pci_passthrough_devices:
      description:
        - PCI devices that match O(pci_device_spec), whether or not a guest uses them.
        - Each has C(address), C(vendor_id), C(product_id), C(numa_node) (null if unknown), C(dev_type) (V(type-PCI), V(type-PF) or V(type-VF)),
          C(parent_addr) (the physical function of a virtual one), C(tags), C(dev_id) and C(label).
      type: list
      elements: dict
      returned: success
    isolated_disks:
      description:
        - The disks of O(isolated_disks), with C(path), C(size_gb), C(medium) (V(hdd), V(ssd) or V(nvme)), C(serial) and C(reason).
        - A disk with a C(reason) is not available to guests.
      type: list
      elements: dict
      returned: success
    metrics:
      description:
        - Metrics of Nova's CPU monitor, C(cpu.frequency) in MHz, C(cpu.user.time), C(cpu.kernel.time), C(cpu.idle.time) and C(cpu.iowait.time) in nanoseconds
          since the host started, the same with C(percent) for C(time), and C(cpu.percent) for all but idle.
        - The percentages cover the time since the previous report.
        - Empty if libvirt does not provide the numbers.
      type: dict
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
      description: Whether a UEFI firmware for guests is installed.
      type: bool
      returned: success
    cpu_models:
      description: Names of the CPU models that libvirt knows for guests of the host.
      type: list
      elements: str
      returned: success
    unknown_cpu_flags:
      description: Names of O(cpu_flags) that libvirt does not know.
      type: list
      elements: str
      returned: success
    initiator:
      description: Name of the iSCSI initiator of the host, from C(/etc/iscsi/initiatorname.iscsi); null if it has none.
      type: str
      returned: success
    qemu_iscsi:
      description: Whether QEMU can open iSCSI volumes itself (Debian's qemu-block-extra).
      type: bool
      returned: success
    qemu_rbd:
      description: Whether QEMU can open volumes of Ceph itself (Debian's qemu-block-extra).
      type: bool
      returned: success
    networks:
      description:
        - Networks that the host has, by the words of C(bootflow_networks), V(bridge) and V(network), with C(name) and C(active).
        - Libvirt networks have C(autostart), too.
        - V(vlan) and V(macvtap) have the physical networks of O(physical_interface_mappings), which are active if their interfaces are up.
        - With O(vxlan_address), V(vxlan) has C(underlay), which is active if an interface has the address; otherwise it is empty.
        - V(ovn) has the integration bridge of Open vSwitch, which is active while ovn-controller has a connection.
        - A type whose networks could not be read is left out.
      type: dict
      returned: success
    vxlan_networks:
      description:
        - VXLAN networks that M(bootflow.compute.virtual_network) made on the host and did not remove, with C(name) (the bridge), C(vni), C(mtu), C(address)
          (of the host in the underlay) and C(peers) (of the other hosts).
      type: list
      elements: dict
      returned: success
    vlan_networks:
      description:
        - VLAN networks that M(bootflow.compute.virtual_network) made on the host and did not remove, with C(name) (the bridge), C(vlan), C(interface) (of the
          physical network) and C(mtu).
      type: list
      elements: dict
      returned: success
    virt_type:
      description: Virtualization type of guests, V(kvm) or V(qemu).
      type: str
      returned: success
    virt_type_reason:
      description: Reason for RV(compute_node.virt_type).
      type: str
      returned: success
    instance_folders:
      description: UUIDs that have a directory below O(instances_path), without instances of other ledgers than O(ledger_id).
      type: list
      elements: str
      returned: success
    complete_guests:
      description:
        - UUIDs of the guests whose builds have ended here, or that have arrived here from other hosts, without instances of other ledgers than O(ledger_id).
        - Guests that were waited for and did not come up, and guests that are being removed, are left out.
      type: list
      elements: str
      returned: success
    instance_volumes:
      description:
        - Names of the logical volumes in O(volume_group) that are tagged for an instance, by UUID of the instance.
        - Items of other ledgers than O(ledger_id) are left out.
      type: dict
      returned: with the disk backends lvm and qcow2_on_lvm
    running_domains:
      description: Number of running domains.
      type: int
      returned: success
    guest_content:
      description:
        - Why the content of guests' disks can do harm on this host, as texts. Volume groups, arrays and the like that the host activated from it, and the
          settings of udev and LVM that are missing (M(bootflow.compute.guest_content) writes them).
        - Empty for a host without block devices of guests.
      type: list
      elements: str
      returned: success
iscsi:
  description: Sessions, records and secrets of targets that are not in O(known_targets).
  type: dict
  returned: with O(iqn_prefixes)
  contains:
    sessions:
      description:
        - Targets that the host is logged in to or has a record of, with C(iqn), C(volume_id), C(session) (whether it is logged in), C(luns), C(portals) and
          C(in_use), the reasons why their disks cannot be removed.
      type: list
      elements: dict
      returned: always
    secrets:
      description: Targets whose secret this collection defined in libvirt, with C(iqn) and C(volume_id).
      type: list
      elements: dict
      returned: always
    error:
      description: Why these could not be read, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
      type: dict
      returned: always
dhcp:
  description: DHCP reservations of the libvirt networks of the host.
  type: dict
  returned: with O(list_reservations)
  contains:
    networks:
      description:
        - All libvirt networks, with C(name), C(ours) (whether this collection defined it) and C(reservations).
        - A reservation has C(mac), C(address), C(complete) (whether both the running and the persistent definition have it) and C(used) (whether a domain of
          the host has the MAC address).
      type: list
      elements: dict
      returned: always
    error:
      description: Why these could not be read, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.stores.registry import DEFAULT, NAMES
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import MEDIA
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.driver import DRIVERS, NFTABLES, NOOP
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.connectors.registry import CHOICES
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts.dhcp import dhcp_networks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts.facts import compute_node
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.stale_sessions import iscsi_ends
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import Uplinks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.boots import check_not_ending
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.disk_images import (
    DISK_POOL_ARGUMENTS,
    pool_of,
)


def main():
    module = AnsibleModule(
        argument_spec={
            **TIME_LIMIT_ARGUMENTS,
            **LEDGER_ARGUMENTS,
            **LIBVIRT_ARGUMENTS,
            "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
            "virt_type": {"type": "str", "choices": ["auto", "kvm", "qemu"], "default": "auto"},
            "arch": {"type": "str"},
            "pci_device_spec": {"type": "list", "elements": "dict", "default": []},
            "isolated_disks": {"type": "list", "elements": "path", "default": []},
            "disk_backend": {"type": "str", "choices": list(NAMES), "default": DEFAULT},
            "volume_group": {"type": "str"},
            **DISK_POOL_ARGUMENTS,
            "volume_attach": {"type": "str", "choices": list(CHOICES)},
            "firewall_driver": {"type": "str", "choices": list(DRIVERS), "default": NOOP},
            "disk_medium": {"type": "str", "choices": ["", *MEDIA], "default": ""},
            "cpu_flags": {"type": "list", "elements": "str", "default": []},
            "vxlan_address": {"type": "str", "default": ""},
            "physical_interface_mappings": {"type": "dict", "default": {}},
            "iqn_prefixes": {"type": "list", "elements": "str", "default": []},
            "known_targets": {"type": "list", "elements": "str", "default": []},
            "list_reservations": {"type": "bool", "default": False},
            "list_other_disks": {"type": "bool", "default": False},
            "volumes": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    keep_time_limit(module)
    args = module.params
    more = {}
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:
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
                args["ledger_id"],
                args["volume_attach"] or "",
                args["cpu_flags"],
                args["volumes"] if args["list_other_disks"] else None,
                args["firewall_driver"] == NFTABLES,
                Uplinks(args["vxlan_address"], args["physical_interface_mappings"]),
                pool_of(args),
            )
            if args["iqn_prefixes"]:
                more["iscsi"] = iscsi_ends(connection, args["iqn_prefixes"], args["known_targets"])
            if args["list_reservations"]:
                more["dhcp"] = dhcp_networks(connection)
        check_not_ending()  # after the states of the guests, which end first
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=False, compute_node=node, **more)


if __name__ == "__main__":
    main()
