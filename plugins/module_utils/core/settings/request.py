# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of the request and of its catalogue."""

from __future__ import annotations

import typing as t

from ..disks.block_device_checks import MAX_LOCAL_BLOCK_DEVICES
from ..reading.formats import MAX_COUNT
from ..reading.setting import ENTRIES, FILLED, NUMBERS, PATHS, REQUESTS, Kind, Setting, Table, Unfit, names_of
from ..request.options import POLICIES
from ..resources.claims import OVERHEADS


def _overhead(value: t.Any) -> dict[str, float]:
    overhead: dict[str, float] = NUMBERS.read(value)
    for name, number in overhead.items():
        if name not in OVERHEADS or number < 0:
            raise Unfit("%s: %s" % (name, number))
    return overhead


POLICY_NAMES = names_of(POLICIES)

OVERHEAD = Kind("a mapping of %s to numbers, at least 0" % ", ".join(OVERHEADS), _overhead, "dict")

UUID_NAMES, SHORT_NAMES = "uuid", "short"

SHIPPED_IMAGES = Table(
    (
        Setting(
            "shipped_images",
            bool,
            True,
            "Instances may also name the cloud images of distributions that the collection knows (`debian-13`, `ubuntu-24.04`, `rocky-9`; see"
            " `inventory/images.yml`). An image of `bootflow_images` with such a name takes its place.",
        ),
    )
)

CATALOGUE = Table(
    (
        Setting(
            "flavors",
            ENTRIES,
            (),
            "Flavors that requests may name: `name`, `vcpus`, `memory_mb`, `root_gb` (0: the instance boots from a volume), `ephemeral_gb`,"
            " `swap` (MiB), `extra_specs`, `disabled`.",
        ),
        Setting(
            "images",
            ENTRIES,
            (),
            "Images that requests may name: `name`, `url` (http, https, or file as the compute host sees it) or `path` (on the"
            " controller), `checksum` (`sha256:` or `sha512:` with a digest, or with the address of a file with checksums),"
            " `disk_format`, `min_disk` (GiB), `min_ram` (MiB), `properties` (Glance's names),"
            " `id`, `size` (bytes), `status`, and how hosts fetch it: see [request.md](request.md#fetching-images).",
        ),
        Setting(
            "networks",
            ENTRIES,
            (),
            "Networks that requests may name: `name`, `type` (`network`: a libvirt network; `bridge`: a Linux bridge; `vxlan`, `vlan`, `macvtap`,"
            " `ovn`: reaches over hosts), `source` (its name on the host), `vni` (of `vxlan`), `vlan` (of `vlan`), `physical_network` (of `vlan`"
            " and `macvtap`), `manage`"
            " (create a missing libvirt network), `forward`"
            " (of a managed one: none, nat, route, open), `mtu`, `enforce_allocation_pools`, `port_security_enabled` (of its ports),"
            " `subnets` (`name`, `cidr`, `gateway_ip` (the first address; null: none),"
            " `allocation_pools`, `dns_nameservers`, `host_routes`, `enable_dhcp`); see [networks.md](networks.md).",
        ),
        Setting("keypairs", ENTRIES, (), "Public keys that requests may name: `name`, `public_key`."),
    )
)

#: The networks alone, for what writes them.
NETWORKS = Table((CATALOGUE.named("networks"),))

QUOTA = Table(
    (
        Setting(
            "quotas",
            dict,
            {},
            "Limits of a project: `instances`, `cores`, `ram` (MiB), `ports` (-1, unlimited, by default), `server_groups`,"
            " `server_group_members`, `security_groups` (10 by default),"
            " `security_group_rules` (100); of an instance `metadata_items` (128), `injected_files` (5),"
            " `injected_file_content_bytes` (10240), `injected_file_path_length` (255); for volumes `volumes`, `snapshots` (10), `gigabytes` (1000),"
            " `per_volume_gigabytes`, and with a volume type `volumes_TYPE`, `gigabytes_TYPE`, `snapshots_TYPE` (unlimited);"
            " `projects` (project name to its own limits).",
        ),
        Setting(
            "project",
            str,
            "default",
            "Project of entries that name none. Without a value, list and delete look at all projects.",
        ),
    )
)

REQUEST = Table(
    (
        Setting(
            "instances",
            REQUESTS,
            help="Requested instances; [request.md](request.md) lists the fields of an entry.",
            required=True,
            secret=True,
        ),
        *QUOTA,
        Setting("default_availability_zone", str, "nova", "Availability zone of hosts that name none."),
        Setting(
            "default_schedule_zone",
            FILLED,
            help="Availability zone of entries that name none.",
            default_text="any",
        ),
        Setting("default_flavor", str, help="Flavor of entries that name none."),
        Setting(
            "allow_forced_host",
            bool,
            False,
            "For administrators: allow `zone:host:node` in `availability_zone`, and `check_server_group_quota: false`.",
        ),
        Setting(
            "allow_zero_disk_flavor",
            bool,
            False,
            "For administrators: allow flavors with `root_gb: 0` without a root volume. The root disk is as large as the image, and claims the"
            " image's `min_disk`, which it then needs; a host refuses an image that is larger.",
        ),
        Setting(
            "allow_other_owners",
            bool,
            False,
            "For administrators: allow entries whose `project` is not `bootflow_project`, or whose `user` is not the one who runs the playbook.",
        ),
        Setting(
            "denied_policies",
            POLICY_NAMES,
            (),
            "Nova's policies that are denied to everybody who uses this inventory: `create` (no new instances), `create:attach_network` (entries that name"
            " `networks`), `create:attach_volume` (entries that name `block_device_mapping`).",
        ),
        Setting("allow_duplicate_networks", bool, True, "An instance may have several ports on the same network."),
        Setting(
            "domain_names",
            str,
            UUID_NAMES,
            "Names of guests in libvirt: `uuid`, the name of the instance and its UUID; `short`, the name of the instance, to which the first"
            " digits of the UUID are added where another domain of the host has it. Existing guests keep their names.",
            choices=(UUID_NAMES, SHORT_NAMES),
        ),
        Setting(
            "instance_overhead",
            OVERHEAD,
            {},
            "What the hypervisor needs for each instance beyond its flavor, and what is claimed with it: `memory_mb` and `memory_mb_per_vcpu` (MiB),"
            " `memory_percent` (of the flavor's memory), `disk_gb` (GiB), `vcpus`. Parts are rounded up. Without it, `bootflow_reserved_memory_mb`"
            " covers the hypervisor. Instances that exist keep what they were accepted with.",
        ),
        Setting("force_config_drive", bool, True, "Give every instance a config drive."),
        Setting(
            "max_local_block_devices",
            int,
            MAX_LOCAL_BLOCK_DEVICES,
            "Most local disks (root, ephemeral, swap) of an instance; -1: no limit; 0: instances boot from volumes only.",
            least=-1,
        ),
        Setting(
            "max_count",
            int,
            1000,
            "Most instances that a request may have: the `max_count` of its entries in all.",
            least=1,
            most=MAX_COUNT,
        ),
        Setting("schema_dirs", PATHS, (), "Folders with additional schema fragments."),
        Setting("scheduler_hint_names", list, (), "Scheduler hints that your own filters read."),
        Setting(
            "server_groups",
            ENTRIES,
            (),
            "Server groups that the hint `group` may name: `name`, `policy` (affinity, anti-affinity, soft-affinity,"
            " soft-anti-affinity), `rules` (`max_server_per_host`, of anti-affinity), `project`, `id`; see"
            " [scheduler.md](scheduler.md).",
        ),
        Setting(
            "pci_alias",
            ENTRIES,
            (),
            "Names for kinds of PCI devices that flavors may request, as in Nova's `[pci]alias`: `name`, `vendor_id`,"
            " `product_id`, `device_type`, `numa_policy`, all texts.",
        ),
        *CATALOGUE,
    )
)
