# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a compute host as actions need them: core.settings.hosts declares them."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.disks.stores.registry import STORE_TYPES
from ...module_utils.core.networks.underlay import check_together, check_underlay_address
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.reading.setting import Table, Values
from ...module_utils.core.settings.hosts import CONFIGURATION, HOST
from ...module_utils.core.settings.run import RUN, WATCHED
from . import host_variables

MOST_NAMED = 5
RATIOS = ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio")


class OnHost(t.Protocol):
    """An action, as far as the settings of its current host need it."""

    task_vars: t.Mapping[str, t.Any]

    def variable(self, name: str, default: t.Any = None) -> t.Any:
        """A variable of the current host, templated."""


class OnHostOfLedger(OnHost, t.Protocol):
    """An action that works on a ledger, too."""

    def ledger_id(self) -> str:
        """The id of the ledger."""


class Variables(t.Mapping[str, t.Any]):
    """The variables of an action's current host, each templated when it is read."""

    def __init__(self, action: OnHost):
        self._action = action

    def __getitem__(self, name: str) -> t.Any:
        return self._action.variable(name)

    def __iter__(self) -> t.Iterator[str]:
        return iter(self._action.task_vars)

    def __len__(self) -> int:
        return len(self._action.task_vars)


def values(action: OnHost, table: Table) -> Values:
    """The settings of ``table`` on the action's current host, each read once a task."""
    read: dict[int, Values] = action.__dict__.setdefault("_settings_read", {})
    return read.setdefault(id(table), table.read(Variables(action)))


def named_hosts(action: OnHost, hosts: t.Sequence[str]) -> list[str]:
    """Return the ``hosts``, of the compute hosts, that bootflow_hosts names; all without it.

    :raises ComputeHostNotFound: it names others.
    """
    named = values(action, RUN).hosts
    if named is None:
        return list(hosts)
    groups = action.task_vars.get("groups") or {}
    strangers = [n for n in named if n not in hosts and n not in groups]
    if strangers:
        raise errors.ComputeHostNotFound(
            message="bootflow_hosts names %s, which the inventory does not have as compute hosts"
            % ", ".join(strangers),
            remedy="Name compute hosts of the inventory, or groups of them.",
        )
    wanted = {host for name in named for host in groups.get(name, (name,))}
    return [h for h in hosts if h in wanted]


def facts_age(options: t.Mapping[str, t.Any]) -> float:
    """The age at which a report is stale: before its host counts as down, with time left for the round to use it."""
    return min(float(options["facts_max_age"]), float(options["service_down_time"]) / 2)


def read_current_host(action: OnHost) -> Values:
    """The settings of the current compute host."""
    return values(action, HOST)


def configuration(variables: t.Mapping[str, t.Any], host: str) -> dict[str, t.Any]:
    """The settings of ``host`` as columns of the ledger, plain data.

    pci_device_spec and isolated_disks are what the host is asked to look for; reserved_huge_pages is a list of {node,
    size (kB), count}; metrics is name -> number. Without bootflow_availability_zone there is no availability_zone: it is that
    of the host's aggregate (scheduler_settings.configurations), and a report leaves it as it is.

    :raises InvalidRequest: every value that does not fit.
    """
    problems = Problems()
    CONFIGURATION.check(variables, "host %s" % host, problems)
    problems.raise_if_any()
    read = CONFIGURATION.read(variables)
    columns = {setting.name: getattr(read, setting.name) for setting in CONFIGURATION}
    for column in RATIOS:
        columns[column] = columns[column] or CONFIGURATION.named(column).default  # 0.0 means unset, as in Nova
    if variables.get("bootflow_availability_zone") is None:
        del columns["availability_zone"]
    return columns


def check(hostvars: t.Mapping[str, t.Mapping[str, t.Any]], hosts: t.Iterable[str], problems: Problems) -> None:
    """Add to ``problems`` each wrong setting of the hosts, once for all hosts that have it."""
    hosts_by_error: dict[tuple[str, str], list[str]] = {}
    checked: dict[
        int, tuple[t.Any, Problems]
    ] = {}  # once for hosts with the same variables, which stay while they are here
    for host in hosts:
        host_vars = hostvars[host]
        if id(host_vars) not in checked:
            checked[id(host_vars)] = host_vars, _wrong(host_vars, host)
        for error in checked[id(host_vars)][1].errors:
            hosts_by_error.setdefault((error["message"], error["remedy"]), []).append(host)
    for (message, remedy), affected in hosts_by_error.items():
        more = ", and %d more" % (len(affected) - MOST_NAMED) if len(affected) > MOST_NAMED else ""
        path = "host%s %s%s" % ("" if len(affected) == 1 else "s", ", ".join(affected[:MOST_NAMED]), more)
        problems.add(path, errors.InvalidInput(message=message, remedy=remedy))


def check_common(action: OnHost) -> None:
    """Check, on the controller, the settings that all hosts have (-e, group_vars/all): before anything is written for a wrong one. Settings of
    a single host are checked when it begins to work, and so are settings made by a template, which may need what only a host has.

    :raises InvalidRequest: each value that does not fit.
    """
    problems = Problems()
    for setting in HOST:
        value = action.task_vars.get(setting.variable)
        if isinstance(value, (str, int, float)) and "{" not in str(value):
            with problems.collect(setting.variable):
                setting.read(value)
    problems.raise_if_any()


def _wrong(variables: t.Mapping[str, t.Any], host: str) -> Problems:
    problems = Problems()
    HOST.check(variables, host, problems)
    if not problems.errors:
        with problems.collect(host):
            read = HOST.read(variables)
            volume_group(read)
            disk_pool(read)
    return problems


def volume_group(host: Values) -> str:
    """Return the volume group where the disk backend keeps the disks; "" for files. :raises InvalidInput: it needs one, and none is set"""
    if not STORE_TYPES[host.disk_backend].needs_group:
        return ""
    if not host.disk_volume_group:
        raise errors.InvalidInput(
            message="bootflow_disk_backend is %s, and bootflow_disk_volume_group is not set" % host.disk_backend,
            remedy="Name the volume group in the inventory (host_vars, group_vars) or where -e sets it.",
        )
    return str(host.disk_volume_group)


def disk_pool(host: Values) -> dict[str, t.Any] | None:
    """Return the pool where the disk backend keeps the disks, for the option ``disk_pool`` of modules; None for files and volume groups.

    :raises InvalidInput: it needs one, and a setting is missing
    """
    if not STORE_TYPES[host.disk_backend].is_shared:
        return None
    pool = {name: getattr(host, "disk_rbd_" + name) for name in ("pool", "monitors", "user", "fsid", "key")}
    lacking = ["bootflow_disk_rbd_" + name for name, value in pool.items() if not value]
    if lacking:
        raise errors.InvalidInput(
            message="bootflow_disk_backend is %s, and %s is not set" % (host.disk_backend, lacking[0]),
            remedy="Set %s in the inventory (host_vars, group_vars) or where -e sets it." % ", ".join(lacking),
        )
    return {**pool, "monitors": list(pool["monitors"])}


def disk_place(host: Values) -> str:
    """Return a word for where local disks are: an instance can go from host to host with its disks where this is the same."""
    backend = str(host.disk_backend)
    return "%s:%s/%s" % (backend, host.disk_rbd_fsid, host.disk_rbd_pool) if STORE_TYPES[backend].is_shared else backend


def libvirt_arguments(action: OnHost) -> dict[str, t.Any]:
    """Return the arguments with which modules connect to the current host's libvirt."""
    host = read_current_host(action)
    return {"libvirt_uri": host.libvirt_uri, "libvirt_timeout": host.libvirt_timeout}


def underlay_arguments(action: OnHost, hosts: t.Sequence[str]) -> dict[str, t.Any]:
    """Return the arguments that join the VXLAN networks of the current host with these hosts.

    An address of another host that is none is handed over as it is: the module refuses it, and names it.
    """
    settings = host_variables.settings_of(action.task_vars["hostvars"], hosts)
    addresses = {_as_address(settings[host].get(HOST.named("vxlan_address").variable)) for host in hosts}
    own = read_current_host(action).vxlan_address
    return {"vxlan_address": own, "vxlan_peers": sorted(addresses - {"", own})}


def vlan_arguments(action: OnHost) -> dict[str, t.Any]:
    """Return the arguments by which modules know the physical networks of the current host."""
    return {"physical_interface_mappings": read_current_host(action).physical_interface_mappings}


def check_underlay(hostvars: t.Mapping[str, t.Mapping[str, t.Any]], hosts: t.Iterable[str], problems: Problems) -> None:
    """Add to ``problems`` underlay addresses of hosts that cannot be together. An address that is wrong by itself is left to check()."""
    variable = HOST.named("vxlan_address").variable
    addresses = {host: _as_address(hostvars[host].get(variable)) for host in hosts}
    usable = {host: address for host, address in addresses.items() if _is_address(address)}
    with problems.collect(variable):
        check_together(usable)


def _is_address(value: str) -> bool:
    try:
        return bool(check_underlay_address(value))
    except errors.InvalidInput:
        return False


def _as_address(value: t.Any) -> str:
    """Return an address of the underlay in its usual form, or unchanged where it is none."""
    try:
        return check_underlay_address(value) if value else ""
    except errors.InvalidInput:
        return str(value)


def cleanup_arguments(action: OnHostOfLedger) -> dict[str, t.Any]:
    """Arguments of the module instance_cleanup on the current host, without the instances."""
    host = read_current_host(action)
    return {
        **libvirt_arguments(action),
        "instances_path": host.instances_path,
        "ledger_id": action.ledger_id(),
        "whole_disk_clear": host.whole_disk_clear,
        "volume_group": volume_group(host),
        "disk_pool": disk_pool(host),
        "volume_clear": host.disk_volume_clear,
        "volume_clear_size_mb": host.disk_volume_clear_size_mb,
    }


def node_info_arguments(action: OnHostOfLedger, configuration: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Arguments of the module compute_node_info on the current host. :arg configuration: see configuration()."""
    host = read_current_host(action)
    return {
        **libvirt_arguments(action),
        "instances_path": host.instances_path,
        "ledger_id": action.ledger_id(),
        "virt_type": host.virt_type,
        "pci_device_spec": configuration["pci_device_spec"],
        "isolated_disks": configuration["isolated_disks"],
        "disk_backend": host.disk_backend,
        "volume_group": volume_group(host),
        "disk_pool": disk_pool(host),
        "disk_medium": host.disk_medium,
        "volume_attach": host.volume_attach,
        "cpu_flags": list(host.cpu_model_extra_flags),
        "firewall_driver": host.firewall_driver,
        "vxlan_address": host.vxlan_address,
        "physical_interface_mappings": host.physical_interface_mappings,
    }


def resumes(action: OnHost, host: str) -> bool:
    """Whether the guests of ``host`` run again after its restart."""
    return bool(
        WATCHED.read(host_variables.of_host(action.task_vars["hostvars"], host)).resume_guests_state_on_host_boot
    )


def at_once(most: int, items: int) -> int:
    """Return how many of ``items`` are worked on at once. :arg most: 0: all."""
    return max(1, min(most, items) if most > 0 else items)


def workers(action: OnHost, builds: int) -> int:
    """Return how many builds the current host works on at once: Nova's max_concurrent_builds, 0 for all."""
    return at_once(read_current_host(action).max_concurrent_builds, builds)
