# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of a storage host, and the fields of an entry of bootflow_storage_backends.

source: Cinder's [backend] sections (Queens)
"""

from __future__ import annotations

import typing as t

from ..disks.logical_volumes import checked_lvm_name
from ..errors import BootflowError
from ..reading.formats import check_name
from ..reading.setting import (
    ABSOLUTE,
    ABSOLUTES,
    ADDRESS,
    ENTRIES,
    Kind,
    Setting,
    Table,
    Unfit,
    is_address,
    to_number,
)
from ..volumes import names, rbd_names
from ..volumes.drivers.registry import DEFAULT as DEFAULT_DRIVER
from ..volumes.drivers.registry import DRIVER_TYPES
from . import ceph
from .hosts import CONFIGURATION, IMAGES
from .volumes import RATIO

THICK, THIN = "thick", "thin"
DEFAULT_VOLUME_GROUP = "cinder-volumes"
DEFAULT_CONVERSION_DIR = "/var/lib/bootflow/conversion"
# The backend reports these itself; they cannot be set.
_REPORTED = ("total_capacity_gb", "free_capacity_gb", "allocated_capacity_gb", "provisioned_capacity_gb")


def _word(forbidden: str, maximum: int) -> t.Callable[[t.Any], str]:
    def read(value: t.Any) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str) or not 1 <= len(text) <= maximum or any(c in text for c in forbidden):
            raise Unfit
        check_name(text)
        return text

    return read


def _backend_name(value: t.Any) -> str:
    text = _word("", 128)(value)
    if not text.isascii() or not all(c.isalnum() or c in "_.+-" for c in text):
        raise Unfit
    return text


def _lvm_name(value: t.Any) -> str:
    try:
        return checked_lvm_name(value, "")
    except BootflowError:
        raise Unfit from None


def _portal(value: t.Any) -> str:
    """address:port; the default port is 3260."""
    text = str(value)
    try:
        return names.portal(text) if is_address(text) else names.portal(*names.split_portal(text))
    except BootflowError:
        raise Unfit(value) from None


def _portals(value: t.Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise Unfit
    portals = [_portal(item) for item in value]
    if len(set(portals)) < len(portals):
        raise Unfit(value, "a list of portals, each named once")
    return portals


def _keys(value: t.Any) -> dict[str, str]:
    """The message never has a key."""
    if not isinstance(value, t.Mapping):
        raise Unfit("no mapping")
    keys = {}
    for name, key in value.items():
        try:
            keys[str(name)] = rbd_names.checked_key(key)
        except BootflowError:
            raise Unfit("another value for %s" % name) from None
    return keys


def _percentage(value: t.Any) -> float:
    number = to_number(value)
    if number is None:
        raise Unfit
    return number


def _iqn_prefix(value: t.Any) -> str:
    try:
        names.target_iqn(names.volume_name("00000000-0000-0000-0000-000000000000"), value)
    except BootflowError:
        raise Unfit from None
    return str(value)


def _capabilities(value: t.Any) -> dict[str, t.Any]:
    if not isinstance(value, t.Mapping):
        raise Unfit
    for name, item in value.items():
        if name in _REPORTED:
            raise Unfit(name, "a mapping without what the backend itself reports")
        if not isinstance(item, (str, int, float, list, tuple, dict)):
            raise Unfit("%s: %s" % (name, item), "a mapping to texts, numbers, booleans, lists and mappings")
    return {str(name): item for name, item in value.items()}


LVM_NAME = Kind("a name that LVM takes (letters, digits, + _ . -)", _lvm_name, "str")

STORAGE = Table(
    (
        CONFIGURATION.named("availability_zone"),
        Setting("storage_backends", ENTRIES, help="Storage backends of the host, see below.", required=True),
        Setting(
            "storage_ip",
            ADDRESS,
            help="Address of the host's iSCSI portal, port 3260.",
            default_text="`ansible_host` or the host's name, if that is an IP address",
        ),
        Setting(
            "conversion_dir",
            ABSOLUTE,
            DEFAULT_CONVERSION_DIR,
            "Folder where images are fetched to before they are written to a volume, and where images of volumes are made; it is always emptied again.",
        ),
        Setting(
            "image_compress_on_upload",
            bool,
            True,
            "Images of volumes with the format qcow2 are compressed: they are smaller, and take longer, as Cinder's setting.",
        ),
        *IMAGES,
        Setting("max_concurrent_volumes", int, 4, "Volumes that the host copies or wipes at once; 0: all.", least=0),
        Setting(
            "rbd_keys",
            Kind(
                "a mapping from names of backends to the keys of their users, as `ceph auth print-key` prints them",
                _keys,
                "dict",
            ),
            {},
            "Keys of the users of backends with the driver `rbd`, by the names of the backends. Keep them in a vault; they are in no file, ledger or log.",
            secret=True,
        ),
        Setting(
            "storage_wipe_devices",
            bool,
            False,
            "Playbook `prepare`: wipe and take `devices` that have a file system, a partition table or another volume group on"
            " them; never those in use.",
        ),
    )
)

#: The fields of an entry of bootflow_storage_backends; their names are not variables.
BACKEND = Table(
    (
        Setting(
            "name",
            Kind(
                "a name of 1 to 128 letters, digits and _ . + - (it becomes a part of host@backend#pool)",
                _backend_name,
                "str",
            ),
            help="Name of the backend on this host.",
            required=True,
        ),
        Setting(
            "driver",
            str,
            DEFAULT_DRIVER.name,
            "Where the volumes are: `lvm`, logical volumes of the host, which it exports by iSCSI; `rbd`, a pool of a Ceph cluster ([ceph.md](ceph.md)).",
            choices=tuple(DRIVER_TYPES),
        ),
        Setting(
            "rbd_pool",
            ceph.POOL,
            help="`rbd`: pool of the volumes, required.",
        ),
        Setting(
            "rbd_user",
            ceph.USER,
            help="`rbd`: user of the cluster without `client.`, required; `bootflow_rbd_keys` has its key.",
        ),
        Setting(
            "rbd_monitors",
            ceph.MONITORS,
            help="`rbd`: all monitors of the cluster, `address` or `address:port`, required; the port is 6789 by default.",
        ),
        Setting("volume_group", LVM_NAME, DEFAULT_VOLUME_GROUP, "Volume group of the backend."),
        Setting(
            "provisioning",
            str,
            THICK,
            "Whether volumes have all of their space at once, or get it out of a thin pool as they are written.",
            choices=(THICK, THIN),
        ),
        Setting(
            "thin_pool",
            LVM_NAME,
            help="Thin pool of the backend, which the role `storage_host` creates with 95 percent of the group.",
            default_text="the volume group's name with `-pool`",
        ),
        Setting(
            "devices",
            ABSOLUTES,
            help="Disks or partitions for the volume group, best by their names in `/dev/disk/by-id`; the role `storage_host`"
            " creates the group. An existing group needs none.",
        ),
        Setting(
            "volume_backend_name",
            Kind(
                "a name of 1 to 255 printable characters without @ and # (it becomes a part of host@backend#pool)",
                _word("@#", 255),
                "str",
            ),
            help="Name that volume types request; several backends may have the same.",
            default_text="`name`",
        ),
        Setting(
            "availability_zone",
            Kind("a name", _word("", 255), "str"),
            help="Availability zone of the backend.",
            default_text="the host's",
        ),
        Setting(
            "medium",
            str,
            "",
            "Medium of its disks, such as `hdd`, `ssd`, `nvme`: a capability that volume types can request.",
        ),
        Setting(
            "capabilities",
            Kind("a mapping", _capabilities, "dict"),
            {},
            "Other capabilities that volume types can request.",
        ),
        Setting(
            "reserved_percentage",
            Kind("a number", _percentage, "float"),
            0.0,
            "Percentage of the backend that volumes never get.",
            least=0,
            most=100,
        ),
        Setting(
            "max_over_subscription_ratio",
            RATIO,
            help="Over-subscription ratio of the thin backend.",
            default_text="`bootflow_max_over_subscription_ratio`",
        ),
        Setting("disabled", bool, False, "The backend gets no new volumes."),
        Setting("frozen", bool, False, "The backend gets no new volumes or snapshots, and nothing is deleted."),
        Setting("target", str, "lio", "Software that exports the volumes.", choices=tuple(sorted(names.LUN_OF_TARGET))),
        Setting(
            "portals",
            Kind("a list of portals (192.0.2.1:3260 or [2001:db8::1]:3260)", _portals, "list", "str"),
            (),
            "Where initiators reach the backend: `address:port`, or `[address]:port` with IPv6; the port is 3260 by default.",
            default_text="the host's",
        ),
        Setting(
            "iqn_prefix",
            Kind("the beginning of an iSCSI qualified name", _iqn_prefix, "str"),
            names.IQN_PREFIX,
            "Prefix of the names of the backend's targets.",
        ),
        Setting(
            "volume_clear",
            str,
            "zero",
            "How the data of a deleted volume is overwritten; `discard` for thin volumes only.",
            choices=names.CLEARS,
        ),
        Setting(
            "volume_clear_size_mb",
            int,
            0,
            "How much of it is overwritten, from its beginning; 0: all.",
            least=0,
            unit="MiB",
        ),
        Setting("image_cache", bool, True, "Thin: keep an image, so that the next volume from it needs no copy."),
        Setting(
            "image_cache_max_gb",
            int,
            0,
            "Size of the images (not of their data) that are kept; the least recently used go for a new one; 0: no limit.",
            least=0,
            unit="GiB",
        ),
        Setting("image_cache_max_count", int, 0, "Number of images that are kept; 0: no limit.", least=0),
        Setting("verify", bool, True, "Read back what was written from an image and compare."),
    )
)
