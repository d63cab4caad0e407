# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attaches disks and interfaces to existing guests, and detaches them: in the running guest and in the definition of its next start, wherever
needed. domain_disks and domain_interfaces have what differs: each is a kind of ``Device``.

source: Nova's libvirt driver (attach_volume, attach_interface, detach_device_with_retry)
"""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ...core.disks.rescue import is_rescue
from ...core.errors import Conflict, DeviceDetachFailed, InstanceNotFound
from ...core.guest.domain.element import parse, to_text
from ..os.batch import any_changed, progress, run_batch
from ..os.module_errors import fail
from ..os.time_limit import TIME_LIMIT_ARGUMENTS, keep_time_limit
from ..os.volume_sources import name_swapped
from .connection import LIBVIRT_ARGUMENTS, connect, is_code, libvirt, libvirt_errors
from .running import find_domain, login_users

TRIES = 8  # Nova's device_detach_attempts
MOST_WAIT = 30.0  # seconds between two of them
POLL = 0.1
LIVE, CONFIG = "live", "config"  # the running guest, and the definition of its next start
ATTACHED, DETACHED = "attached", "detached"


@dataclass(frozen=True)
class Device:
    """A device of the domain ``uuid``. Each kind is a subclass. ``key`` identifies it in the guest; ``xml`` with ATTACHED."""

    TAG: t.ClassVar[str]
    DETACH_ORDER: t.ClassVar[tuple[str, str]]
    #: How often a device is detached that came back with a start of the guest; 0: once, without another look.
    LOOKS: t.ClassVar[int]
    NO_DOMAIN_REMEDY: t.ClassVar[str]  # remedy where the guest of a new device does not exist
    REFUSAL_REMEDY: t.ClassVar[str | None] = None  # remedy where the guest does not release the device

    uuid: str
    key: str
    state: str = ATTACHED
    xml: str = ""

    def key_of(self, element: t.Any) -> str:
        """Return what identifies a device of this kind in a definition."""
        raise NotImplementedError

    def name_of(self, element: t.Any) -> str:
        """Return the name of the device for an error of the guest."""
        raise NotImplementedError

    def check_guest(self, domain: t.Any) -> None:
        """Check whether the guest may be looked at. :raises Conflict: it may not."""

    def adapt(self, domain: t.Any, wanted: t.Any, before: t.Any, others: t.Iterable[t.Any]) -> None:
        """Adapt the definition of a device that is to be attached.

        :arg before: the device where the guest already has it. :arg others: devices where the guest does not have it
        :raises BootflowError: the device cannot be attached.
        """

    def prepare(self, connection: t.Any, check_mode: bool) -> bool:
        """Prepare the host for a device that is to be attached. Returns whether this changes the host."""
        return False

    def raise_refused(self, error: t.Any) -> None:
        """:raises BootflowError: the error for a device that libvirt does not attach, if it is not libvirt's own."""

    def wait(self, domain: t.Any, element: t.Any) -> None:
        """Wait until the new device of a running guest works."""

    def check_detach(self, domain: t.Any, elements: t.Sequence[t.Any]) -> None:
        """Check whether the guest may lose the device. :raises BootflowError: it may not."""

    def clean(self, connection: t.Any, check_mode: bool) -> bool:
        """Clean the host up after the device is detached. Returns whether this changes the host."""
        return False

    def details(self, element: t.Any) -> dict[str, t.Any]:
        """Return more fields of a result. :arg element: the device in the guest; None: the guest does not have it"""
        return {}

    def result(self, changed: bool, before: t.Any, after: t.Any, parts: t.Collection[str] = ()) -> dict[str, t.Any]:
        return {
            "changed": changed,
            "live": LIVE in parts,
            "config": CONFIG in parts,
            "before": "" if before is None else to_text(before),
            "after": "" if after is None else to_text(after),
            **self.details(before if after is None else after),
        }


# ---- looking --------------------------------------------------------------------------------------------------------


def parts_of(domain: t.Any) -> list[str]:
    """Return the parts of the domain: LIVE, CONFIG or both."""
    with libvirt_errors():
        return ([LIVE] if domain.isActive() else []) + ([CONFIG] if domain.isPersistent() else [])


def started_since(domain: t.Any, parts: t.Collection[str]) -> bool:
    """Return whether the guest has started since it had these ``parts``: it may lack what its definition got meanwhile."""
    return LIVE not in parts and LIVE in parts_of(domain)


def forget_memory(domain: t.Any, parts: t.Collection[str]) -> None:
    """Remove the saved memory of a guest whose definition has changed while it is off: its next start would bring its former devices
    back, also a volume that is another guest's by then.

    :arg parts: that the domain had
    """
    if LIVE not in parts:
        with libvirt_errors():
            if domain.hasManagedSaveImage(0):
                domain.managedSaveRemove(0)


def flag_of(parts: t.Collection[str]) -> int:
    """Return libvirt's flags of a change to these."""
    flags = {LIVE: libvirt.VIR_DOMAIN_AFFECT_LIVE, CONFIG: libvirt.VIR_DOMAIN_AFFECT_CONFIG}
    return sum(int(flags[part]) for part in parts)


def devices_of(domain: t.Any, part: str, tag: str) -> list[t.Any]:
    """Return the devices of one kind (disk, interface) in LIVE or CONFIG."""
    return list(_definition(domain, part).iterfind("devices/" + tag))


def find_device(domain: t.Any, part: str, device: Device) -> t.Any:
    """Return the device in LIVE or CONFIG; None: it is not there."""
    return _among(devices_of(domain, part, device.TAG), device)


def _among(elements: t.Iterable[t.Any], device: Device) -> t.Any:
    return next((element for element in elements if device.key_of(element) == device.key), None)


def _definition(domain: t.Any, part: str) -> t.Any:
    with libvirt_errors():
        root = parse(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE if part == CONFIG else 0))
        if part == LIVE and domain.isPersistent():
            name_swapped(root, parse(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))
        return root


def refuse_rescue(domain: t.Any, uuid: str) -> None:
    """Refuse a guest whose rescue the ledger does not know. The end of the rescue would undo a change of its devices.

    :raises Conflict: the domain is that of a rescue.
    """
    if any(is_rescue(_definition(domain, part), uuid) for part in parts_of(domain)):
        raise Conflict(
            message="guest %s is rescued without the ledger knowing: what changes now would be undone by the end of the rescue"
            % uuid,
            remedy="Run bootflow.compute.heartbeat, which records the rescue in the ledger, then bootflow.compute.unrescue.",
        )


# ---- change ---------------------------------------------------------------------------------------------------------


def ensure_device(
    connection: t.Any, device: Device, check_mode: bool = False, tries: int = TRIES, wait: float = 2.0
) -> dict[str, t.Any]:
    """Attach or detach a device where needed, in the running guest and in its definition.

    Returns {changed, live, config, before, after}, and the details of the kind.

    :arg tries: how often a guest is asked to release a device, with ``wait``, 2 * ``wait``... seconds in between.
    :raises InstanceNotFound: the domain of a device to attach does not exist. :raises Conflict: the domain is that of a rescue.
    :raises DeviceDetachFailed: the guest does not release the device.
    :raises LibvirtError, HypervisorUnavailable: libvirt fails or is not running.
    """
    domain = domain_of(connection, device)
    if domain is not None:
        device.check_guest(domain)
    if device.state == DETACHED:
        return _detach(connection, domain, device, check_mode, tries, wait)
    return _attach(connection, domain, device, check_mode)


def domain_of(connection: t.Any, device: Device) -> t.Any:
    """Return the domain of a device; None: it does not exist, and the device is detached with it.

    :raises InstanceNotFound: the device is not to be detached.
    """
    domain = find_domain(connection, device.uuid)
    if domain is None and device.state != DETACHED:
        raise InstanceNotFound(
            message="domain %s does not exist on this host" % device.uuid, remedy=device.NO_DOMAIN_REMEDY
        )
    return domain


def _attach(connection: t.Any, domain: t.Any, device: Device, check_mode: bool) -> dict[str, t.Any]:
    parts = parts_of(domain)
    devices = {part: devices_of(domain, part, device.TAG) for part in parts}
    elements = {part: _among(devices[part], device) for part in parts}
    missing = [part for part in parts if elements[part] is None]
    before = next((element for element in elements.values() if element is not None), None)
    wanted = parse(device.xml) if missing else before
    if missing:
        device.adapt(domain, wanted, before, [element for part in missing for element in devices[part]])
    prepared = device.prepare(connection, check_mode)
    if not missing or check_mode:
        return device.result(bool(missing) or prepared, before, wanted, parts)
    progress.mark_changed()
    with libvirt_errors():
        try:
            domain.attachDeviceFlags(to_text(wanted), flag_of(missing))
        except libvirt.libvirtError as error:
            device.raise_refused(error)
            raise
    forget_memory(domain, parts)
    after = find_device(domain, parts[0], device)
    if LIVE in missing and after is not None:
        device.wait(domain, after)
    if started_since(domain, parts):
        return {**_attach(connection, domain, device, check_mode), "changed": True}
    return device.result(True, before, after, parts)


def _detach(
    connection: t.Any, domain: t.Any, device: Device, check_mode: bool, tries: int, wait: float
) -> dict[str, t.Any]:
    before = None
    for _look in range(max(1, device.LOOKS) if domain is not None else 0):
        parts = parts_of(domain)
        elements = {part: find_device(domain, part, device) for part in device.DETACH_ORDER if part in parts}
        elements = {part: element for part, element in elements.items() if element is not None}
        if not elements:
            break
        before = elements.get(LIVE, elements.get(CONFIG)) if before is None else before
        device.check_detach(domain, list(elements.values()))
        if check_mode:
            return device.result(True, before, None)
        progress.mark_changed()
        for part, element in elements.items():
            if part == LIVE:
                release_device(domain, device, element, tries, wait)
            else:
                with libvirt_errors():
                    domain.detachDeviceFlags(to_text(element), flag_of([part]))
                forget_memory(domain, parts)
    else:
        if domain is not None and device.LOOKS:
            raise Conflict(
                message="%s %s of guest %s is there again after it was detached"
                % (device.TAG, device.key, device.uuid),
                remedy="Run the same command again.",
            )
    cleaned = device.clean(connection, check_mode)
    return device.result(before is not None or cleaned, before, None)


def release_device(domain: t.Any, device: Device, element: t.Any, tries: int = TRIES, wait: float = 2.0) -> None:
    """Ask the running guest to release a device until it is gone: a guest may respond late or never.

    :raises DeviceDetachFailed: it does not release it.
    """
    problem = ""
    for attempt in range(1, tries + 1):
        with libvirt_errors():
            try:
                domain.detachDeviceFlags(to_text(element), flag_of([LIVE]))
            except libvirt.libvirtError as error:
                # The device is gone meanwhile, or QEMU still waits for the guest's response to the previous request.
                if is_code(error, "VIR_ERR_NO_DOMAIN"):
                    return
                problem = (error.get_error_message() or str(error)).strip()
        deadline = time.monotonic() + min(wait * attempt, MOST_WAIT)
        while True:
            if _is_gone(domain, device):
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL)
    raise DeviceDetachFailed(
        remedy=device.REFUSAL_REMEDY,
        device=device.name_of(element),
        reason="Unable to detach the device from the live config after %d tries.%s"
        % (tries, " " + problem if problem else ""),
    )


def _is_gone(domain: t.Any, device: Device) -> bool:
    try:
        return not domain.isActive() or find_device(domain, LIVE, device) is None
    except InstanceNotFound:
        return True
    except libvirt.libvirtError as error:
        if is_code(error, "VIR_ERR_NO_DOMAIN", "VIR_ERR_OPERATION_INVALID"):
            return True
        raise


# ---- modules --------------------------------------------------------------------------------------------------------


def hot_plug_arguments(
    option: str, element: t.Mapping[str, t.Any], *required: tuple[str, str, list[str]]
) -> dict[str, t.Any]:
    """Return the options of a module with a list ``option`` of devices.

    :arg element: the options of one device that only this kind has. :arg required: as ``required_if`` of Ansible
    """
    devices = {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "id": {"type": "str", "required": True},
            "uuid": {"type": "str", "required": True},
            "xml": {"type": "str"},
            **element,
        },
        "required_if": [("state", ATTACHED, ["xml"]), *required],
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        option: devices,
        "detach_tries": {"type": "int", "default": TRIES},
        "detach_wait": {"type": "float", "default": 2},
        "workers": {"type": "int", "default": 4},
    }


def run_hot_plug(
    module: t.Any,
    option: str,
    key: str,
    ensure: t.Callable[[t.Any, t.Mapping[str, t.Any], int, float], dict[str, t.Any]],
) -> None:
    """Change the devices of the module's ``option``, and end the module.

    :arg key: the field of a device that identifies it in the guest. :arg ensure: called with the connection, a device, tries and wait
    """
    keep_time_limit(module)
    args = module.params
    devices = args[option]
    tries, wait = max(1, args["detach_tries"]), max(0.0, args["detach_wait"])
    module.no_log_values |= login_users(*(device["xml"] for device in devices))
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def ensure_one(device: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
                return ensure(connection, device, tries, wait)

            results = run_batch([(device["id"], device) for device in devices], ensure_one, args["workers"])
    except Exception as error:
        fail(module, error)
    diff = []
    for device in devices:
        result = results[device["id"]]
        before, after = result.pop("before", ""), result.pop("after", "")
        if before != after:
            header = "%s %s of domain %s" % (option[:-1], device[key], device["uuid"])
            diff.append({"before": before, "after": after, "before_header": header, "after_header": header})
    module.no_log_values |= login_users(*(change["before"] for change in diff))
    module.exit_json(changed=any_changed(results), outcomes=results, diff=diff)
