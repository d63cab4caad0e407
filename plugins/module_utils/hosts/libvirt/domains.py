# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Defines, starts, waits for and removes domains."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import re
import threading
import time
import typing as t
from dataclasses import dataclass, field, replace

from ...core.disks.local import local_disks
from ...core.errors import (
    Conflict,
    InstanceExists,
    InstanceNotFound,
    InvalidInput,
    LibvirtError,
    UnsafeFolder,
    WaitTimeout,
)
from ...core.guest.domain.element import parse, to_text
from ...core.guest.domain.namespaces import OWNER_NAMESPACE
from ...core.guest.nvram import NVRAM, RESCUE_NVRAM, nvram_path
from ...core.instances.power_states import CRASHED, NOSTATE, POWER_PAUSED, RUNNING, SHUTDOWN, power_state_of
from ..os.batch import progress
from ..os.locks import guest_lock, take_back
from ..os.ownership import check_owner
from ..os.paths import checked_uuid, own_folder
from ..os.volume_sources import name_swapped
from .connection import libvirt, libvirt_errors, tolerating
from .dhcp import Reservation, release_of_domain, reserve
from .domain_waits import (
    AddressWait,
    CloudInitWait,
    ConsoleWait,
    wait_for_address,
    wait_for_agent,
    wait_for_cloud_init,
    wait_for_console,
)
from .running import (
    ended,
    find_domain,
    go_on,
    hidden_logins,
    is_active,
    power_state,
    refuse_gone,
    shut_down,
    start,
    wait_for_state,
    was_paused,
)

POLL = 0.1  # seconds
_DISK_BUSES = ("scsi", "ide", "usb")  # of disks that have no separate PCI address
_NUMBERS = re.compile(r"[0-9a-f:-]*[0-9][0-9a-f:-]*")
SCHEMA = "/usr/share/libvirt/schemas"  # of Debian's libvirt, and any other with this prefix
# What modules found out on this host, until it restarts: a folder for each kind, an empty file for each thing that is so.
REMEMBERED = "/run/bootflow"
MOST_REMEMBERED = 1000  # things of a kind; then all are forgotten
VALID = "valid-forms"  # of definitions, where they are remembered
# Definitions that libvirt found valid: to read its schema takes it 10 ms, three times as long as all else of a definition.
_valid_forms: set[str] = set()
_validating = threading.Lock()  # guests that are alike come side by side


@dataclass(frozen=True)
class DomainSpec:
    """A requested domain. Times are in seconds.

    ``spare_names``: the first one that is free is the domain's name where another domain has ``name``. An existing domain with such
    names keeps its own.
    """

    uuid: str
    name: str
    xml: str
    state: str = "running"  # defined, paused, running
    restart: bool = False  # a running guest loses its power first, one that is suspended its memory
    shutdown_timeout: float = 0.0  # a guest that is to restart has so long to shut down before it loses its power
    keep_disks: bool = False  # local disks are where, and what, they are by the definition that the domain has
    new_logins: tuple[str, ...] = ()  # targets that QEMU logs in to with other users than before
    wait_timeout: float = 60.0
    wait_console: ConsoleWait | None = None
    wait_address: AddressWait | None = None
    wait_agent: float = 0.0
    wait_cloud_init: CloudInitWait | None = None
    vif_plugging_timeout: float = 300.0  # 0: the guest runs immediately
    vif_plugging_is_fatal: bool = True
    reservations: tuple[Reservation, ...] = ()  # made before the guest starts, see .dhcp
    spare_names: tuple[str, ...] = ()
    differences: t.Callable[[str, str], t.Sequence[str]] | None = field(default=None, compare=False)
    # With keep_disks: the XML as it fits to other disks that the guest has by the definitions of its domain, see copies.other_disks.
    keep_others: t.Callable[[DomainSpec, t.Sequence[t.Any]], str] | None = field(default=None, compare=False)


def power_states(connection: t.Any) -> dict[str, int]:
    """Return uuid -> power_state of all domains, whoever defined them, in one call to libvirt."""
    with libvirt_errors():
        stats_of_domains = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE)
        return {domain.UUIDString(): power_state_of(stats["state.state"]) for domain, stats in stats_of_domains}


def definitions(connection: t.Any) -> list[str]:
    """Return the XML of all domains, whoever defined them: as they run, and as they will start."""
    with libvirt_errors():
        domains = connection.listAllDomains(0)
    texts = []
    for domain in domains:
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            # None: it was removed meanwhile
            texts.append(tolerating(lambda d=domain, f=flags: d.XMLDesc(f), "VIR_ERR_NO_DOMAIN"))  # type: ignore[misc]
    return [text for text in texts if text is not None]


def definitions_of(domain: t.Any) -> list[t.Any]:
    """Return the XML of a domain as it runs, if it does, and as it will start, parsed."""
    roots = []
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        text = tolerating(lambda f=flags: domain.XMLDesc(f), "VIR_ERR_NO_DOMAIN")  # type: ignore[misc]
        roots += [parse(text)] if text is not None else []
    if len(roots) == 2:
        name_swapped(*roots)
    return roots


def ledger_of_domain(xml: t.Any) -> str:
    """Return the ledger in the metadata of a domain's XML; "" without one."""
    owner = xml.find("metadata/{%s}owner" % OWNER_NAMESPACE)
    return "" if owner is None else str(owner.get("ledger") or "")


def checked_xml(spec: DomainSpec) -> None:
    """Check that the XML is a domain with exactly the uuid and name of the spec.

    :raises InvalidInput: it is not; nothing was sent to libvirt.
    """
    checked_uuid(spec.uuid)
    root = parse(spec.xml)
    if root.tag != "domain":
        raise InvalidInput(reason="the XML of %s must be a domain, got %s" % (spec.uuid, root.tag))
    for tag, wanted in (("uuid", spec.uuid), ("name", spec.name)):
        text = (root.findtext(tag) or "").strip()
        if text != wanted:
            raise InvalidInput(reason="the XML of %s must have the %s %r, got %r" % (spec.uuid, tag, wanted, text))


def shown_xml(xml: str) -> str:
    """Return the XML without passwords, for a diff."""
    root = parse(xml)
    for element in root.iterfind(".//graphics[@passwd]"):
        element.set("passwd", "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER")
    return to_text(root)


def with_logins(xml: str, before: str, new: t.Collection[str] = ()) -> str:
    """Return ``xml`` with the users that QEMU logs in with to the same volumes by the definition ``before``.

    A run knows only the users that it made itself; the secrets of others are in libvirt.

    :arg new: names of targets that this run has made again: their users in ``xml`` stay
    """
    known = {name: auth.get("username") for name, auth in _logins(parse(before)) if name.rpartition("/")[0] not in new}
    root = parse(xml)
    for name, auth in _logins(root):
        auth.set("username", known.get(name) or auth.get("username"))
    return to_text(root) if known else xml


def with_local_disks(xml: str, before: str, uuid: str) -> str:
    """Return ``xml`` with the places and formats of the same local disks in the definition ``before``.

    A host's settings may have changed since the disks were made: a disk that is opened in another format is lost.
    """
    root, root_before = parse(xml), parse(before)
    disk_of_name = dict(local_disks(root_before, uuid))
    changed = _keep_nvram(root, root_before)
    for name, disk in local_disks(root, uuid):
        own = disk_of_name.get(name)
        if own is None or _place(own) == _place(disk):
            continue
        changed = True
        disk.set("type", own.get("type"))
        for tag in ("driver", "source", "auth"):
            old, new = disk.find(tag), own.find(tag)
            if old is not None and new is not None:
                disk.replace(old, copy.deepcopy(new))
            elif tag == "auth" and (old is None) != (new is None):
                disk.remove(old) if old is not None else disk.append(copy.deepcopy(new))
        for old in disk.findall("backingStore"):
            disk.remove(old)
        disk.extend(copy.deepcopy(new) for new in own.findall("backingStore"))
    return to_text(root) if changed else xml


def _keep_nvram(root: t.Any, before: t.Any) -> bool:
    """Leave the NVRAM of a guest where the definition ``before`` has it. Returns whether ``root`` was changed."""
    wanted, nvram_before = root.find("os/nvram"), nvram_path(before)
    if wanted is None or os.path.basename(wanted.text) != NVRAM or os.path.basename(nvram_before) in ("", RESCUE_NVRAM):
        return False
    if before.find("os/nvram") is None and not os.path.exists(nvram_before):  # libvirt has made none yet
        return False
    wanted.text = nvram_before
    return True


def _check_disks(spec: DomainSpec) -> None:
    """Check that the disks of a lost domain exist, before it is defined again: without them it would pass for the instance.

    :raises Conflict: the host does not have them.
    """
    root = parse(spec.xml)
    sources = [disk.find("source") for _name, disk in local_disks(root, spec.uuid)]
    # Those in a pool are on no host, and their guest does not start without them.
    paths = [str(source.get("file") or source.get("dev")) for source in sources if source.get("name") is None]
    paths += [os.path.dirname(log.get("file")) for log in root.iterfind("devices/serial/log[@file]")]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        raise Conflict(
            message="%s has neither a domain nor the disks of instance %s: %s is missing"
            % (os.uname().nodename, spec.uuid, missing[0]),
            remedy="The disks may be on another host: run bootflow.compute.audit to see where the domain is. If the disks are lost, rebuild the"
            " instance, or delete it.",
        )


def _check_logins(spec: DomainSpec) -> None:
    """Check the logins to volumes: a host that lost the domain lost its users, too, and each start without them would fail.

    :raises Conflict: a target is not one of ``new_logins``.
    """
    targets = [name.rpartition("/")[0] for name, _auth in _logins(parse(spec.xml))]
    unknown = [target for target in targets if target not in spec.new_logins]
    if unknown:
        raise Conflict(
            message="%s has lost the domain of instance %s, and with it the user with whom QEMU logs in to %s"
            % (os.uname().nodename, spec.uuid, unknown[0]),
            remedy="Run bootflow.compute.heartbeat, which records that in the ledger, and then bootflow.compute.reboot with"
            " bootflow_reboot_type: HARD: the target gets another user.",
        )


def _place(disk: t.Any) -> tuple[t.Any, ...]:
    driver, source = disk.find("driver"), disk.find("source")
    kind = None if driver is None else driver.get("type")
    return disk.get("type"), kind, source.get("file"), source.get("dev"), source.get("name")


def _logins(root: t.Any) -> t.Iterator[tuple[str, t.Any]]:
    """Yield (name of the source, <auth>) of each disk that has one, and a user that was made for it: clusters of Ceph have one user for all disks."""
    for disk in root.iterfind("devices/disk[source]"):
        for auth in disk.iterfind(".//auth[@username]"):
            if disk.find("source").get("protocol") == "iscsi":
                yield str(disk.find("source").get("name")), auth


def ensure_domain(connection: t.Any, spec: DomainSpec, check_mode: bool = False) -> dict[str, t.Any]:
    """Define, start and wait according to ``spec``; only missing steps are done.

    Returns {name, changed, defined, started, resumed, reserved, power_state, seconds, differences, diff, console_match, vifs_missing}, and
    ``devices`` (see device_places) if the requested state is ``defined``, ``forced`` if a guest was asked to shut down.
    A running domain with another definition gets the new definition for its next start and keeps running.
    After a failure the caller must remove the domain. It waits for others that define, start or stop the guest, and does nothing where
    the run is gone that asks for it.

    :raises InvalidInput: see checked_xml.
    :raises GuestDisksDiffer: see copies.other_disks.
    :raises InstanceExists: another domain has the name. :raises Conflict: see _check_disks(), _check_logins().
    :raises LibvirtError, HypervisorUnavailable: libvirt fails or is not running; or the guest ended immediately.
    :raises VirtualInterfaceCreateException: see vifs.wait_plugged.
    :raises NetworkError: see dhcp.reserve.
    :raises WaitTimeout: an awaited event did not happen, or see locks.guest_lock. :raises CloudInitFailed: see wait_for_cloud_init.
    """
    begin = time.monotonic()
    checked_xml(spec)
    with contextlib.nullcontext() if check_mode else guest_lock(spec.uuid):
        refuse_gone(spec.uuid)
        domain, spec, result, console_from = _ensure(connection, spec, check_mode)
    if spec.state == "running" and not check_mode:
        alive = _still_running(domain, spec)
        if spec.wait_console:
            result["console_match"] = wait_for_console(spec.wait_console, console_from, alive)
        if spec.wait_agent:
            wait_for_agent(domain, spec.wait_agent, alive)
        if spec.wait_cloud_init:
            wait_for_cloud_init(domain, spec.wait_cloud_init, console_from, alive)
        if spec.wait_address:
            wait_for_address(spec.wait_address, alive)
    result["power_state"] = NOSTATE if domain is None else power_state(domain)
    result["seconds"] = round(time.monotonic() - begin, 3)
    return result


def _ensure(
    connection: t.Any, spec: DomainSpec, check_mode: bool
) -> tuple[t.Any, DomainSpec, dict[str, t.Any], tuple[int, int] | None]:
    """Return the domain, the spec with its name and definition, the result so far, and from where its console counts."""
    domain: t.Any = find_domain(connection, spec.uuid)
    before, differences = "", ["not defined"]
    if domain is None:
        if spec.keep_disks:
            _check_disks(spec)
            if not check_mode:  # check mode connects nothing
                _check_logins(spec)
        spec = _with_free_name(connection, spec)
    else:
        with libvirt_errors():
            spec = _named(spec, domain.name()) if spec.spare_names else spec
            before = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        if spec.restart or spec.new_logins:
            spec = replace(spec, xml=with_logins(spec.xml, before, spec.new_logins))
        if spec.keep_disks:
            spec = replace(spec, xml=with_local_disks(spec.xml, before, spec.uuid))
            if spec.keep_others is not None:
                spec = replace(spec, xml=spec.keep_others(spec, definitions_of(domain)))
        differences = list(spec.differences(spec.xml, before)) if spec.differences else []
        with libvirt_errors():
            if not domain.isPersistent():  # it was undefined while it ran: without its guest libvirt forgets it
                differences.append("not persistent")
    define = bool(differences)
    begins = spec.state != "defined" and (domain is None or spec.restart or not is_active(domain))
    resume = spec.state == "running" and domain is not None and not begins and was_paused(domain)
    result: dict[str, t.Any] = {
        "name": spec.name,
        "changed": define or begins or resume,
        "defined": define,
        "started": begins,
        "resumed": resume,
        "differences": differences if define else [],
        "console_match": None,
        "vifs_missing": [],
        "reserved": [],
    }
    if define or begins:
        result["diff"] = {
            "before_header": "%s (libvirt)" % spec.name,
            "after_header": "%s (requested)" % spec.name,
            "before": shown_xml(before) if before else "",
            "after": shown_xml(spec.xml) if define else shown_xml(before),
        }
    if begins and spec.shutdown_timeout > 0 and domain is not None and not check_mode and is_active(domain):
        # Before it is defined again: where the run dies meanwhile, the guest is what it was, or off.
        result["forced"] = shut_down(domain, spec.uuid, spec.shutdown_timeout)
    if define and not check_mode:
        progress.mark_changed()
        with hidden_logins(lambda: spec.xml):
            domain, spec = _define(connection, spec)
    result["reserved"] = [r.address for r in spec.reservations if reserve(connection, r, check_mode)]
    result["changed"] = result["changed"] or bool(result["reserved"])
    result["name"] = spec.name
    if check_mode:
        return domain, spec, result, None
    console = spec.wait_console or (spec.wait_cloud_init and spec.wait_cloud_init.console)
    console_from = console.mark() if console and begins and console.appended else None
    if begins:
        progress.mark_changed()
        if spec.restart:
            cut_off(domain)
        take_back(spec.uuid)
        with hidden_logins(lambda: spec.xml):
            start(domain, paused=spec.state == "paused" or spec.vif_plugging_timeout > 0)
        resume = spec.state == "running" and spec.vif_plugging_timeout > 0
    if resume:
        result["vifs_missing"] = go_on(domain, spec.vif_plugging_timeout, spec.vif_plugging_is_fatal)
    if spec.state == "defined":
        with libvirt_errors():
            result["devices"] = device_places(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    else:
        wait_for_state(
            domain, POWER_PAUSED if spec.state == "paused" and begins else RUNNING, spec.name, spec.wait_timeout
        )
    return domain, spec, result, console_from


def device_places(xml: str) -> list[dict[str, str]]:
    """Return the disks (``name``: vda) and interfaces (``mac``) of a defined domain, in its order, each with ``type``, ``bus`` and ``address``.

    libvirt decides the addresses when it defines the domain. Without a bus that Nova names both are missing.
    source: Nova's _prepare_device_bus

    :raises InvalidInput: the text is not XML.
    """
    devices = parse(xml).find("devices")
    places = []
    for node in () if devices is None else devices:
        target, mac = node.find("target"), node.find("mac")
        if node.tag == "disk" and target is not None:
            place = {"type": "disk", "name": str(target.get("dev"))}
            if target.get("bus") in _DISK_BUSES:
                place["bus"] = str(target.get("bus"))
        elif node.tag == "interface" and mac is not None:
            place = {"type": "nic", "mac": str(mac.get("address")).lower()}
        else:
            continue
        address = node.find("address")
        if address is not None and address.get("type") == "pci":
            place.update(bus="pci", address=_pci_address(address))
        places.append(place)
    return places


def _pci_address(node: t.Any) -> str:
    domain, bus, slot, function = (int(node.get(name), 16) for name in ("domain", "bus", "slot", "function"))
    return "%04x:%02x:%02x.%x" % (domain, bus, slot, function)


def _with_free_name(connection: t.Any, spec: DomainSpec) -> DomainSpec:
    """Return the spec with the first of its names that no other domain has. :raises InstanceExists: others have all of them."""
    others = {name: _holder(connection, name) for name in (spec.name, *spec.spare_names)}
    for name, other in others.items():
        if other in (None, spec.uuid):
            return spec if name == spec.name else _named(spec, name)
    raise InstanceExists(
        name=spec.name,
        reason="libvirt has a domain with that name and UUID %s" % others[spec.name],
        remedy="Remove or rename that domain.",
    )


def _holder(connection: t.Any, name: str) -> str | None:
    """Return the UUID of the domain with this name."""
    other = tolerating(lambda: connection.lookupByName(name), "VIR_ERR_NO_DOMAIN")
    return None if other is None else str(other.UUIDString())


def _named(spec: DomainSpec, name: str) -> DomainSpec:
    if name == spec.name:
        return spec
    root = parse(spec.xml)
    root.find("name").text = name
    return replace(spec, name=name, xml=to_text(root))


def _define(connection: t.Any, spec: DomainSpec) -> tuple[t.Any, DomainSpec]:
    """Return the defined domain, and the spec with the name that it got."""
    while True:
        try:
            with libvirt_errors():
                return _defined(connection, spec), spec
        except LibvirtError:
            # Another build may have taken the name since it was looked for.
            if not spec.spare_names or _holder(connection, spec.name) in (None, spec.uuid):
                raise
            spec = _with_free_name(connection, spec)


def _defined(connection: t.Any, spec: DomainSpec) -> t.Any:
    """Return the defined domain, whose definition libvirt validates by its schema if it is the first of its form."""
    form = _form(spec)
    if form not in _valid_forms:
        with _validating:
            if form not in _valid_forms:
                return _validated(connection, spec, form)
    return connection.defineXMLFlags(spec.xml, 0)


def _validated(connection: t.Any, spec: DomainSpec, form: str) -> t.Any:
    """Return the domain, defined with validation unless a module before found its form valid by the same schema."""
    mark = _mark(form)
    known = bool(mark) and is_remembered(VALID, mark)
    domain = connection.defineXMLFlags(spec.xml, 0 if known else libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    if mark and not known:
        remember(VALID, mark)
    _valid_forms.add(form)
    return domain


def _form(spec: DomainSpec) -> str:
    """Return the definition without what differs between guests that are alike: name, UUID and numbers, which libvirt reads in any case."""
    return _NUMBERS.sub("0", spec.xml.replace(spec.name, "").replace(spec.uuid, ""))


def _mark(form: str) -> str:
    """Return a digest of the form and of the times of the schema's files; "" if they are not there."""
    digest = hashlib.sha256(form.encode(errors="surrogateescape"))
    try:
        names = sorted(os.listdir(SCHEMA))
        for name in names:
            status = os.stat(os.path.join(SCHEMA, name))
            digest.update(("%s %d %d %d\n" % (name, status.st_mtime_ns, status.st_ctime_ns, status.st_size)).encode())
    except OSError:
        return ""
    return digest.hexdigest() if names else ""


def is_remembered(kind: str, mark: str) -> bool:
    """Return whether remember() was called for this. :arg kind, mark: names of a folder and a file"""
    with contextlib.suppress(OSError, UnsafeFolder), own_folder(os.path.join(REMEMBERED, kind), 0o700) as folder:
        os.stat(mark, dir_fd=folder)
        return True
    return False


def remember(kind: str, mark: str) -> None:
    """Record that this is so. It does no harm if it cannot be recorded."""
    with contextlib.suppress(OSError, UnsafeFolder), own_folder(os.path.join(REMEMBERED, kind), 0o700) as folder:
        marks = os.listdir("/proc/self/fd/%d" % folder)
        for other in marks if len(marks) >= MOST_REMEMBERED else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(other, dir_fd=folder)
        os.close(os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder))


def cut_off(domain: t.Any) -> None:
    """Take the power, or the saved memory, of a guest."""
    tolerating(domain.destroy, "VIR_ERR_OPERATION_INVALID")  # it is off
    with libvirt_errors():
        if domain.hasManagedSaveImage(0):
            domain.managedSaveRemove(0)


def _still_running(domain: t.Any, spec: DomainSpec) -> t.Callable[[], None]:
    def alive() -> None:
        if power_state(domain) in (SHUTDOWN, CRASHED):
            raise ended(spec.name)

    return alive


def remove_domain(
    connection: t.Any,
    uuid: str,
    check_mode: bool = False,
    stopped: t.Callable[[], t.Any] | None = None,
    ledger_id: str = "",
    defined_again: bool = False,
    without_power: bool = False,
) -> list[str]:
    """Destroy and undefine the domain with its managed save, metadata of snapshots and checkpoints, NVRAM, and DHCP reservations.

    Returns what was (or would be) removed, as texts; empty without such a domain. It waits for others that define, start or stop the guest, which has
    lost its power by then: nothing waits until it has shut down.

    :arg stopped: called when the guest is stopped but still defined: if it raises, the definition is kept.
    :arg ledger_id: the ledger of the instance.
    :arg defined_again: the definition comes back without what was removed: only there are the users with whom QEMU logs in to volumes.
    :arg without_power: a guest that has power keeps it.

    :raises Conflict: the domain belongs to another ledger, or its guest keeps its power; it is left alone.
    :raises LibvirtError, HypervisorUnavailable: libvirt fails or is not running. :raises WaitTimeout: see locks.guest_lock.
    """
    if check_mode:
        return _remove(connection, checked_uuid(uuid), True, stopped, ledger_id, defined_again, without_power)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(guest_lock(checked_uuid(uuid), timeout=0))
        except WaitTimeout:
            if not without_power:
                _destroy(connection, uuid, ledger_id)
            held.enter_context(guest_lock(uuid))
        return _remove(connection, uuid, False, stopped, ledger_id, defined_again, without_power)


def _destroy(connection: t.Any, uuid: str, ledger_id: str) -> None:
    """Cut the power of the guest, without waiting until it has shut down."""
    domain = find_domain(connection, uuid)
    if domain is not None:
        try:
            with libvirt_errors():
                name, xml = domain.name(), domain.XMLDesc(0)
        except InstanceNotFound:  # see _remove()
            return
        check_owner("domain %s" % name, ledger_of_domain(parse(xml)), ledger_id)
        progress.mark_changed()
        tolerating(domain.destroy, "VIR_ERR_NO_DOMAIN", "VIR_ERR_OPERATION_INVALID")


def _remove(
    connection: t.Any,
    uuid: str,
    check_mode: bool,
    stopped: t.Callable[[], t.Any] | None,
    ledger_id: str,
    defined_again: bool,
    without_power: bool,
) -> list[str]:
    domain = find_domain(connection, uuid)
    if domain is None:
        return []
    try:
        with libvirt_errors():
            name, persistent, active, xml = domain.name(), domain.isPersistent(), domain.isActive(), domain.XMLDesc(0)
            own = (
                domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE) if defined_again else ""
            )
    except InstanceNotFound:
        return []  # one that was to come from another host is gone with its guest there, which was removed at the same time
    check_owner("domain %s" % name, ledger_of_domain(parse(xml)), ledger_id)
    if active and without_power:
        raise Conflict(
            message="the guest of instance %s has power on %s, and nothing of it was removed"
            % (uuid, os.uname().nodename),
            remedy="It was started after the instance was shelved, and its image is older: run bootflow.compute.unshelve. To give up what it has written"
            " since, take its power by hand (virsh destroy), and run the same command again.",
        )
    removed = ["running domain %s" % name] if active else []
    removed += ["definition of domain %s" % name] if persistent else []
    if check_mode:
        return removed + release_of_domain(connection, xml, check_mode)
    progress.mark_changed()
    # A domain with autodestroy, or a guest that shuts down, may be gone between any two calls.
    if active:
        tolerating(domain.destroy, "VIR_ERR_NO_DOMAIN", "VIR_ERR_OPERATION_INVALID")
    if stopped is not None:
        stopped()
    removed += release_of_domain(connection, xml)
    if persistent:
        _undefine(domain)
    if own:
        with libvirt_errors():
            connection.defineXMLFlags(own, 0)
    return removed


def _undefine(domain: t.Any) -> None:
    flags = 0
    for name in ("MANAGED_SAVE", "SNAPSHOTS_METADATA", "CHECKPOINTS_METADATA", "NVRAM", "TPM"):
        flags |= getattr(libvirt, "VIR_DOMAIN_UNDEFINE_" + name, 0)
    tolerating(lambda: domain.undefineFlags(flags), "VIR_ERR_NO_DOMAIN")


def log_path_of(xml: str) -> str:
    """Return the log file of the domain's first serial port or console; "" without one."""
    root = parse(xml)
    places = ["devices/%s[1]/log[1][@file]" % kind for kind in ("serial", "console")]
    places += ["devices/%s[1][@type='file']/source[@path]" % kind for kind in ("serial", "console")]
    elements = (root.find(place) for place in places)
    return next((str(element.get("file") or element.get("path")) for element in elements if element is not None), "")


def log_is_appended(xml: str) -> bool:
    """Return whether a start appends to the log (libvirt's default is to truncate it)."""
    root = parse(xml)
    return any(root.find("devices/%s/*[@append='on']" % path) is not None for path in ("serial", "console"))


def checked_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern. Raises InvalidInput if it is not a regular expression."""
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise InvalidInput(reason="pattern %r is not a regular expression: %s" % (pattern, error)) from None
