# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The root disk of an instance goes back to an image that was made of it: a disk of the image is made, and replaces it while the guest is off.

The guest keeps its domain: the path and the format of the disk stay, and the definition names its new backing chain. Until the exchange the disk is the
former one, afterwards that of the image, wherever a run is killed. UEFI variables of the image follow the disk. Nothing of libvirt's own
snapshots is used, whose revert breaks with checkpoints and leaves UEFI variables as they are.
"""

from __future__ import annotations

import contextlib
import os
import typing as t
from dataclasses import dataclass, field

from ...core.disks.local import DISK
from ...core.disks.rescue import is_rescue
from ...core.errors import Conflict, InstanceNotFound, LibvirtError, NotSupportedYet
from ...core.guest.nvram import NVRAM, nvram_path
from ..copies.other_disks import refuse_to_leave
from ..disks.stores.disk_info import root_record
from ..disks.stores.group import NO_GROUP, Group
from ..disks.stores.registry import store_of_record
from ..disks.unused_images import mark_bases_used
from ..images.nvram import check_packed, put_nvram
from ..libvirt.domains import definitions_of
from ..libvirt.running import find_domain, is_active, power_state, refuse_gone
from ..os.batch import progress
from ..os.locks import at_work, guest_lock, host_lock
from ..os.module_errors import failure
from ..os.ownership import check_owner, ledger_of_folder
from ..os.paths import base_dir, instance_dir
from .root_chain import forget_chain, name_chain
from .root_disk import root_disk, target_of


@dataclass(frozen=True)
class RevertSpec:
    """An instance that goes back. ``volumes``: that the ledger has for it, by their UUIDs, see copies.other_disks. ``nvram``: UEFI variables of the image,
    see core.guest.nvram.pack(); "": it has none
    """

    uuid: str
    volumes: t.Mapping[str, str] = field(default_factory=dict)
    nvram: str = ""


def check(connection: t.Any, instances_path: str, spec: RevertSpec, group: Group = NO_GROUP) -> dict[str, t.Any]:
    """Check that the root disk can go back. Gives {changed, power_state}; nothing is written.

    :raises InstanceNotFound: the host has no domain of it. :raises Conflict: its domain is that of a rescue, or its folder is another ledger's.
    :raises NotSupportedYet: the guest has a TPM, or UEFI variables that the image lacks. :raises InvalidDiskInfo: its root disk has no record, or the
        firmware has variables of another length.
    :raises GuestDisksDiffer: it has a disk that is not the instance's, as an overlay. :raises GuestHasSnapshots: libvirt has snapshots or checkpoints.
    """
    folder = instance_dir(instances_path, spec.uuid)
    check_owner("folder %s" % folder, ledger_of_folder(folder), group.ledger_id)
    domain = _domain(connection, spec.uuid)
    uuid, definitions = os.path.basename(folder), definitions_of(domain)
    if any(is_rescue(definition, uuid) for definition in definitions):
        raise Conflict(
            message="the domain of instance %s is that of a rescue" % uuid,
            remedy="Run bootflow.compute.heartbeat, so that the ledger knows it, then bootflow.compute.unrescue.",
        )
    if _has_variables(definitions, folder, spec.nvram):
        check_packed(spec.nvram, folder)
    target_of(definitions[0], root_disk(instances_path, folder, readable=False), uuid, domain.name())
    refuse_to_leave(domain, folder, spec.volumes)
    return {"changed": True, "power_state": power_state(domain)}


def take(connection: t.Any, instances_path: str, spec: RevertSpec, group: Group = NO_GROUP) -> dict[str, t.Any]:
    """Replace the root disk. The guest is off. Gives {changed, reverted, power_state}.

    An error with ``reverted`` came after the exchange: the definition names no backing chain, or the former disk is left. The next revert does the rest.

    :raises Conflict: the guest runs. :raises InvalidDiskInfo: no replacement was made. :raises VolumeIsBusy: something has the disk open.
    :raises LibvirtError: libvirt refuses the definition.
    :raises BootflowError: see check().
    """
    folder = instance_dir(instances_path, spec.uuid)
    uuid = os.path.basename(folder)
    with host_lock(instances_path, "instance-" + uuid), guest_lock(uuid), at_work([uuid]):
        refuse_gone(uuid)
        check(connection, instances_path, spec, group)
        domain = _domain(connection, uuid)
        if is_active(domain):
            raise Conflict(
                message="the guest of instance %s runs with the disk that is to be exchanged" % uuid,
                remedy="It was started meanwhile. Run the playbook again.",
            )
        store = store_of_record(root_record(folder), group)
        progress.mark_changed()
        mark_bases_used(folder)
        forget_chain(connection, domain, uuid)
        try:
            store.take_replacement(folder, DISK)
        except Exception:
            with contextlib.suppress(LibvirtError):
                name_chain(connection, domain, uuid, base_dir(instances_path))
            raise
        done = {"reverted": True, "power_state": power_state(domain)}
        try:
            if _has_variables(definitions_of(domain), folder, spec.nvram):
                put_nvram(spec.nvram, folder)
            name_chain(connection, domain, uuid, base_dir(instances_path))
            store.drop_replacement(folder, DISK)
        except Exception as error:
            return failure(error, changed=True, **done)
        return {"changed": True, **done}


def drop(_connection: t.Any, instances_path: str, spec: RevertSpec, group: Group = NO_GROUP) -> dict[str, t.Any]:
    """Remove the replacement. The instance has its root disk as it was. Gives {changed}.

    :raises VolumeIsBusy: something has it open.
    """
    folder = instance_dir(instances_path, spec.uuid)
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        check_owner("folder %s" % folder, ledger_of_folder(folder), group.ledger_id)
        return {"changed": store_of_record(root_record(folder), group).drop_replacement(folder, DISK)}


def _domain(connection: t.Any, uuid: str) -> t.Any:
    """:raises InstanceNotFound: the host has none of the instance."""
    domain = find_domain(connection, uuid)
    if domain is None:
        raise InstanceNotFound(
            instance_id=uuid,
            remedy="The domain is gone from the host: reboot the instance with bootflow_reboot_type: HARD, which defines it again.",
        )
    return domain


def _has_variables(definitions: t.Sequence[t.Any], folder: str, packed: str) -> bool:
    """Return whether the guest has UEFI variables, in the folder of its instance. :arg packed: of the image

    :raises NotSupportedYet: the guest has a TPM, or has variables that the image lacks: it would have them newer than its disk
    """
    paths = {path for path in map(nvram_path, definitions) if path}
    own = os.path.join(folder, NVRAM)
    remedy = (
        "Boot another instance from the snapshot, or rebuild this one from it: its UEFI variables are made again then."
    )
    if any(definition.find("devices/tpm") is not None for definition in definitions):
        what, remedy = "an emulated TPM", "Boot another instance from the snapshot: it gets a new TPM."
    elif paths - {own}:  # as an earlier version defined it: snapshots do not have these
        what = "UEFI variables in %s" % sorted(paths - {own})[0]
    elif (paths or os.path.lexists(own)) and not packed:
        what = "UEFI variables, which the image lacks"
    else:
        return bool(paths)
    raise NotSupportedYet(
        feature="A revert of instance %s, whose guest has %s," % (os.path.basename(folder), what), remedy=remedy
    )
