# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Creates the volume groups and thin pools of a storage host's backends on its disks.

All backends are checked before anything is changed. A disk that is not empty (a file system, a partition table,
another volume group) is rejected unless wiping is requested. Groups and pools never shrink.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import typing as t
from dataclasses import dataclass, field

from ...core.disks.logical_volumes import checked_lvm_name
from ...core.errors import BootflowError, Conflict, DriverNotInitialized, InvalidInput, VolumeBackendAPIException
from ..os.command import program, run
from . import lvm
from .lvm_tags import OWNER

#: Percent of the free space that a thin pool gets; the rest is for its metadata, their spare and others (as in Cinder's driver).
POOL_PERCENT = 95

GROUP, DEVICES, POOL, POOL_SIZE, POOL_ACTIVE = (
    "volume_group",
    "devices",
    "thin_pool",
    "thin_pool_size",
    "thin_pool_active",
)


@dataclass(frozen=True)
class Wanted:
    """An element of the option ``backends``, checked. ``pool`` is "" for thick volumes."""

    name: str
    vg: str
    devices: tuple[str, ...] = ()
    pool: str = ""


@dataclass
class Plan:
    """The missing parts of a backend. ``existing_group``: None if this backend or an earlier one creates it."""

    wanted: Wanted
    existing_group: lvm.VolumeGroup | None = None
    devices: list[str] = field(default_factory=list)  # to add to the group
    wipes: dict[str, str] = field(default_factory=dict)  # of those: their content
    actions: list[str] = field(default_factory=list)


def wanted_of(args: t.Mapping[str, t.Any]) -> Wanted:
    """Read the options. :raises InvalidInput: a name is not valid for LVM, or a device is not an absolute path."""
    vg = checked_lvm_name(args.get("volume_group") or "cinder-volumes", "volume group")
    pool = ""
    if args.get("provisioning") == "thin":
        pool = checked_lvm_name(args.get("thin_pool") or vg + "-pool", "thin pool")
    devices = tuple(args.get("devices") or ())
    for device in devices:
        if not device.startswith("/dev/") or ".." in device.split("/"):
            raise InvalidInput(reason="devices must be absolute paths such as /dev/disk/by-id/..., got %r" % (device,))
    return Wanted(args["name"], vg, devices, pool)


def physical_volumes() -> dict[str, str]:
    """Return {real path of the device: name of its group, or "" without a group}."""
    done = lvm.run_lvm("pvs", "--reportformat", "json", "-o", "pv_name,vg_name")
    try:
        rows = json.loads(done.stdout)["report"][0]["pv"]
        return {os.path.realpath(row["pv_name"]): row["vg_name"] for row in rows}
    except (ValueError, KeyError, IndexError, TypeError):
        raise VolumeBackendAPIException(data="lvm pvs: %s" % done.stderr.strip()) from None


def signatures(device: str) -> list[str]:
    """Return the content of the device according to wipefs (util-linux): ext4, gpt, LVM2_member..."""
    done = run([program("wipefs", "util-linux"), "--no-act", "--json", device], timeout=60)
    entries = json.loads(done.stdout)["signatures"] if done.stdout.strip() else []
    return [entry["type"] for entry in entries]


def check_free(device: str) -> None:
    """Check that nothing on this host uses the device.

    :raises InvalidInput: the device does not exist or is not a block device.
    :raises Conflict: the device or a partition is mounted, swap, or held by another device.
    """
    try:
        if not stat.S_ISBLK(os.stat(device).st_mode):
            raise InvalidInput(reason="%s is not a block device" % device)
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise Conflict(
                message="%s is in use: the device or a partition of it is mounted, swap, or held by another device"
                % device,
                remedy="Check it with lsblk; use another device, or release this one.",
            ) from None
        raise InvalidInput(reason="%s: %s" % (device, error.strerror)) from None


def _is_ours(vg: str) -> bool:
    return any(OWNER in lv.tags for lv in lvm.read_group(vg).lvs.values())


def _content(device: str, pvs: t.Mapping[str, str]) -> str:
    """Return the content of the device; "" if it is empty (or a physical volume without a group)."""
    group = pvs.get(os.path.realpath(device))
    if group:
        return "a physical volume of volume group %s" % group
    words = [word for word in signatures(device) if not (group == "" and word == "LVM2_member")]
    return ", ".join(sorted(set(words)))


class _Preparation:
    def __init__(self, wipe: bool) -> None:
        self.wipe = wipe
        self.pvs = physical_volumes()
        self.taken: dict[str, str] = {}  # device: its new group
        self.pools: set[tuple[str, str]] = set()  # created by earlier backends

    # ---- look ----------------------------------------------------------------------------------------------------------

    def plan(self, wanted: Wanted) -> Plan:
        made = Plan(wanted)
        try:
            made.existing_group = lvm.read_group(wanted.vg)
        except DriverNotInitialized:
            if not wanted.devices and wanted.vg not in self.taken.values():
                raise DriverNotInitialized(
                    message="Volume driver not ready. Volume group %s does not exist on %s, and backend %s lists no devices for it"
                    % (wanted.vg, os.uname().nodename, wanted.name),
                    remedy="List its devices in bootflow_storage_backends, or create the group by hand.",
                ) from None
        else:
            lvm.check_group(made.existing_group)
        is_new = made.existing_group is None and wanted.vg not in self.taken.values()
        for device in wanted.devices:
            self._plan_device(made, device)
        if is_new:
            made.actions.append(GROUP)
        elif made.devices:
            made.actions.append(DEVICES)
        if wanted.pool:
            self._plan_pool(made)
        return made

    def _plan_device(self, made: Plan, device: str) -> None:
        real, vg = os.path.realpath(device), made.wanted.vg
        if self.taken.setdefault(real, vg) != vg:
            raise InvalidInput(
                reason="device %s is listed for two volume groups, %s and %s" % (device, self.taken[real], vg)
            )
        if self.pvs.get(real) == vg or real in [os.path.realpath(other) for other in made.devices]:
            return
        check_free(device)
        content = _content(device, self.pvs)
        other = self.pvs.get(real, "")
        if other and _is_ours(other):
            raise Conflict(
                message="device %s holds bootflow volumes in volume group %s, not %s" % (device, other, vg),
                remedy="Set that group for the backend, or delete its volumes and remove it (vgremove %s)." % other,
            )
        if content and not self.wipe:
            raise Conflict(
                message="device %s is not empty: %s" % (device, content),
                remedy="Use another device, or set bootflow_storage_wipe_devices to erase everything on this one.",
            )
        made.devices.append(device)
        if content:
            made.wipes[device] = content

    def _plan_pool(self, made: Plan) -> None:
        key = (made.wanted.vg, made.wanted.pool)
        lv = made.existing_group.lvs.get(made.wanted.pool) if made.existing_group is not None else None
        if lv is None:
            if key not in self.pools:
                self.pools.add(key)
                made.actions.append(POOL)
            return
        if not lv.is_pool:
            raise Conflict(
                message="logical volume %s/%s already exists and is not a thin pool" % key,
                remedy="Set another thin_pool for the backend.",
            )
        if not lv.is_active:
            made.actions.append(POOL_ACTIVE)
        if made.devices:
            made.actions.append(POOL_SIZE)

    # ---- do ------------------------------------------------------------------------------------------------------------

    def apply(self, made: Plan) -> None:
        vg, pool = made.wanted.vg, made.wanted.pool
        with lvm.group_lock(vg):
            for device, content in made.wipes.items():
                self._wipe(device, content)
            if made.devices:
                # Without --yes, so that content that appeared meanwhile is not overwritten.
                lvm.lvm(vg, "vgcreate" if GROUP in made.actions else "vgextend", vg, *made.devices)
            if POOL_ACTIVE in made.actions:
                lvm.set_active(vg, [pool], True)
            if POOL in made.actions:
                group = lvm.read_group(vg)
                lvm.create_pool(vg, pool, pool_room(group, group.free))
            elif POOL_SIZE in made.actions and made.existing_group is not None:
                group = lvm.read_group(vg)
                room = pool_room(group, min(group.size - made.existing_group.size, group.free))
                if room:
                    lvm.extend(vg, pool, group.lvs[pool].size + room)

    def _wipe(self, device: str, content: str) -> None:
        check_free(device)
        if self.pvs.get(os.path.realpath(device)):
            lvm.lvm("", "pvremove", "--yes", "--force", "--force", device)
        run([program("wipefs", "util-linux"), "--all", device], timeout=60)
        remaining = signatures(device)
        if remaining:
            raise Conflict(
                message="device %s (%s) could not be wiped: %s remains" % (device, content, ", ".join(remaining))
            )


def pool_room(group: lvm.VolumeGroup, size: int) -> int:
    """Return the share of ``size`` bytes that a thin pool gets, in whole extents."""
    return size * POOL_PERCENT // 100 // group.extent_size * group.extent_size


def _before(made: Plan, pvs: t.Mapping[str, str]) -> dict[str, t.Any]:
    has = sorted(device for device, vg in pvs.items() if vg == made.wanted.vg)
    lv = made.existing_group.lvs.get(made.wanted.pool) if made.existing_group is not None else None
    state: dict[str, t.Any] = {
        "volume_group": made.wanted.vg if made.existing_group is not None else None,
        "devices": has,
    }
    if made.wanted.pool:
        state["thin_pool"] = made.wanted.pool if lv is not None else None
    if made.wipes:
        state["content"] = {os.path.realpath(device): content for device, content in made.wipes.items()}
    return state


def _after(made: Plan, before: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    devices = sorted(set(before["devices"]) | {os.path.realpath(device) for device in made.devices})
    state: dict[str, t.Any] = {"volume_group": made.wanted.vg, "devices": devices}
    if made.wanted.pool:
        state["thin_pool"] = made.wanted.pool
    if made.wipes:
        state["content"] = {}
    return state


def prepare_backends(
    backends: t.Sequence[t.Mapping[str, t.Any]], wipe: bool = False, check_mode: bool = False
) -> dict[str, t.Any]:
    """Return {backends: {name: {changed, actions, volume_group, devices, thin_pool}}, diff}; see the module storage_backend.

    :arg wipe: wipe devices that are not empty and not in use.
    :raises InvalidInput: a name is given twice, or a device is not valid or listed for two groups.
    :raises Conflict: a device is not empty or in use, or another volume has the name of the pool.
    :raises DriverNotInitialized: the group does not exist and has no devices, or it is partial or exported.
    """
    names = [str(args["name"]) for args in backends]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(reason="backends given more than once: %s" % ", ".join(twice))
    wanted = [wanted_of(args) for args in backends]
    preparation = _Preparation(wipe)
    plans: list[Plan] = []
    errors: list[BootflowError] = []
    for wanted_backend in wanted:
        try:
            plans.append(preparation.plan(wanted_backend))
        except BootflowError as error:
            errors.append(error)
    if errors:
        if len(errors) > 1:
            errors[0].message = "; ".join(str(error.message) for error in errors)
        raise errors[0]
    before = {made.wanted.name: _before(made, preparation.pvs) for made in plans}
    after = {made.wanted.name: _after(made, before[made.wanted.name]) for made in plans}
    for made in plans:
        if made.actions and not check_mode:
            preparation.apply(made)
    return {
        "backends": {
            made.wanted.name: {
                "changed": bool(made.actions),
                "actions": made.actions,
                "volume_group": made.wanted.vg,
                "devices": after[made.wanted.name]["devices"],
                "thin_pool": made.wanted.pool,
            }
            for made in plans
        },
        "diff": {"before": before, "after": after},
    }
