# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Targets of LIO in the kernel, through rtslib in this process: secrets are never on a command line.

source: Cinder's LIO target and its rtstool (Queens); rtslib-fb
"""

from __future__ import annotations

import importlib
import json
import os
import stat
import typing as t

from ...core.errors import CommandFailed
from ...core.optional import optional_import, require
from ...core.volumes.names import LUN_OF_TARGET, normal_name, portal, split_portal
from ..os.files import write_json
from ..os.paths import make_dirs
from .target import Export, Found, check_path, create_failed

rtslib: t.Any = optional_import("rtslib_fb")

ALL_ADDRESSES = "0.0.0.0:3260"
#: Access requires an ACL, discovery returns a target only to initiators with an ACL, and LIO does not store generated ACLs.
ATTRIBUTES: t.Mapping[str, str] = {
    "generate_node_acls": "0",
    "cache_dynamic_acls": "0",
    "demo_mode_discovery": "0",
    "demo_mode_write_protect": "1",
}


def save_file_of(library: t.Any) -> str:
    """Return the file from which this rtslib (Debian and others differ) restores the targets."""
    name = getattr(library, "__name__", "rtslib_fb") + ".root"
    try:
        module = importlib.import_module(name)
    except ImportError:
        module = None
    return str(getattr(module, "default_save_file", "") or "/etc/target/saveconfig.json")


class LioTarget:
    """LIO on this host.

    :raises MissingLibrary: rtslib is not installed for this Python.
    """

    name = "lio"
    lun = LUN_OF_TARGET["lio"]

    def __init__(self, save_file: str = "", library: t.Any = None) -> None:
        self.library = library or rtslib
        require(self.library, "rtslib_fb (Python)", "python3-rtslib-fb", "host")
        self.save_file = save_file or save_file_of(self.library)
        self._root: t.Any = None

    @property
    def root(self) -> t.Any:
        if self._root is None:
            self._root = self.library.RTSRoot()  # loads the kernel modules and mounts configfs if needed
        return self._root

    # ---- what there is -------------------------------------------------------------------------------------------------

    def iqns(self) -> set[str]:
        names: set[str] = set()
        for configuration in (self.root.dump(), self._saved()[0]):
            names.update(normal_name(str(item.get("wwn"))) for item in configuration.get("targets") or ())
            names.update(normal_name(str(item.get("name"))) for item in configuration.get("storage_objects") or ())
        return names

    def read(self, exports: t.Sequence[Export]) -> dict[str, Found]:
        dump = self.root.dump()
        saved, mode = self._saved()
        wanted = {export.iqn: export.volume_id for export in exports}
        targets = {normal_name(item["wwn"]): item for item in dump["targets"]}
        stores = {normal_name(item["name"]): item for item in dump["storage_objects"]}
        sessions = self._sessions(wanted)
        result = {}
        for iqn in sorted(wanted):
            kept_stores, kept_targets = part_of(saved, iqn)
            if iqn in targets or iqn in stores or kept_stores or kept_targets:
                aspects = self._aspects_of(targets.get(iqn), stores.get(iqn))
                # Compares only relevant values, because a restore changes orders and numbers.
                saved_aspects = (
                    self._aspects_of(kept_targets[0], kept_stores[0]) if kept_stores and kept_targets else {}
                )
                result[iqn] = Found(
                    iqn,
                    aspects,
                    sessions=tuple(sorted(sessions.get(iqn, ()))),
                    saved=bool(aspects) and saved_aspects == aspects and mode == 0o600,
                    # The name from _make_store(); others let the kernel choose a number.
                    ours=wanted[iqn] in [item.get("wwn") for item in [stores.get(iqn, {}), *kept_stores]],
                )
        return result

    def _sessions(self, wanted: t.Collection[str]) -> dict[str, list[str]]:
        initiators_of: dict[str, list[str]] = {}
        for target in self.root.targets:
            if target.fabric_module.name == "iscsi" and normal_name(target.wwn) in wanted:
                acls = [acl for tpg in target.tpgs for acl in tpg.node_acls]
                initiators_of[normal_name(target.wwn)] = [acl.node_wwn for acl in acls if acl.session]
        return initiators_of

    def _saved(self) -> tuple[dict[str, t.Any], int]:
        try:
            with open(self.save_file, encoding="utf-8") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                data = json.load(file)
        except (OSError, ValueError):
            return {}, 0
        return (data if isinstance(data, dict) else {}), mode

    def _aspects_of(
        self, target: t.Mapping[str, t.Any] | None, store: t.Mapping[str, t.Any] | None
    ) -> dict[str, t.Any]:
        if target is None or store is None or len(target["tpgs"]) != 1:
            return {}
        tpg = target["tpgs"][0]
        own = "/backstores/%s/%s" % (store["plugin"], store["name"])
        luns = {(item["index"], item["storage_object"]) for item in tpg["luns"]}
        chap = {
            normal_name(acl["node_wwn"]): (acl.get("chap_userid") or "", acl.get("chap_password") or "")
            for acl in tpg["node_acls"]
        }
        mapped = all(
            [(item["index"], item["tpg_lun"], bool(item["write_protect"])) for item in acl["mapped_luns"]]
            == [(self.lun, self.lun, False)]
            for acl in tpg["node_acls"]
        )
        attributes = {key: str(tpg["attributes"].get(key)) for key in (*ATTRIBUTES, "authentication")}
        return {
            "path": store["dev"],
            "plugin": store["plugin"],
            "write_cache": bool(store.get("write_back")) if store["plugin"] == "fileio" else None,
            "luns": luns == {(self.lun, own)} and mapped,
            "initiators": tuple(sorted(normal_name(acl["node_wwn"]) for acl in tpg["node_acls"])),
            "chap": {name: pair if pair != ("", "") else None for name, pair in chap.items()},
            "portals": tuple(sorted(_portal_of(item) for item in tpg["portals"])),
            "attributes": attributes,
            "enabled": bool(tpg["enable"]),
        }

    def aspects(self, export: Export) -> dict[str, t.Any]:
        is_file = os.path.isfile(export.path)
        chap = {normal_name(name): pair for name, pair in export.credentials.items()}
        return {
            "path": export.path,
            "plugin": "fileio" if is_file else "block",
            # A block device has the cache of its queue; LIO does not accept another value.
            "write_cache": export.write_cache if is_file else None,
            "luns": True,
            "initiators": tuple(sorted(chap)),
            "chap": chap,
            "portals": tuple(sorted(export.portals or (ALL_ADDRESSES,))),
            # Without credentials access also requires an ACL.
            "attributes": dict(ATTRIBUTES, authentication="1" if any(chap.values()) or not chap else "0"),
            "enabled": True,
        }

    def is_saved(self, export: Export, target_state: Found) -> bool:
        return bool(target_state.saved)

    # ---- change --------------------------------------------------------------------------------------------------------

    def apply(self, export: Export, target_state: Found | None) -> None:
        has = target_state.aspects if target_state else {}
        desired = self.aspects(export)
        if any(has.get(aspect) != desired[aspect] for aspect in ("path", "plugin", "luns")):
            # Missing, or not convertible.
            has = {}
            self._delete(export.iqn)
        store = self._store(export) or self._make_store(export, desired)
        if desired["write_cache"] is not None and has.get("write_cache") not in (None, desired["write_cache"]):
            store.set_attribute("emulate_write_cache", str(int(desired["write_cache"])))
        target = self.library.Target(self.library.FabricModule("iscsi"), export.iqn)
        tpg = self.library.TPG(target, 1)
        if has.get("attributes") != desired["attributes"]:
            for name, value in desired["attributes"].items():
                tpg.set_attribute(name, value)
        luns = {lun.lun: lun for lun in tpg.luns}
        lun = luns.get(self.lun) or self.library.LUN(tpg, self.lun, storage_object=store)
        self._set_acls(export, tpg, lun, desired)
        self._set_portals(export, tpg, desired)
        if not tpg.enable:
            tpg.enable = True

    def _store(self, export: Export) -> t.Any:
        return next((store for store in self.root.storage_objects if normal_name(store.name) == export.iqn), None)

    def _make_store(self, export: Export, desired: t.Mapping[str, t.Any]) -> t.Any:
        size = check_path(export)
        # The id of the volume as unit serial: the disk has the same identity on every host.
        if desired["plugin"] == "fileio":
            return self.library.FileIOStorageObject(
                export.iqn, export.path, size, wwn=export.volume_id, write_back=bool(desired["write_cache"])
            )
        return self.library.BlockStorageObject(export.iqn, export.path, wwn=export.volume_id)

    def _set_acls(self, export: Export, tpg: t.Any, lun: t.Any, desired: t.Mapping[str, t.Any]) -> None:
        acl_of_name = {normal_name(acl.node_wwn): acl for acl in tpg.node_acls}
        for name, acl in acl_of_name.items():
            if name not in desired["chap"]:
                acl.delete()  # LIO ends its session
        for name, pair in desired["chap"].items():
            user, secret = pair or ("", "")
            acl = acl_of_name.get(name) or self.library.NodeACL(tpg, name, mode="create")
            if (acl.chap_userid or "", acl.chap_password or "") != (user, secret):
                acl.chap_userid, acl.chap_password = user, secret
            if not list(acl.mapped_luns):
                self.library.MappedLUN(acl, self.lun, self.lun)

    def _set_portals(self, export: Export, tpg: t.Any, desired: t.Mapping[str, t.Any]) -> None:
        portal_of_address = {
            portal(network_portal.ip_address.strip("[]"), network_portal.port): network_portal
            for network_portal in tpg.network_portals
        }
        for where, network_portal in portal_of_address.items():
            if where not in desired["portals"]:
                network_portal.delete()
        for where in desired["portals"]:
            if where not in portal_of_address:
                address, port = split_portal(where)
                try:
                    self.library.NetworkPortal(tpg, "[%s]" % address if ":" in address else address, port)
                except Exception as error:
                    raise create_failed(
                        export,
                        "portal %s: %s" % (where, error),
                        "Use an address of this host, and a port that no other service (such as tgt) has.",
                    ) from None

    def remove(self, export: Export, target_state: Found) -> None:
        self._delete(export.iqn)

    def _delete(self, iqn: str) -> None:
        for target in list(self.root.targets):
            if target.fabric_module.name == "iscsi" and normal_name(target.wwn) == iqn:
                target.delete()
        for store in list(self.root.storage_objects):
            if normal_name(store.name) == iqn:
                store.delete()

    def save(self, exports: t.Sequence[Export]) -> None:
        """Save only our parts of the configuration; parts of others are kept as saved.

        :raises CommandFailed: the saved configuration is not JSON of LIO.
        """
        try:
            with open(self.save_file, encoding="utf-8") as file:
                saved = json.load(file)
            stores, targets = list(saved["storage_objects"]), list(saved["targets"])
        except FileNotFoundError:
            saved, stores, targets = {"fabric_modules": []}, [], []
        except (ValueError, KeyError, TypeError) as error:
            raise CommandFailed(
                cmd="reading %s" % self.save_file, rc=1, stderr="the file does not contain a configuration: %s" % error
            ) from None
        dump = self.root.dump()
        ours = {export.iqn for export in exports}
        stores = [item for item in stores if normal_name(str(item.get("name"))) not in ours]
        targets = [item for item in targets if normal_name(str(item.get("wwn"))) not in ours]
        for iqn in sorted(ours):
            now = part_of(dump, iqn)
            stores.extend(now[0])
            targets.extend(now[1])
        make_dirs(os.path.dirname(self.save_file), 0o700)
        write_json(self.save_file, dict(saved, storage_objects=stores, targets=targets), mode=0o600)


def part_of(configuration: t.Mapping[str, t.Any], iqn: str) -> tuple[list[t.Any], list[t.Any]]:
    """Return (backstores, targets) of one iqn in a dump of LIO or in a saved configuration."""
    stores = [item for item in configuration.get("storage_objects") or () if normal_name(str(item.get("name"))) == iqn]
    targets = [item for item in configuration.get("targets") or () if normal_name(str(item.get("wwn"))) == iqn]
    return stores, targets


def _portal_of(portal_facts: t.Mapping[str, t.Any]) -> str:
    return portal(str(portal_facts["ip_address"]).strip("[]"), int(portal_facts["port"]))
