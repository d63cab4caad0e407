# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventory plugin bootflow.compute.instances: the guests of the ledger as hosts of Ansible."""

from __future__ import annotations

DOCUMENTATION = r"""
---
name: instances
short_description: Instances of the ledger as hosts
version_added: "0.9.0"
author: bootflow.compute authors (@bootflow)
description:
  - Reads instances from the ledger, which it never changes, and adds them as hosts to the group O(group).
  - The name of the inventory file ends in C(bootflow.yml) or C(bootflow.yaml).
  - Each host has the variable C(bootflow_instance), with the fields that M(bootflow.compute.instance_info) returns, and the
    variables of the connection.
  - With O(compute_hosts) and O(storage_hosts), hosts of the fleet are in groups by their state.
  - Text of the ledger, such as the metadata of an instance, is never evaluated as a template.
  - >-
    Whoever boots an instance chooses its name and its metadata. An instance is left out with a warning when a play that means
    another machine could reach it by its name: C(localhost) and every form of an IP address, characters of host patterns, names
    with dots outside of O(domains), and names of hosts and groups, and addresses of hosts, of all inventories of the run,
    whether they are read before this one or after it. Case and the difference of C(-) and C(_) do not count.
  - >-
    O(keyed_groups) does not put instances into groups that have other hosts, into C(bootflow_compute), C(bootflow_storage), C(all) and
    the like, or into groups with the name of a host. O(groups) does, as the file alone names these groups.
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
notes:
  - Of the variables that options are read from, only extra variables (C(-e)) exist while Ansible reads inventories.
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [bootflow.compute.instances]
  projects:
    description: Only instances of these projects. Without it, instances of all projects.
    type: list
    elements: str
  vm_states:
    description: Only instances in these states, such as V(active) or V(stopped).
    type: list
    elements: str
    default: [active]
  metadata:
    description: Only instances whose metadata has all of these items. A key without a value fits whatever the value is.
    type: dict
  hosts:
    description: Only instances on these compute hosts.
    type: list
    elements: str
  networks:
    description: Only instances with a port on one of these networks, by name.
    type: list
    elements: str
  names:
    description:
      - Only instances with these names, of which alone the ledger is read.
      - C(ansible-inventory --host NAME) reads the instance of that name alone, where O(hostname) is V(name) and nothing is cached.
    type: list
    elements: str
  fields:
    description:
      - Only these fields in C(bootflow_instance), such as V([host, metadata]). Without it, all of them.
      - Expressions of O(compose), O(groups) and O(keyed_groups) see these fields only. Ansible copies all that each host has.
    type: list
    elements: str
  group:
    description: The group of all instances.
    type: str
    default: instances
  hostname:
    description:
      - What names a host. V(project_name) is C(project.name).
      - Of two instances with one name, both are left out with a warning. Names are unique within a project only.
    type: str
    choices: [name, project_name, uuid, domain_name]
    default: name
  domains:
    description:
      - Domains in which names of instances may be, such as V(guests.example.org).
      - An instance with a dot in its name is left out unless its name ends in one of them, as it may be the name of another machine.
    type: list
    elements: str
    default: []
  address_networks:
    description:
      - Connect to the address on the first of these networks that the instance has a port on.
      - Without it, to the first address of the instance.
    type: list
    elements: str
  ip_version:
    description: Connect to an address of this version. Without it, to one of version 4 if there is one.
    type: int
    choices: [4, 6]
  via:
    description:
      - How Ansible reaches an instance.
      - V(direct) connects to its address.
      - >-
        V(jump) connects to its address by SSH through its compute host, with the user, address, port, key and arguments that
        Ansible has for that host. The compute hosts have to be in an inventory of the same run (C(-i hosts.yml -i
        guests.bootflow.yml)). The login to the compute host is by key. To an instance on a host with the connection
        C(local) it is direct.
      - >-
        V(agent) runs commands by the QEMU guest agent through libvirt of the compute host, without any network of the guest.
        The controller needs the collection C(community.libvirt) and Python's libvirt, the guest the agent and an image with
        C(hw_qemu_guest_agent=yes).
    type: str
    choices: [direct, jump, agent]
    default: direct
  service_down_time:
    description:
      - With O(compute_hosts) and O(storage_hosts), a host whose last report is older than this many seconds is down.
      - Read from the variable C(bootflow_service_down_time), else V(900).
    type: float
  compute_hosts:
    description:
      - Add compute hosts that the ledger knows, with C(bootflow_compute_host) (state, zone, total and free memory, vCPUs, disk).
      - Their groups are C(compute_hosts_up), C(compute_hosts_down) and C(compute_hosts_disabled).
    type: bool
    default: false
  storage_hosts:
    description:
      - Add storage hosts that the ledger knows, with C(bootflow_storage_host), whose C(backends) each have C(up), total and free space.
      - Their groups are C(storage_hosts_up) and C(storage_hosts_down).
    type: bool
    default: false
"""

EXAMPLES = r"""
---
# guests.bootflow.yml, of the guests of one project, each reached through its compute host:
# ansible -i hosts.yml -i guests.bootflow.yml instances -m ansible.builtin.ping
plugin: bootflow.compute.instances
ledger_url: postgresql://bootflow@ledger.example.org/bootflow
projects: [web]
via: jump
compose:
  ansible_user: "'debian'"
keyed_groups:
  - key: bootflow_instance.metadata.role
    prefix: role
groups:
  small: bootflow_instance.flavor == 'm1.small'
"""

import os
import re
import socket
import typing as t

from ansible import context
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.template import trust_as_template

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.inventory_names import (
    RESERVED,
    fold,
    objection,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.nearest import suggestion
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import LEDGER, READING
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.scheduling import SCHEDULER
from ansible_collections.bootflow.compute.plugins.module_utils.core.times import utc
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database, replica
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    hypervisors,
    instances,
    nodes,
    views,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress, normalise_url
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volume_views
from ansible_collections.bootflow.compute.plugins.plugin_utils.devices.ssh_connections import HOST, JUMP, known_host
from ansible_collections.bootflow.compute.plugins.plugin_utils.inventory.guest_variables import (
    PlainValues,
    compiled_once,
    set_variable,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.inventory.other_inventories import (
    OtherInventories,
    reading_later_inventories,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import read_settings

Data = t.Dict[str, t.Any]

ENDINGS = ("bootflow.yml", "bootflow.yaml")

#: Of bootflow_instance.
FIELDS = frozenset(
    "name uuid project user reservation_id vm_state task_state locked_by locked_reason power_state host node domain_name availability_zone flavor image"
    " key_name ssh_host_key metadata tags description access_ip_v4 access_ip_v6 disk_config extra config_drive addresses ports created_at updated_at"
    " launched_at age seconds fault server_group numa_topology pci_devices whole_disks".split()
)

HOST_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,2}")

AGENT = HOST + (
    "{%- set uri = host.bootflow_libvirt_uri | default('qemu:///system') -%}"
    "{%- if here -%}{{ uri }}{%- else -%}"
    "{%- set path, _mark, query = uri.partition('?') -%}"
    "{%- set queries = [query, 'keyfile=' ~ (key | urlencode) if key else '', 'no_verify=1' if not known else ''] -%}"
    "qemu+ssh://{{ (user | urlencode) ~ '@' if user else '' }}{{ '[' ~ address ~ ']' if ':' in address else address }}"
    "{{ ':' ~ port if port else '' }}/{{ path.rpartition('/')[2] }}"
    "{{ '?' ~ queries | select | join('&') if queries | select else '' }}"
    "{%- endif -%}"
)


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]  # Ansible has no types
    NAME = "bootflow.compute.instances"
    inventory: t.Any

    def verify_file(self, path: str) -> bool:
        return bool(super().verify_file(path)) and path.endswith(ENDINGS)

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        if reading_later_inventories():  # on behalf of another file of this plugin
            for name in (self.get_option("group"), *(self.get_option("groups") or ())):
                self.inventory.add_group(name)
            return
        self._check_fields()
        self._others = OtherInventories(inventory, loader, path, self.display.warning)
        try:
            content = self._content(path, cache)
        except errors.BootflowError as e:
            raise AnsibleParserError("%s. %s" % (e.message.rstrip("."), e.remedy)) from e
        self._values = PlainValues()
        with compiled_once(self.templar), database.no_garbage_sought():
            self._add_all(content)

    def _check_fields(self) -> None:
        """:raises AnsibleParserError: an instance has no such field"""
        unknown = [str(name) for name in self.get_option("fields") or () if name not in FIELDS]
        if unknown:
            raise AnsibleParserError(
                "fields: an instance has no field %s. %s"
                % (unknown[0], suggestion(unknown[0], FIELDS, "The list of fields"))
            )

    def _add_all(self, content: Data) -> None:
        self._add_instances(content["instances"], content.get("fleet", ()))
        for host in content["compute_hosts"]:
            self._add_host(host["host"], "compute_hosts", _state(host), {"bootflow_compute_host": host})
        for name, backends in content["storage_hosts"].items():
            state = "up" if any(b["up"] for b in backends) else "down"
            self._add_host(
                name, "storage_hosts", state, {"bootflow_storage_host": {"host": name, "backends": backends}}
            )

    # --- the ledger -------------------------------------------------------------------------------------------------

    def _content(self, path: str, cache: bool) -> Data:
        """Return the content of the ledger, or of Ansible's cache of it."""
        use_cache = bool(self.get_option("cache"))
        key = self.get_cache_key(path)
        if use_cache and cache:
            try:
                return t.cast("Data", self._cache[key])
            except KeyError:
                pass
        content = self._read()
        if use_cache:
            self._cache[key] = content
        return content

    def _read(self) -> Data:
        own = LEDGER.options()
        arguments = {**own, **READING.options(), "service_down_time": SCHEDULER.options()["service_down_time"]}
        given = {name: self._text(self.get_option(name)) for name in arguments}
        values = read_settings(arguments, given, (self._vars or {}).get)
        settings = {n[len("ledger_") :]: values[n] for n in own if n != "ledger_url"}
        address = LedgerAddress(
            url=normalise_url(values["ledger_url"]), application_name="bootflow inventory", **settings
        )
        address.check()
        try:
            if values["ledger_read_url"] is None:
                ledger = database.open_ledger(address, tell=self.display.warning)
            else:
                ledger = replica.open_reader(address, values["ledger_read_url"], self.display.warning)
        except errors.LedgerMissing as e:
            self.display.warning("No instances. %s." % e.message.rstrip("."))
            return {"instances": [], "fleet": [], "compute_hosts": [], "storage_hosts": {}}
        for text in ledger.warnings:
            self.display.warning(text)
        run = this_run.identify(os.getpid(), this_run.controller_name(), "")
        try:
            reader = ledger.for_run(Context(run=run, request_id="req-%s" % run.id))
            return reader.inspect(self._read_all, values["service_down_time"])
        finally:
            ledger.close()

    def _text(self, value: t.Any) -> t.Any:
        """An option of the file, which may be a template (a lookup of a password, an extra variable)."""
        if not isinstance(value, str):
            return value
        self.templar.available_variables = self._vars or {}
        return self.templar.template(value)

    def _read_all(self, tx: Transaction, service_down_time: float) -> Data:
        projects, hosts = self.get_option("projects"), self.get_option("hosts")
        rows = instances.select_live(
            tx,
            names=self._names(),
            project=projects[0] if projects and len(projects) == 1 else None,
            host=hosts[0] if hosts and len(hosts) == 1 else None,
        )
        states = set(self.get_option("vm_states"))
        wanted = [
            row
            for row in rows
            if row.vm_state in states
            and (projects is None or row.project in projects)
            and (hosts is None or row.host in hosts)
            and _has(row.spec["metadata"], self.get_option("metadata") or {})
        ]
        shown = views.instance_views(tx, wanted)
        networks = self.get_option("networks")
        if networks is not None:
            shown = [view for view in shown if any(port["network"] in networks for port in view["ports"])]
        backends = volume_views.backends(tx)
        known = {*nodes.hosts(tx), *(backend["host"] for backend in backends)}
        content: Data = {"instances": shown, "fleet": sorted(known), "compute_hosts": [], "storage_hosts": {}}
        if self.get_option("compute_hosts"):
            content["compute_hosts"] = hypervisors.views(tx, sorted(nodes.hosts(tx)), service_down_time)
        if self.get_option("storage_hosts"):
            since = utc(tx.now - service_down_time) or ""
            for backend in backends:
                up = not backend["error"] and (backend["reported_at"] or "") >= since
                content["storage_hosts"].setdefault(backend["host"], []).append({**backend, "up": up})
        return content

    def _names(self) -> list[str] | None:
        """Return the names of the instances to read; None: of all."""
        names = self.get_option("names")
        asked = context.CLIARGS.get("host")  # of ansible-inventory, which prints nothing of other hosts
        if not asked or self.get_option("hostname") != "name" or self.get_option("cache"):
            return t.cast("list[str] | None", names)
        return [asked] if names is None or asked in names else []

    # --- the inventory ----------------------------------------------------------------------------------------------

    def _add_instances(self, instance_views: t.Sequence[Data], fleet: t.Sequence[str]) -> None:
        """:arg fleet: compute and storage hosts, which another inventory that is read later may add."""
        group = self.inventory.add_group(self.get_option("group"))
        # What may be named so although no inventory of this run has it: this controller, and the fleet.
        near = {*RESERVED, *map(fold, fleet), fold(socket.gethostname()), fold(socket.gethostname().partition(".")[0])}
        known = near | self._others.names() | {fold(name) for name in (group, *(self.get_option("groups") or ()))}
        no_groups = frozenset(near | self._others.names_closed_to_guests() | {fold(group)})
        named: dict[str, list[Data]] = {}
        for view in instance_views:
            named.setdefault(self._name(view), []).append(view)
        nowhere = []
        for name, same in named.items():
            reason = self._objection(name, same, known)
            if reason is not None:
                self.display.warning(reason)
                continue
            variables = self._variables(same[0])
            if variables is None:
                nowhere.append(name)
                continue
            self.inventory.add_host(name, group=group)
            self._set(name, variables, no_groups)
        if nowhere:
            self.display.warning("Instances without an address to connect to are left out: %s" % ", ".join(nowhere))

    def _objection(self, name: str, same: t.Sequence[Data], known: t.Container[str]) -> str | None:
        """Say why the instances of a name are left out. None: there is one, and it can be a host of that name."""
        remedy = "Set hostname to project_name or uuid, or projects to the ones of interest."
        if len(same) > 1:
            return "%d instances have the name %s: left out. %s" % (len(same), name, remedy)
        if fold(name) in known:
            return "The inventory has a host or group %s: left out. %s" % (name, remedy)
        how = self.get_option("hostname")
        chosen = same[0]["name"] if how == "project_name" else None
        reason = objection(name, self.get_option("domains"), chosen) if how != "uuid" else None
        if reason is None:
            return None
        remedy = (
            "Set hostname to uuid." if "domain" not in reason else "Add its domain to domains, or set hostname to uuid."
        )
        return "The name %s of an instance %s: left out. %s" % (name, reason, remedy)

    def _name(self, view: Data) -> str:
        how = self.get_option("hostname")
        return "%(project)s.%(name)s" % view if how == "project_name" else str(view[how])

    def _variables(self, view: Data) -> Data | None:
        """The variables of the host that an instance is. None: it has no address to connect to."""
        fields = self.get_option("fields")
        shown = view if fields is None else {name: view[name] for name in view if name in fields}
        if self.get_option("via") == "agent":
            return {
                "bootflow_instance": shown,
                "ansible_connection": "community.libvirt.libvirt_qemu",
                "ansible_host": view["domain_name"],
                "ansible_libvirt_uri": trust_as_template(AGENT),
            }
        address = self._address(view["addresses"])
        if address is None:
            return None
        variables = {"bootflow_instance": shown, "ansible_host": address}
        known = known_host(view)
        if self.get_option("via") == "jump":
            variables["ansible_ssh_common_args"] = trust_as_template(known + "{{ ' ' }}" + JUMP if known else JUMP)
        elif known:
            variables["ansible_ssh_common_args"] = known
        return variables

    def _address(self, addresses: t.Sequence[Data]) -> str | None:
        networks, version = self.get_option("address_networks"), self.get_option("ip_version")
        fit = [
            a for a in addresses if (networks is None or a["network"] in networks) and version in (None, a["version"])
        ]
        fit.sort(key=lambda a: (networks.index(a["network"]) if networks else 0, a["version"]))
        return fit[0]["ip_address"] if fit else None

    def _add_host(self, name: str, group: str, state: str, variables: Data) -> None:
        """A host of the fleet, which another inventory of the run may have, too."""
        self.inventory.add_host(name, group=self.inventory.add_group("%s_%s" % (group, state)))
        self._set(name, variables)

    def _set(self, name: str, variables: Data, no_groups: frozenset[str] = frozenset()) -> None:
        """:arg no_groups: groups that no value of O(keyed_groups) opens, as :func:`fold` has them."""
        for key, value in variables.items():
            if isinstance(value, dict):
                set_variable(self.inventory, name, key, self._values.plain(value))
            else:
                self.inventory.set_variable(name, key, self._values.plain(value))
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        keys = self.get_option("keyed_groups")
        parents = {
            fold(str(key["parent_group"])) for key in keys or () if isinstance(key, dict) and key.get("parent_group")
        }
        inventory = self.inventory
        self.inventory = guarded = _OpenGroups(inventory, no_groups, frozenset(parents))
        try:
            self._add_host_to_keyed_groups(keys, variables, name, strict=strict)
        finally:
            self.inventory = inventory
        for group in sorted(guarded.refused):
            self.display.warning(
                "keyed_groups does not put the instance %s into the group %s, which is not a group of instances. "
                "Set a prefix, or name the group in groups." % (name, group)
            )


class _OpenGroups:
    """An inventory in which values of instances open no group that is another one's.

    :arg closed: names of such groups, as :func:`fold` has them.
    :arg parents: names of parent groups, which the file has and no instance.
    """

    def __init__(self, inventory: t.Any, closed: frozenset[str], parents: frozenset[str]):
        self._inventory, self._closed, self._parents = inventory, closed, parents
        self.refused: set[str] = set()

    def get_host(self, name: str) -> t.Any:
        return self._inventory.get_host(name)

    def add_group(self, name: str) -> str:
        if fold(name) in self._closed and fold(name) not in self._parents:
            self.refused.add(name)
            return name
        return str(self._inventory.add_group(name))

    def add_host(self, name: str, group: str) -> str:
        if fold(group) in self._closed or fold(group) in self._parents:
            self.refused.add(group)
        return name if group in self.refused else str(self._inventory.add_host(name, group))

    def add_child(self, parent: str, child: str) -> bool:
        if {parent, child} & self.refused and not (fold(parent) in self._parents and child not in self.refused):
            return False
        try:
            return bool(self._inventory.add_child(parent, child))
        except AnsibleError:  # values of two instances that make each group the other's parent
            self.refused.add(parent)
            return False


def _state(host: Data) -> str:
    return str(host["status"] if host["state"] == "up" and host["status"] == "disabled" else host["state"])


def _has(metadata: t.Mapping[str, str], wanted: t.Mapping[str, t.Any]) -> bool:
    return all(k in metadata and (v is None or metadata[k] == str(v)) for k, v in wanted.items())
