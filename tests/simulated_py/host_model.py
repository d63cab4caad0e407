# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules of the collection do on a compute host, on a model of it: domains, folders of instances, networks and addresses.

The state is plain data. Marks of folders, conditions of removals and outcomes of items are those of the modules' own rules (core, hosts/os/batch.py).
"""

from __future__ import annotations

import hashlib
import time
import typing as t
import uuid as uuid_module

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.adopt.description import describe
from ansible_collections.bootflow.compute.plugins.module_utils.core.amounts import GIB, MIB
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.document import read_filters
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.nftables import render
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.namespaces import (
    NOVA_NAMESPACE,
    OWNER_NAMESPACE,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import move_mark
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import (
    POWER_PAUSED,
    RUNNING,
    SHUTDOWN,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.on_hosts import HostNetwork

Arguments = t.Mapping[str, t.Any]
Result = t.Dict[str, t.Any]
MAKER = "bootflow.compute"
CONFIG_DRIVE = "disk.config"
_NOVA = "{%s}" % NOVA_NAMESPACE


class HostModel:
    """One host. Each method is the work of a module: arguments in, result out.

    :arg state: what empty() returned, and methods changed.
    :arg item_faults: by the name of a module, the error of each of its items.
    """

    def __init__(
        self, name: str, state: dict[str, t.Any], item_faults: t.Mapping[str, errors.BootflowError] | None = None
    ):
        self.name = name
        self.facts: dict[str, t.Any] = state["facts"]
        self.domains: dict[str, dict[str, t.Any]] = state["domains"]
        self.folders: dict[str, dict[str, t.Any]] = state["folders"]
        self.networks: dict[str, dict[str, t.Any]] = state["networks"]
        self.filters: dict[str, str] = state["filters"]
        self.volumes: dict[str, int] = state.setdefault("volumes", {})  # sizes in GiB of logical volumes
        self.targets: list[str] = state.setdefault("targets", [])  # volumes
        self.swapped: list[str] = state.setdefault("swapped", [])  # attachments whose guests have gone over to them
        self.files: dict[str, dict[str, str]] = state["files"]  # of stores of images: directory -> image id -> sha256
        self.images: dict[str, t.Any] = state["images"]  # that came from other hosts: whom they would have come from
        self.item_faults = item_faults or {}

    @staticmethod
    def empty(name: str) -> dict[str, t.Any]:
        """The state of a host without guests. Tests change its facts: ``bridges`` are names, ``libvirt_networks``
        and ``ovn`` (integration bridges) have whether each is active."""
        ids = [str(uuid_module.uuid5(uuid_module.NAMESPACE_DNS, name + each)) for each in ("", ".boot")]
        facts = {
            "hypervisor_hostname": name,
            "host_uuid": ids[0],
            "boot_id": ids[1],
            "memory_mb": 16384,
            "vcpus": 8,
            "local_gb": 400,
            "arch": "x86_64",
        }
        return {"facts": facts, "domains": {}, "folders": {}, "networks": {}, "filters": {}, "files": {}, "images": {}}

    # --- what a host reports ------------------------------------------------------------------------------------------

    def compute_node_info(self, arguments: Arguments) -> Result:
        facts, arch = dict(self.facts), self.facts["arch"]
        running = [uuid for uuid, domain in self.domains.items() if domain["power_state"] != SHUTDOWN]
        sizes = {uuid: size_of(domain["xml"]) for uuid, domain in self.domains.items()}
        ledger = arguments["ledger_id"]
        folders = {u: f for u, f in self.folders.items() if not ledger or f["ledger"] in ("", ledger)}
        local = sum(sum(folder["disks"].values()) for folder in self.folders.values()) // GIB
        domains = [self._domain_facts(uuid) for uuid in sorted(self.domains, key=lambda u: self.domains[u]["name"])]
        built = {d["uuid"] for d in domains if d["ours"] and (not ledger or d.get("ledger", "") in ("", ledger))}
        complete = [
            u
            for u in sorted({*folders, *built})
            if move_mark.is_complete(folders.get(u, {}).get("mark", ""), u in built)
        ]
        del facts["arch"]
        bridges, there = facts.pop("bridges", ()), facts.pop("libvirt_networks", {})
        of_ovn = facts.pop("ovn", {})
        facts.pop("arp", None)
        stats = {"firewall_driver": "nftables"} if arguments.get("firewall_driver") == "nftables" else {}
        node = {
            **facts,
            "host_ip": "",
            "memory_mb_used": sum(sizes[u][0] for u in running),
            "vcpus_used": sum(sizes[u][1] for u in running),
            "local_gb_used": local,
            "disk_available_least": facts["local_gb"] - local,
            "hypervisor_type": "QEMU",
            "hypervisor_version": 10000000,
            "libvirt_version": 11003000,
            "cpu_info": {
                "arch": arch,
                "model": "EPYC",
                "vendor": "AMD",
                "features": ["aes", "avx2"],
                "topology": {"sockets": 1, "cores": facts["vcpus"], "threads": 1, "cells": 1},
            },
            "numa_topology": None,
            "supported_instances": [[arch, "kvm", "hvm"], [arch, "qemu", "hvm"]],
            "pci_passthrough_devices": [],
            "isolated_disks": [],
            "metrics": {},
            "emulators": {arch: "/usr/bin/qemu-system-%s" % arch},
            "machine_types": {arch: ["pc", "pc-q35-9.0", "q35"]},
            "uefi": True,
            "cpu_models": ["EPYC"],
            "unknown_cpu_flags": [],
            "initiator": facts.get("initiator"),
            "qemu_iscsi": False,
            "networks": {
                "bridge": [{"name": name, "active": True} for name in bridges],
                "ovn": [{"name": name, "active": active} for name, active in of_ovn.items()],
                "network": [
                    {"name": name, "active": active, "autostart": active}
                    for name, active in {**there, **dict.fromkeys(self.networks, True)}.items()
                ],
            },
            "stats": {"disk_backend": arguments["disk_backend"], **stats},
            "virt_type": "kvm",
            "virt_type_reason": "simulated",
            "guest_content": [],
            "domains": domains,
            "at_work": [],
            "instance_folders": sorted(folders),
            "complete_guests": complete,
            "running_domains": len(running),
        }
        more: Result = {}
        if arguments["iqn_prefixes"]:
            more["iscsi"] = {"sessions": [], "secrets": [], "error": None}
        if arguments["list_reservations"]:
            more["dhcp"] = {"networks": self._reservations(), "unplugged": [], "error": None}
        return {"changed": False, "compute_node": node, **more}

    def _domain_facts(self, uuid: str) -> dict[str, t.Any]:
        domain = self.domains[uuid]
        xml = parsed(domain["xml"])
        memory_mb, vcpus = size_of(domain["xml"])
        instance, owner = xml.find("metadata/%sinstance" % _NOVA), xml.find("metadata/{%s}owner" % OWNER_NAMESPACE)
        ours = instance is not None and xml.findtext("sysinfo/system/entry[@name='manufacturer']") == MAKER
        found = {
            "uuid": uuid,
            "name": domain["name"],
            "power_state": domain["power_state"],
            "memory_mb": memory_mb,
            "vcpus": vcpus,
            "ours": ours,
        }
        if owner is not None and owner.get("ledger"):
            found["ledger"] = owner.get("ledger")
            flavor = instance.find("%sflavor" % _NOVA) if ours and instance is not None else None
            if flavor is not None:
                sizes = [flavor.findtext(_NOVA + each) or "0" for each in ("disk", "ephemeral")]
                found["disk_gb"] = sum(map(int, sizes))
        return found

    def _reservations(self) -> list[dict[str, t.Any]]:
        macs = {
            str(each.get("address")).lower()
            for domain in self.domains.values()
            for each in parsed(domain["xml"]).iterfind("devices/interface/mac")
        }
        return [
            {
                "name": name,
                "ours": network["ours"],
                "reservations": [
                    {"mac": mac, "address": address, "complete": True, "used": mac in macs}
                    for mac, address in sorted(network["reservations"].items())
                ],
            }
            for name, network in sorted(self.networks.items())
        ]

    def domain_info(self, _arguments: Arguments) -> Result:
        states = {uuid: domain["power_state"] for uuid, domain in self.domains.items()}
        return {"changed": False, "power_states": states, "boot_id": self.facts["boot_id"], "at_work": []}

    def domain_adoption(self, arguments: Arguments) -> Result:
        from xml.etree.ElementTree import SubElement, tostring

        if arguments["state"] == "described":
            named = arguments["names"]
            found = [
                self._foreign(uuid, domain)
                for uuid, domain in self.domains.items()
                if named is None or {uuid, domain["name"]} & set(named)
            ]
            shown = [f for f in found if named is not None or f.get("made_by") != "bootflow"]
            shown.sort(key=lambda f: (f["name"], f["uuid"]))
            return {"changed": False, "domains": shown, "outcomes": {}}

        def mark(uuid: str) -> Result:
            wanted = arguments["ledger_id"] if arguments["state"] == "adopted" else ""
            if uuid not in self.domains and not wanted:
                return {"changed": False}
            domain = self._domain(uuid, "The domain is gone from the host.")
            root = parsed(domain["xml"])
            place, owner = root.find("metadata"), root.find("metadata/{%s}owner" % OWNER_NAMESPACE)
            before = "" if owner is None else owner.get("ledger")
            if before not in ("", arguments["ledger_id"]):
                raise errors.Conflict(message="the domain of instance %s is another ledger's" % uuid)
            if owner is not None:
                place.remove(owner)
            if wanted:
                place = SubElement(root, "metadata") if place is None else place
                SubElement(place, "{%s}owner" % OWNER_NAMESPACE, {"ledger": wanted, "adopted": "yes"})
            domain["xml"] = tostring(root, encoding="unicode")
            return {"changed": before != wanted}

        done = self._batch("domain_adoption", {u: u for u in arguments["uuids"]}, mark)
        return {"changed": done["changed"], "outcomes": done["outcomes"]}

    def _foreign(self, uuid: str, domain: Arguments) -> Result:
        """What the module says of a domain. A disk has 3 GiB; a source below /srv is on another file system."""
        try:
            found = describe(domain["xml"])
        except errors.BootflowError as error:
            return {"uuid": uuid, "name": domain["name"], "error": error.as_dict()}
        for disk in found["disks"]:
            disk.update(size=3 * GIB, local=disk["type"] == "file" and not disk["source"].startswith("/srv"))
        leases = {
            mac: address for network in self.networks.values() for mac, address in network["reservations"].items()
        }
        for interface in found["interfaces"]:
            interface["addresses"] = [leases[interface["mac"]]] if interface["mac"] in leases else []
            interface["addresses"] += self.facts.get("arp", {}).get(interface["mac"], [])
        now = {"persistent": True, "saved": False, "snapshots": 0, "jobs": [], **domain.get("libvirt", {})}
        return {**found, "power_state": domain["power_state"], **now}

    def domain_console(self, arguments: Arguments) -> Result:
        def one(uuid: str) -> Result:
            domain = self._domain(uuid, "The domain is gone from the host: bootflow.compute.audit shows that.")
            vnc = {"listen": "127.0.0.1", "port": 5900} if domain["power_state"] == RUNNING else None
            lines = domain["console"][-arguments["lines"] :]
            return {"console": lines, "vnc": vnc, "power_state": domain["power_state"]}

        return self._batch("domain_console", {u: u for u in arguments["uuids"]}, one)

    # --- what builds --------------------------------------------------------------------------------------------------

    def instance_build(self, arguments: Arguments) -> Result:
        """The parts, each of the instances that came through those before."""
        parts: dict[str, t.Any] = {}
        stopped: set[str] = set()
        for part, (work, items) in _PARTS.items():
            mine = {**arguments, items: [i for i in arguments[items] if i.get("uuid") not in stopped]}
            parts[part] = {**work(self, mine), "seconds": 0.0}
            ended = {key for key, outcome in parts[part]["outcomes"].items() if outcome["error"]}
            if part == "networks":
                ended = {u for u, names in (arguments.get("networks_of") or {}).items() if ended & set(names)}
            stopped |= ended
        return {"changed": any(part["changed"] for part in parts.values()), "parts": parts}

    def virtual_network(self, arguments: Arguments) -> Result:
        def network(wanted: Arguments) -> Result:
            kind, source = wanted.get("type") or "network", wanted.get("source") or wanted["name"]
            define = bool(wanted.get("manage")) and source not in self.networks
            if not wanted.get("manage"):
                there = {
                    "bridge": dict.fromkeys(self.facts.get("bridges", ()), True),
                    "ovn": dict.fromkeys(self.facts.get("ovn", ()), True),  # guests keep it without a connection
                    "network": {**self.facts.get("libvirt_networks", {}), **dict.fromkeys(self.networks, True)},
                }
                needed = HostNetwork(kind, source, wanted["name"])
                lack = needed.lack(there)
                if lack:
                    raise needed.refusal(lack, self.name)
            if define:
                self.networks[source] = {"ours": True, "reservations": {}}
            bridge = source if kind == "bridge" else "virbr1"
            found = {"type": kind, "source": source, "bridge": bridge, "defined": define, "started": define}
            return {**found, "changed": define}

        made = self._batch("virtual_network", {n["name"]: n for n in arguments["networks"]}, network)
        wanted = {r["mac"]: r for r in arguments.get("reservations") or ()}
        reserved = self._batch("virtual_network", wanted, lambda r: {"changed": self._reserve(r)})
        return {
            "changed": made["changed"] or reserved["changed"],
            "outcomes": made["outcomes"],
            "reservations": reserved["outcomes"],
        }

    def port_filters(self, arguments: Arguments) -> Result:
        filters = read_filters(arguments["document"])
        before, after = self.filters.get("nftables", ""), render(filters)
        self.filters["nftables"] = after
        return {
            "changed": before != after,
            "superseded": False,
            "revision": filters.revision,
            "present": [],
            "diff": {"before": before, "after": after},
        }

    def _reserve(self, wanted: Arguments) -> bool:
        network = self.networks.get(wanted["network"])
        if network is None:
            raise errors.NetworkNotFound(message="Network not found: no network with name %s" % wanted["network"])
        found: dict[str, str] = network["reservations"]
        if found.get(wanted["mac"].lower()) == wanted["address"]:
            return False
        found[wanted["mac"].lower()] = wanted["address"]
        return True

    def instance_disks(self, arguments: Arguments) -> Result:
        images = {i["id"]: {"changed": False, "virtual_size": GIB, "path": ""} for i in arguments.get("images") or ()}

        def disks(wanted: Arguments) -> Result:
            folder = self._folder(wanted["uuid"], arguments.get("ledger_id") or "")
            if not folder["mark"] and wanted.get("made_at"):
                folder["mark"] = move_mark.made_at(wanted["made_at"])
            sizes = {d["name"]: (d.get("size_gb") or 0) * GIB + (d.get("size_mb") or 0) * MIB for d in wanted["disks"]}
            if wanted.get("replacement"):
                folder["replacement"] = wanted["disks"][0]["image_id"]
                return {"changed": True, "disks": []}
            changed = not sizes.keys() <= folder["disks"].keys()
            folder["disks"] = {**sizes, **folder["disks"]}
            found = [
                {"name": name, "path": name, "format": "qcow2", "virtual_size": size} for name, size in sizes.items()
            ]
            return {"changed": changed, "disks": found}

        made = self._batch("instance_disks", {i["uuid"]: i for i in arguments["instances"]}, disks)
        return {
            **made,
            "image_outcomes": {i: {**outcome, "error": None} for i, outcome in images.items()},
            "missing_images": [],
        }

    def config_drive(self, arguments: Arguments) -> Result:
        def drive(wanted: Arguments) -> Result:
            folder = self._folder(wanted["uuid"])
            changed = CONFIG_DRIVE not in folder["disks"]
            folder["disks"].setdefault(CONFIG_DRIVE, MIB)
            return {"changed": changed, "path": wanted.get("path"), "format": "iso9660", "size": MIB}

        return self._batch("config_drive", {d["uuid"]: d for d in arguments["drives"]}, drive)

    def domain(self, arguments: Arguments) -> Result:
        def define(wanted: Arguments) -> Result:
            uuid, before = wanted["uuid"], self.domains.get(wanted["uuid"])
            taken = {d["name"] for u, d in self.domains.items() if u != uuid}
            names = [n for n in (wanted["name"], *(wanted.get("spare_names") or ())) if n not in taken]
            if not names:
                raise errors.LibvirtError(reason="domain '%s' already exists with another uuid" % wanted["name"])
            state = {"running": RUNNING, "paused": POWER_PAUSED}.get(wanted.get("state") or "running")
            was = before["power_state"] if before else SHUTDOWN
            defines = before is None or before["xml"] != wanted["xml"]
            starts = state is not None and (was == SHUTDOWN or bool(wanted.get("restart")))
            console = [*(before["console"] if before else []), *(["%s starts" % wanted["name"]] if starts else [])]
            now = state if starts and state is not None else was
            self.domains[uuid] = {
                "name": before["name"] if before else names[0],
                "xml": wanted["xml"],
                "power_state": now,
                "console": console,
            }
            reserved = [r["address"] for r in wanted.get("reservations") or () if self._reserve(r)]
            if wanted.get("ends_build", True) and uuid in self.folders:
                self.folders[uuid]["mark"] = move_mark.arrived(self.folders[uuid]["mark"])
            return {
                "name": self.domains[uuid]["name"],
                "power_state": now,
                "changed": defines or starts,
                "defined": defines,
                "started": starts,
                "resumed": False,
                "differences": [],
                "reserved": reserved,
                "console_match": None,
                "vifs_missing": [],
                "seconds": 0.0,
            }

        return self._batch("domain", {d["uuid"]: d for d in arguments["domains"]}, define)

    # --- what is done with guests ---------------------------------------------------------------------------------------

    def domain_power(self, arguments: Arguments) -> Result:
        state = arguments["state"]

        def power(wanted: Arguments) -> Result:
            domain = self._domain(wanted["uuid"], "The domain is gone from the host.")
            was = domain["power_state"]
            if was == SHUTDOWN and state in ("paused", "unpaused", "suspended", "interrupted"):
                raise errors.LibvirtError(reason="guest %s is shut down" % domain["name"])
            now = {
                "running": RUNNING if was == SHUTDOWN else was,
                "shutdown": SHUTDOWN,
                "suspended": SHUTDOWN,
                "paused": POWER_PAUSED,
                "unpaused": RUNNING,
            }.get(state, was)
            found = {"changed": now != was or state in ("rebooted", "interrupted"), "forced": False, "seconds": 0.0}
            domain["power_state"] = now
            if state == "rebooted":
                found["restarted"] = now == RUNNING
            return {**found, "power_state": now}

        return self._batch("domain_power", {d["uuid"]: d for d in arguments["domains"]}, power)

    def domain_migration(self, arguments: Arguments) -> Result:
        """A guest goes as the text of its definition: its source tells it, its destination keeps it until the gate is closed."""
        step = arguments["step"]

        def describe(uuid: str) -> Result:
            domain = self._domain(uuid, "The domain is gone from the host.")
            disks = self.folders.get(uuid, {}).get("disks", {})
            record = {"format": "qcow2", "kind": "image", "base": ""}
            leaving = [
                {"name": n, "target": n, "allocated": size // 10, "record": {**record, "virtual_size": size}}
                for n, size in sorted(disks.items())
                if n != CONFIG_DRIVE
            ]
            guest = {"name": domain["name"], "power_state": domain["power_state"], "cpu": domain["xml"]}
            guest.update(cpu_of_host=False, virt_type="kvm", arch="x86_64", machine="pc", drive=CONFIG_DRIVE in disks)
            return {"guest": {**guest, "hypervisor_version": 1, "libvirt_version": 1, "disks": leaving, "volumes": []}}

        def prepare(wanted: Arguments) -> Result:
            uuid, guest = wanted["uuid"], wanted["guest"]
            if uuid in self.folders or uuid in self.domains:
                raise errors.Conflict(message="%s has something of instance %s already" % (self.name, uuid))
            folder = self._folder(uuid, arguments["ledger_id"])
            folder["mark"] = wanted["made_for"]
            folder["disks"] = {d["name"]: d["record"]["virtual_size"] for d in guest["disks"]}
            if guest["drive"]:
                folder["disks"][CONFIG_DRIVE] = MIB
            folder["arriving"] = {"name": guest["name"], "xml": guest["cpu"], "power_state": RUNNING, "console": []}
            return {"changed": True, "devices": {}}

        def migrate(wanted: Arguments) -> Result:
            was = self.domains.pop(wanted["uuid"])["power_state"]
            sent = {"seconds": 1.0, "downtime": 0.1, "transferred": MIB, "forced": False}
            return {"changed": True, "left": True, "power_state": was, **sent}

        def arrive(uuid: str) -> Result:
            folder = self.folders[uuid]
            self.domains[uuid] = folder.pop("arriving")
            folder["mark"] = move_mark.arrived(folder["mark"])
            return {"changed": True}

        called = "domain_migration"
        if step == "describe":
            return self._batch(called, {u: u for u in arguments["uuids"]}, describe)
        if step == "prepare":
            prepared = self._batch(called, {g["uuid"]: g for g in arguments["arriving_guests"]}, prepare)
            return {**prepared, "port": arguments["first_port"], "fingerprint": "0" * 64}
        if step == "migrate":
            return self._batch(called, {g["uuid"]: g for g in arguments["departing_guests"]}, migrate)
        arrived = self._batch(called, {u: u for u in arguments["arrived"]}, arrive)
        return {"changed": arrived["changed"], "outcomes": {}}

    def instance_cleanup(self, arguments: Arguments) -> Result:
        def remove(wanted: Arguments) -> Result:
            uuid = wanted["uuid"]
            folder, there = self.folders.get(uuid, {}), uuid in self.domains
            owner, mark = folder.get("ledger", ""), folder.get("mark", "")
            if owner and arguments["ledger_id"] and owner != arguments["ledger_id"]:
                raise errors.Conflict(message="folder %s belongs to another ledger" % uuid)
            if wanted["unfinished"] and move_mark.is_complete(mark, there):
                raise errors.Conflict(message="the build of instance %s has ended on %s" % (uuid, self.name))
            if wanted["made_for"]:
                if mark != wanted["made_for"] and (there or folder.get("disks")):
                    return {"changed": False, "removed": [], "kept": True}
            elif wanted["due_at"] and move_mark.began_at(mark) > wanted["due_at"]:
                raise errors.Conflict(message="instance %s came to %s after this cleanup was due" % (uuid, self.name))
            if wanted.get("without_power") and there and self.domains[uuid]["power_state"] == RUNNING:
                raise errors.Conflict(message="the guest of instance %s has power on %s" % (uuid, self.name))
            removed = []
            domain = self.domains.pop(uuid, None)
            if domain is not None:
                removed.append("domain %s" % domain["name"])
                macs = [
                    str(each.get("address")).lower() for each in parsed(domain["xml"]).iterfind("devices/interface/mac")
                ]
                for network in self.networks.values():
                    for mac in macs:
                        network["reservations"].pop(mac, None)
            if self.folders.pop(uuid, None) is not None:
                removed.append("folder %s" % uuid)
            return {"changed": bool(removed), "removed": removed}

        return self._batch("instance_cleanup", {i["uuid"]: i for i in arguments["instances"]}, remove)

    # --- images that go from host to host -------------------------------------------------------------------------------

    def image_relay(self, arguments: Arguments) -> Result:
        def offered(image: Arguments) -> Result:
            if image.get("serves") and image.get("path_on_host"):
                folder, _slash, name = image["path_on_host"].rpartition("/")
                if name not in self.files.get(folder, {}):
                    raise errors.ImageNotReadable(image_id=image["name"], reason="%s is gone" % image["path_on_host"])
                return {"state": "whole", "bytes": 5, "port": arguments["first_port"], "fingerprint": "0" * 64}
            state = "has" if self.images.get(image["id"], {}).get("there") else "lacks"
            return {"state": state, "bytes": 0, "port": arguments["first_port"], "fingerprint": "0" * 64}

        def connected(image: Arguments) -> Result:
            self.images[image["id"]] = {"tasks": image["tasks"], "there": False}
            return {}

        def collected(image: Arguments) -> Result:
            tasks = self.images[image["id"]]["tasks"]
            if tasks.get("error"):
                raise errors.from_dict(tasks["error"])
            self.images[image["id"]]["there"] = True
            return {
                "changed": True,
                "bytes": GIB,
                "source": [*tasks["before"], {"name": "web"}][0]["name"],
                "wrong": {},
            }

        one = {"offered": offered, "connected": connected, "collected": collected}[arguments["state"]]
        return self._batch("image_relay", {i["id"]: i for i in arguments["images"]}, one)

    # --- disks that go from host to host --------------------------------------------------------------------------------

    def instance_disks_offer(self, arguments: Arguments) -> Result:
        if arguments["state"] == "absent":
            return {"changed": False, "outcomes": {}, "port": 0, "fingerprint": ""}

        def offer(wanted: Arguments) -> Result:
            disks = self.folders.get(wanted["uuid"], {}).get("disks", {})
            if wanted["has_disks"] and not disks:
                raise errors.InvalidDiskInfo(reason="folder %s has no disks" % wanted["uuid"])
            files = []
            for name, size in sorted(disks.items()):
                record = {"format": "qcow2", "virtual_size": size, "kind": "image", "base": ""}
                its = {"name": name, "size": size, "allocated": size // 10}
                if name not in wanted["left"]:
                    files.append({**its, "record": None if name == CONFIG_DRIVE else record})
            return {"files": files}

        found = self._batch("instance_disks_offer", {i["uuid"]: i for i in arguments["instances"]}, offer)
        return {**found, "port": arguments["first_port"], "fingerprint": "0" * 64}

    def instance_disks_fetch(self, arguments: Arguments) -> Result:
        def fetch(wanted: Arguments) -> Result:
            uuid = wanted["uuid"]
            if uuid in self.folders or uuid in self.domains:
                raise errors.Conflict(message="%s has something of instance %s already" % (self.name, uuid))
            folder = self._folder(uuid, arguments["ledger_id"])
            folder["mark"] = wanted["made_for"]
            folder["disks"] = {f["name"]: f["size"] for f in wanted["files"]}
            folder["disks"].update(wanted["sizes"])
            return {
                "changed": True,
                "disks": [{"name": f["name"], "size": f["size"], "sha256": "0" * 64} for f in wanted["files"]],
            }

        return self._batch("instance_disks_fetch", {i["uuid"]: i for i in arguments["instances"]}, fetch)

    # --- what all of them use -------------------------------------------------------------------------------------------

    # --- volumes ------------------------------------------------------------------------------------------------------

    def storage_backend_info(self, arguments: Arguments) -> Result:
        return {"changed": False, "backends": {b["name"]: self._capacity() for b in arguments["backends"]}}

    def volume_lvm(self, arguments: Arguments) -> Result:
        def volume(wanted: Arguments) -> Result:
            if wanted["state"] == "absent":
                self.volumes.pop(wanted["id"], None)
                return {"changed": True, "action": "remove", "size": 0}
            again = wanted["state"] == "reimaged"
            if again and wanted["id"] in self.targets:
                raise errors.VolumeIsBusy(message="volume-%s is in use" % wanted["id"])
            self.volumes[wanted["id"]] = size = wanted["size_gb"] or 0  # a thin snapshot has none
            return {
                "changed": True,
                "action": "reimage" if again else "create",
                "path": "/dev/x/" + wanted["id"],
                "size": size * GIB,
            }

        result = self._batch("volume_lvm", {v["id"]: v for v in arguments["volumes"]}, volume)
        return {**result, "backend": self._capacity()}

    def iscsi_target(self, arguments: Arguments) -> Result:
        def target(wanted: Arguments) -> Result:
            volume = wanted["volume_id"]
            self.targets[:] = [v for v in self.targets if v != volume]
            if wanted["state"] == "absent":
                return {"changed": True}
            self.targets.append(volume)
            iqn = "iqn.2010-10.org.openstack:volume-" + volume
            return {"changed": True, "iqn": iqn, "lun": 0, "portals": ["192.0.2.1:3260"]}

        return self._batch("iscsi_target", {e["volume_id"]: e for e in arguments["exports"]}, target)

    def iscsi_initiator(self, arguments: Arguments) -> Result:
        def connect(wanted: Arguments) -> Result:
            connected = wanted["state"] != "disconnected"
            return {"changed": True, **({"path": "/dev/disk/by-path/" + wanted["volume_id"]} if connected else {})}

        return self._batch("iscsi_initiator", {c["volume_id"]: c for c in arguments["connections"]}, connect)

    def domain_disk(self, arguments: Arguments) -> Result:
        def disk(wanted: Arguments) -> Result:
            if wanted.get("state") == "swapped":
                self.swapped.append(wanted["id"])
            has_new = wanted["id"] in self.swapped
            return {"changed": True, "swapped": has_new if wanted.get("state") in ("swapped", "settled") else None}

        return self._batch("domain_disk", {d["id"]: d for d in arguments["disks"]}, disk)

    def domain_interface(self, arguments: Arguments) -> Result:
        """Interfaces come and go at once, in the definition and its guest."""

        def plug(wanted: Arguments) -> Result:
            guest = self._domain(wanted["uuid"], "")
            has = 'mac address="%s"' % wanted["mac"] in guest["xml"].replace("'", '"')
            attaches = wanted.get("state", "attached") == "attached"
            if attaches:
                for reservation in wanted.get("reservations") or ():
                    self._reserve(reservation)
                if not has:
                    guest["xml"] = guest["xml"].replace("</devices>", wanted["xml"] + "</devices>")
            elif has:
                guest["xml"] = without_interface(guest["xml"], wanted["mac"])
                self.networks.get(wanted.get("network"), {"reservations": {}})["reservations"].pop(wanted["mac"], None)
            return {"changed": has != attaches, "live": attaches, "config": attaches}

        return self._batch("domain_interface", {i["id"]: i for i in arguments["interfaces"]}, plug)

    def _capacity(self) -> Result:
        used = float(sum(self.volumes.values()))
        return {
            "total_capacity_gb": 100.0,
            "free_capacity_gb": 100.0 - used,
            "provisioned_capacity_gb": used,
            "allocated_capacity_gb": used,
            "thin_provisioning_support": False,
            "boot_id": self.facts["boot_id"],
            "read_at": time.monotonic(),
            "error": None,
        }

    def image_file(self, arguments: Arguments) -> Result:
        """Files of a store of images: of a source only its checksum is known."""
        files = self.files.setdefault(arguments["path"], {})

        def put(image: Arguments) -> Result:
            files[image["id"]] = image["checksum"].rpartition(":")[2]
            size = image["size"] if image.get("giver") else 5
            return {"changed": True, "size": size, "checksum": files[image["id"]]}

        def remove(image_id: str) -> Result:
            return {"changed": files.pop(image_id, None) is not None}

        removed = self._batch("image_file", {i: i for i in arguments["removed"]}, remove)
        written = self._batch("image_file", {i["id"]: i for i in arguments["images"]}, put)
        outcomes = {**removed["outcomes"], **written["outcomes"]}
        return {"changed": removed["changed"] or written["changed"], "outcomes": outcomes}

    def instance_snapshot(self, arguments: Arguments) -> Result:
        """Images of instances: the bytes of each follow from the id of the image."""
        folder = arguments.get("path") or "%s/_snapshots" % arguments["instances_path"]

        def take(wanted: Arguments) -> Result:
            domain = self._domain(wanted["uuid"], "The domain is gone from the host.")
            content = disk_content(wanted["image_id"])
            checksum = hashlib.sha256(content).hexdigest()
            self.files.setdefault(folder, {})[wanted["image_id"]] = checksum
            return {
                "changed": True,
                "power_state": domain["power_state"],
                "disk_format": arguments.get("image_format") or "qcow2",
                "live": domain["power_state"] != SHUTDOWN,
                "quiesced": wanted["quiesce"] != "no",
                "size": len(content),
                "checksum": checksum,
                "path": "%s/%s" % (folder, wanted["image_id"]),
                "seconds": 0.0,
            }

        return self._batch("instance_snapshot", {i["uuid"]: i for i in arguments["instances"]}, take)

    def instance_backup(self, arguments: Arguments) -> Result:
        """Backups of instances: the bytes of each follow from its id. A host without the files of a chain makes a full one."""

        def take(wanted: Arguments) -> Result:
            domain = self._domain(wanted["uuid"], "The domain is gone from the host.")
            folder = "%s/%s" % (arguments["directory"], wanted["uuid"])
            files = self.files.setdefault(folder, {})
            removed = list(wanted["removed"])
            for backup_id in removed:
                files.pop(backup_id + ".qcow2", "")
            live = domain["power_state"] != SHUTDOWN
            reason = wanted["reason"] if live else "the guest does not run"
            if not reason and any(one["file"] not in files for one in wanted["chain"]):
                reason = "the last backup is not usable: its file is missing"
            content = disk_content(wanted["backup_id"])
            file = wanted["backup_id"] + ".qcow2"
            files[file] = hashlib.sha256(content).hexdigest()
            return {
                "changed": True,
                "power_state": domain["power_state"],
                "kind": "full" if reason else "incremental",
                "parent_id": None if reason else wanted["chain"][-1]["id"],
                "reason": reason,
                "live": live,
                "quiesced": False,
                "folder": folder,
                "file": file,
                "size": len(content),
                "virtual_size": GIB,
                "checksum": files[file],
                "checkpoint": "bootflow-" + wanted["backup_id"] if live else "",
                "checkpoint_xml": "<domaincheckpoint/>" if live else "",
                "removed": removed,
                "seconds": 0.0,
            }

        return self._batch("instance_backup", {i["uuid"]: i for i in arguments["instances"]}, take)

    def instance_backup_check(self, arguments: Arguments) -> Result:
        def read(wanted: Arguments) -> Result:
            there = self.files.get(wanted["folder"], {}).get(wanted["file"])
            return {"changed": False, "damage": "" if there == wanted["checksum"] else "its file is another one"}

        return self._batch("instance_backup_check", {b["id"]: b for b in arguments["backups"]}, read)

    def instance_backup_removal(self, arguments: Arguments) -> Result:
        def remove(wanted: Arguments) -> Result:
            folder = wanted["folder"] or "%s/%s" % (arguments["directory"], wanted["uuid"])
            return {"changed": self.files.setdefault(folder, {}).pop(wanted["id"] + ".qcow2", None) is not None}

        return self._batch("instance_backup_removal", {b["id"]: b for b in arguments["backups"]}, remove)

    def instance_backup_image(self, arguments: Arguments) -> Result:
        """Images of backups, as of instances."""
        folder = arguments.get("path") or "%s/_snapshots" % arguments["instances_path"]
        for image_id in arguments.get("failed_images") or ():
            self.files.get(folder, {}).pop(image_id, None)

        def take(wanted: Arguments) -> Result:
            for one in wanted["chain"]:
                if self.files.get(one["folder"], {}).get(one["file"]) != one["checksum"]:
                    raise errors.BackupDamaged(backup_id=one["id"], reason="its file is missing")
            content = disk_content(wanted["image_id"])
            checksum = hashlib.sha256(content).hexdigest()
            self.files.setdefault(folder, {})[wanted["image_id"]] = checksum
            return {
                "changed": True,
                "disk_format": "qcow2",
                "size": len(content),
                "checksum": checksum,
                "path": "%s/%s" % (folder, wanted["image_id"]),
                "seconds": 0.0,
            }

        return self._batch("instance_backup_image", {b["key"]: b for b in arguments["backups"]}, take)

    def domain_quiesce(self, arguments: Arguments) -> Result:
        def quiesce(wanted: Arguments) -> Result:
            domain = self._domain(wanted["uuid"], "The domain is gone from the host.")
            token = {"token": "word"} if arguments["state"] == "frozen" else {}
            return {"changed": True, "power_state": domain["power_state"], "quiesced": True, **token}

        return self._batch("domain_quiesce", {d["uuid"]: d for d in arguments["domains"]}, quiesce)

    def volume_lvm_image(self, arguments: Arguments) -> Result:
        """Images of volumes, as of instances. In check mode nothing is written."""
        folder = arguments.get("path") or arguments["own"]

        def take(wanted: Arguments) -> Result:
            if wanted["id"] not in self.volumes:
                raise errors.VolumeNotFound(volume_id=wanted["id"])
            content = disk_content(wanted["image_id"])
            checksum = hashlib.sha256(content).hexdigest()
            self.files.setdefault(folder, {})[wanted["image_id"]] = checksum
            return {
                "changed": True,
                "disk_format": wanted["disk_format"],
                "size": len(content),
                "checksum": checksum,
                "path": "%s/%s" % (folder, wanted["image_id"]),
                "seconds": 0.0,
            }

        return self._batch("volume_lvm_image", {v["id"]: v for v in arguments["volumes"]}, take)

    def instance_disks_revert(self, arguments: Arguments) -> Result:
        """Root disks that go back to images: ``root_image`` of a folder is the last one."""
        state = arguments["state"]

        def step(wanted: Arguments) -> Result:
            domain, folder = (
                self._domain(wanted["uuid"], "The domain is gone from the host."),
                self.folders[wanted["uuid"]],
            )
            power = {"power_state": domain["power_state"]}
            if state == "checked":
                return {"changed": True, **power}
            image = folder.pop("replacement", None)
            if state == "undone":
                return {"changed": image is not None}
            if domain["power_state"] != SHUTDOWN:
                raise errors.Conflict(message="the guest of instance %s runs with the disk" % wanted["uuid"])
            if image is None:
                raise errors.InvalidDiskInfo(reason="nothing was made to take the place of the disk")
            folder["root_image"] = image
            return {"changed": True, "reverted": True, **power}

        return self._batch("instance_disks_revert", {i["uuid"]: i for i in arguments["instances"]}, step)

    def _folder(self, uuid: str, ledger: str = "") -> dict[str, t.Any]:
        return self.folders.setdefault(uuid, {"mark": "", "ledger": ledger, "disks": {}})

    def _domain(self, uuid: str, remedy: str) -> dict[str, t.Any]:
        if uuid not in self.domains:
            raise errors.InstanceNotFound(instance_id=uuid, remedy=remedy)
        return self.domains[uuid]

    def _batch(self, module: str, items: t.Mapping[str, t.Any], one: t.Callable[[t.Any], Result]) -> Result:
        """The outcome of each item. The items of a module with a fault have its error, and nothing is done with them."""
        outcomes: dict[str, Result] = {}
        for key, item in items.items():
            try:
                if module in self.item_faults:
                    raise self.item_faults[module]
                outcomes[key] = {"changed": False, **one(item), "error": None}
            except errors.BootflowError as e:
                outcomes[key] = {"changed": False, "error": e.between_hosts()}
        return {"changed": any(outcome["changed"] for outcome in outcomes.values()), "outcomes": outcomes}


def disk_content(image_id: str) -> bytes:
    """The bytes of an image of an instance."""
    return ("disk of image %s" % image_id).encode() * 100


def parsed(xml: str) -> t.Any:
    """The root element. The benchmark's hosts build without a look at definitions."""
    from xml.etree import ElementTree

    return ElementTree.fromstring(xml)


def without_interface(xml: str, mac: str) -> str:
    """The domain without the interface that has the MAC address."""
    from xml.etree import ElementTree

    root = parsed(xml)
    devices = root.find("devices")
    assert devices is not None, xml
    for interface in devices.findall("interface"):
        address = interface.find("mac")
        if address is not None and address.get("address") == mac:
            devices.remove(interface)
    return ElementTree.tostring(root, encoding="unicode")


def size_of(xml: str) -> tuple[int, int]:
    """The memory in MiB, and the vCPUs, of a domain."""
    root = parsed(xml)
    memory = root.find("memory")
    assert memory is not None and memory.text is not None, xml
    unit = {"KiB": 1024, "MiB": MIB, "GiB": GIB}[memory.get("unit", "KiB")]
    return int(memory.text) * unit // MIB, int(root.findtext("vcpu") or 1)


# As the parts of the module instance_build: their work, and the option that has their items.
_PARTS: dict[str, tuple[t.Callable[[HostModel, Arguments], Result], str]] = {
    "networks": (HostModel.virtual_network, "networks"),
    "disks": (HostModel.instance_disks, "instances"),
    "drives": (HostModel.config_drive, "drives"),
    "domains": (HostModel.domain, "domains"),
}

#: The modules that the model knows.
MODULES: dict[str, t.Callable[[HostModel, Arguments], Result]] = {
    name: getattr(HostModel, name)
    for name in (
        "compute_node_info",
        "config_drive",
        "domain",
        "domain_adoption",
        "domain_console",
        "domain_disk",
        "domain_info",
        "domain_interface",
        "domain_migration",
        "domain_power",
        "domain_quiesce",
        "image_file",
        "image_relay",
        "instance_backup",
        "instance_backup_check",
        "instance_backup_image",
        "instance_backup_removal",
        "instance_build",
        "instance_cleanup",
        "instance_disks",
        "instance_disks_fetch",
        "instance_disks_offer",
        "instance_disks_revert",
        "instance_snapshot",
        "iscsi_initiator",
        "iscsi_target",
        "port_filters",
        "storage_backend_info",
        "virtual_network",
        "volume_lvm",
        "volume_lvm_image",
    )
}
