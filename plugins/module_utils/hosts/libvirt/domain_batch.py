# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of the module domain: its option as specs of hosts.libvirt.domains, ensured side by side."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import typing as t

from ...core.errors import InvalidInput, LibvirtError
from ...core.guest.domain.compare import intent_differences
from ..os.batch import progress, run_batch
from ..os.files import remove_files, write_file
from ..os.locks import BUILDS, host_place
from ..os.module_errors import failure
from ..os.ownership import mark_arrived
from ..os.paths import checked_instances_path, instance_dir, make_dirs
from .connection import LIBVIRT_ARGUMENTS, connect
from .dhcp import RESERVATIONS_ARGUMENT, Reservation
from .domain_waits import CLOUD_INIT_FINISHED, AddressWait, CloudInitWait, ConsoleWait, checked_address, host_name
from .domains import DomainSpec, checked_pattern, checked_xml, ensure_domain, log_is_appended, log_path_of, shown_xml
from .running import known_power_state

_REFUSED = "_refused"  # the folder of definitions that libvirt refused
MOST_REFUSED = 20  # definitions that are kept on a host, the newest ones

# The option ``domains``.
DOMAIN_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "uuid": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "spare_names": {"type": "list", "elements": "str", "default": []},
    "xml": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["running", "paused", "defined"], "default": DomainSpec.state},
    "restart": {"type": "bool", "default": DomainSpec.restart},
    "shutdown_timeout": {"type": "float", "default": DomainSpec.shutdown_timeout},
    "keep_disks": {"type": "bool", "default": DomainSpec.keep_disks},
    "new_logins": {"type": "list", "elements": "str", "default": []},
    "wait_timeout": {"type": "float", "default": DomainSpec.wait_timeout},
    "wait_console": {
        "type": "dict",
        "options": {
            "pattern": {"type": "str", "required": True},
            "timeout": {"type": "float", "default": ConsoleWait.timeout},
            "log": {"type": "path"},
        },
    },
    "wait_address": {
        "type": "dict",
        "options": {
            "address": {"type": "str", "required": True},
            "port": {"type": "int"},
            "mac_address": {"type": "str", "default": AddressWait.mac_address},
            "timeout": {"type": "float", "default": AddressWait.timeout},
        },
    },
    "vif_plugging_timeout": {"type": "float", "default": DomainSpec.vif_plugging_timeout},
    "vif_plugging_is_fatal": {"type": "bool", "default": DomainSpec.vif_plugging_is_fatal},
    "wait_agent": {"type": "float", "default": DomainSpec.wait_agent},
    "wait_cloud_init": {
        "type": "dict",
        "options": {
            "agent": {"type": "bool", "default": CloudInitWait.agent},
            "timeout": {"type": "float", "default": CloudInitWait.timeout},
            "log": {"type": "path"},
        },
    },
    "reservations": RESERVATIONS_ARGUMENT,
    "ends_build": {"type": "bool", "default": True},
}


DOMAIN_BATCH_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    **LIBVIRT_ARGUMENTS,
    "domains": {"type": "list", "elements": "dict", "required": True, "options": DOMAIN_ARGUMENTS},
    "workers": {"type": "int", "default": 8},
    "max_builds": {"type": "int", "default": 0},
    "place_timeout": {"type": "float", "default": 600.0},
    "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
}


def ensure_domains(
    params: t.Mapping[str, t.Any],
    check_mode: bool,
    adapted: t.Callable[[str, str, str], str] = lambda path, uuid, xml: xml,
    keep_others: t.Callable[[str, DomainSpec, t.Sequence[t.Any]], str] | None = None,
) -> dict[str, t.Any]:
    """Return {outcomes by uuid, diff}; see the module for the fields.

    :arg params: the options of the module
    :arg adapted: instances_path, UUID and definition -> the definition as it fits to the disks that are there
    :arg keep_others: see copies.other_disks.keep_others()
    :raises BootflowError: libvirt does not answer, or a UUID is given twice.
    """
    path = params["instances_path"]
    with connect(params["libvirt_uri"], params["libvirt_timeout"]) as connection:

        def one(wanted: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
            spec = domain_spec(wanted)
            spec = dataclasses.replace(spec, xml=adapted(path, spec.uuid, spec.xml))
            if keep_others is not None:
                spec = dataclasses.replace(spec, keep_others=functools.partial(keep_others, path))
            if check_mode:
                return ensure_domain(connection, spec, check_mode=True)
            place = host_place(path, BUILDS, params["max_builds"], params["place_timeout"])
            try:
                with place, refused_kept(path, spec):
                    done = ensure_domain(connection, spec)
                if wanted["ends_build"]:
                    mark_arrived(instance_dir(path, spec.uuid))
                return done
            except Exception as error:
                if not spec.restart:
                    raise
                return failure(error, changed=progress.changed, **known_power_state(connection, spec.uuid))

        results = run_batch([(wanted["uuid"], wanted) for wanted in params["domains"]], one, params["workers"])
    return {"outcomes": results, "diff": [result.pop("diff") for result in results.values() if "diff" in result]}


@contextlib.contextmanager
def refused_kept(instances_path: str, spec: DomainSpec) -> t.Iterator[None]:
    """Keep a definition that libvirt refuses, or cannot start, in the block; the error's remedy says where.

    The cleanup of a failed build removes everything else that would show the cause. source: Nova's Guest.create logs such definitions
    """
    try:
        yield
    except LibvirtError as error:
        with contextlib.suppress(OSError):  # a full disk must not hide the error
            path = _keep_definition(os.path.join(checked_instances_path(instances_path), _REFUSED), spec)
            error.remedy = " ".join(
                filter(None, (error.remedy, "The definition of the guest is in %s on %s." % (path, host_name())))
            )
        raise


def _keep_definition(folder: str, spec: DomainSpec) -> str:
    make_dirs(folder, 0o700)
    path = os.path.join(folder, spec.uuid + ".xml")
    write_file(path, shown_xml(spec.xml).encode("utf-8"), mode=0o600)
    others = [entry for entry in os.scandir(folder) if entry.path != path]
    others.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    remove_files(*(entry.path for entry in others[MOST_REFUSED - 1 :]))
    return path


def domain_spec(args: t.Mapping[str, t.Any]) -> DomainSpec:
    """Return the spec for one element of the option ``domains``.

    :raises InvalidInput: the XML, UUID, pattern or address is not valid.
    """
    spec = DomainSpec(
        uuid=str(args["uuid"]).lower(),
        name=args["name"],
        xml=args["xml"],
        spare_names=tuple(args["spare_names"]),
        state=args["state"],
        restart=args["restart"],
        shutdown_timeout=args["shutdown_timeout"],
        keep_disks=args["keep_disks"],
        new_logins=tuple(args["new_logins"]),
        wait_timeout=args["wait_timeout"] or DomainSpec.wait_timeout,
        vif_plugging_timeout=args["vif_plugging_timeout"],
        vif_plugging_is_fatal=args["vif_plugging_is_fatal"],
        wait_agent=args["wait_agent"],
        reservations=tuple(Reservation(**reservation) for reservation in args["reservations"]),
        wait_console=_console_wait(args.get("wait_console"), args),
        wait_address=_address_wait(args.get("wait_address")),
        wait_cloud_init=_cloud_init_wait(args.get("wait_cloud_init"), args),
        differences=intent_differences,
    )
    checked_xml(spec)
    return spec


def _console_wait(wait: t.Mapping[str, t.Any] | None, args: t.Mapping[str, t.Any]) -> ConsoleWait | None:
    return _console(wait, args, checked_pattern(wait["pattern"])) if wait else None


def _cloud_init_wait(wait: t.Mapping[str, t.Any] | None, args: t.Mapping[str, t.Any]) -> CloudInitWait | None:
    if not wait:
        return None
    # An agent may refuse to read the result.
    has_log = wait.get("log") or log_path_of(args["xml"])
    console = _console(wait, args, CLOUD_INIT_FINISHED) if has_log or not wait["agent"] else None
    return CloudInitWait(wait["timeout"] or CloudInitWait.timeout, wait["agent"], console)


def _console(wait: t.Mapping[str, t.Any], args: t.Mapping[str, t.Any], pattern: re.Pattern[str]) -> ConsoleWait:
    checked_xml(DomainSpec(uuid=str(args["uuid"]).lower(), name=args["name"], xml=args["xml"]))
    log = wait.get("log") or log_path_of(args["xml"])
    if not log:
        raise InvalidInput(
            reason="the XML of domain %s has no console with a log file to wait for" % args["uuid"], remedy="Set log."
        )
    return ConsoleWait(
        pattern=pattern,
        log=log,
        timeout=wait["timeout"] or ConsoleWait.timeout,
        appended=log_is_appended(args["xml"]),
    )


def _address_wait(wait: t.Mapping[str, t.Any] | None) -> AddressWait | None:
    if not wait:
        return None
    return AddressWait(
        address=checked_address(wait["address"]),
        port=wait.get("port") or 0,
        mac_address=wait.get("mac_address") or "",
        timeout=wait["timeout"] or AddressWait.timeout,
    )
