# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The definition of a guest that is rescued: kept in a file while its domain is that of the rescue, and brought back to the letter.

Which of the two a domain is, is seen from its disks. source: Nova's libvirt driver (rescue, unrescue)
"""

from __future__ import annotations

import contextlib
import os
import typing as t
from dataclasses import dataclass

from ...core.disks.rescue import CONFIG_DRIVE, DEFINITION, DISK, is_rescue
from ...core.errors import LibvirtError
from ...core.guest.domain.element import parse
from ...core.guest.nvram import RESCUE_NVRAM
from ...core.instances.power_states import NOSTATE
from ..libvirt.connection import libvirt, libvirt_errors
from ..libvirt.domains import DomainSpec, checked_xml, cut_off, with_local_disks, with_logins
from ..libvirt.power import PowerSpec, ensure_power
from ..libvirt.running import definition_of, find_domain, known_power_state, power_state, refuse_gone
from ..os.batch import progress
from ..os.files import read_text, remove_files, write_file
from ..os.locks import guest_lock, host_lock
from ..os.module_errors import failure
from ..os.paths import instance_dir, make_dirs
from .drive.config_drive import remove_leftovers
from .recorded_formats import as_recorded
from .stores.disk_info import records_of, write_records
from .unused_images import mark_bases_used


@dataclass(frozen=True)
class RescuedSpec:
    """A guest that is to be rescued, or was."""

    uuid: str
    xml: str  # its definition by the ledger, where the host has lost its own
    start: bool = True  # when its own definition is back


@dataclass(frozen=True)
class _Found:
    """The domain as it is."""

    domain: t.Any  # None: there is none
    defined: bool  # its next start is that of the rescue
    active: bool
    alive: bool  # the guest that runs is that of the rescue


def _look(connection: t.Any, uuid: str) -> _Found:
    domain = find_domain(connection, uuid)
    if domain is None:
        return _Found(None, False, False, False)
    with libvirt_errors():
        active = bool(domain.isActive())
        defined = is_rescue(parse(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)), uuid)
        return _Found(domain, defined, active, active and is_rescue(parse(domain.XMLDesc(0)), uuid))


@contextlib.contextmanager
def _held(instances_path: str, uuid: str, check_mode: bool) -> t.Iterator[None]:
    """The guest and its folder, while nothing else works on them, be it the module of a run that was killed. :raises RemoteError: this is one."""
    if check_mode:
        yield
        return
    with host_lock(instances_path, "instance-" + uuid), guest_lock(uuid):
        refuse_gone(uuid)
        yield


# --- before a rescue ------------------------------------------------------------------------------------------------------


def save(connection: t.Any, instances_path: str, spec: RescuedSpec, check_mode: bool = False) -> dict[str, t.Any]:
    """Keep the guest's definition, and make room for the disks of a rescue. Gives {changed, ran, power_state}.

    Where the domain is that of a rescue already, of a run that died, the kept definition stays, and that guest loses its power.
    ``ran``: the guest's own runs. It is left alone.

    :raises InvalidInput: the UUID. :raises LibvirtError, HypervisorUnavailable: libvirt fails or is not running.
    :raises WaitTimeout: see locks.
    """
    folder = instance_dir(instances_path, spec.uuid)
    uuid = os.path.basename(folder)
    definition_path = os.path.join(folder, DEFINITION)
    with _held(instances_path, uuid, check_mode):
        domain_state = _look(connection, uuid)
        result = {
            "changed": True,
            "ran": domain_state.active and not domain_state.alive,
            "power_state": _state_of(domain_state.domain),
        }
        if check_mode:
            return result
        progress.mark_changed()
        make_dirs(folder)
        if not domain_state.defined or not os.path.exists(definition_path):
            own = (
                spec.xml if domain_state.domain is None or domain_state.defined else definition_of(domain_state.domain)
            )
            write_file(definition_path, own.encode("utf-8"), 0o600)
        if domain_state.alive:
            cut_off(domain_state.domain)
        _remove_disks(folder)
    return result


def _state_of(domain: t.Any) -> int:
    return NOSTATE if domain is None else power_state(domain)


def _remove_disks(folder: str) -> None:
    """Remove the disks of a rescue, or what a killed run left of them."""
    mark_bases_used(folder)
    remove_leftovers(os.path.join(folder, CONFIG_DRIVE))
    remove_files(*(os.path.join(folder, name) for name in (DISK, DISK + ".part", CONFIG_DRIVE, RESCUE_NVRAM)))
    records = records_of(folder)
    if records.pop(DISK, None) is not None:
        write_records(folder, records)


# --- after it -------------------------------------------------------------------------------------------------------------


def restore(
    connection: t.Any,
    instances_path: str,
    spec: RescuedSpec,
    power: PowerSpec,
    check_mode: bool = False,
    check: t.Callable[[t.Any, str, str], None] | None = None,
) -> dict[str, t.Any]:
    """Bring the guest's definition back, remove the disks of the rescue, and start the guest. Gives {changed, forced, power_state}.

    A guest that has its own definition already is only started. ``forced``: its own was lost, or libvirt refused it, and it has that
    of the ledger. A failure with a ``power_state`` happened when the definition was back.

    :arg check: gets the domain of the rescue, the definition that is to come back and the instance's folder, before anything is done
    :raises InvalidInput: the UUID. :raises LibvirtError, HypervisorUnavailable: libvirt fails, refuses both, or is not running.
    """
    folder = instance_dir(instances_path, spec.uuid)
    uuid = os.path.basename(folder)
    forced = False
    with _held(instances_path, uuid, check_mode):
        domain_state = _look(connection, uuid)
        own = read_text(os.path.join(folder, DEFINITION))
        if check is not None and (domain_state.defined or domain_state.alive):
            check(domain_state.domain, own or spec.xml, folder)
        if check_mode:
            return {"changed": True, "forced": False, "power_state": _state_of(domain_state.domain)}
        progress.mark_changed()
        if domain_state.alive or (domain_state.defined and not domain_state.active):
            cut_off(domain_state.domain)
        _remove_disks(folder)
        if domain_state.defined or domain_state.domain is None:
            of_ledger = spec.xml
            if domain_state.domain is not None:
                before = definition_of(domain_state.domain)
                of_ledger = with_local_disks(with_logins(of_ledger, before), before, uuid)
            of_ledger = as_recorded(instances_path, uuid, of_ledger)
            forced = _define(connection, uuid, own, of_ledger)
        # The last that tells of a rescue: until then the next restore begins again.
        remove_files(os.path.join(folder, DEFINITION))
    if not spec.start:
        return {"changed": True, "forced": forced, "power_state": _state_of(find_domain(connection, uuid))}
    try:
        return {**ensure_power(connection, power, begun=True), "changed": True, "forced": forced}
    except Exception as error:
        return failure(error, changed=True, **known_power_state(connection, uuid))


def _define(connection: t.Any, uuid: str, own: str, of_ledger: str) -> bool:
    """Whether the definition of the ledger had to take the place of the guest's own."""
    if own:
        try:
            name = (parse(own).findtext("name") or "").strip()
            checked_xml(DomainSpec(uuid=uuid, name=name, xml=own))
            with libvirt_errors():
                connection.defineXMLFlags(own, 0)
        except LibvirtError:  # as after a change of libvirt's or of the firmware
            pass
        else:
            return False
    with libvirt_errors():
        connection.defineXMLFlags(of_ledger, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    return True
