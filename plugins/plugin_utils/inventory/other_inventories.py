# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts and groups of the inventories of a run besides the one that is read, whether read before it or after it."""

from __future__ import annotations

import os
import sys
import typing as t

from ansible import context
from ansible.errors import AnsibleError
from ansible.inventory.manager import IGNORED, InventoryManager
from ansible.utils.path import unfrackpath

from ...module_utils.core.instances.inventory_names import fold

_reading = False


def reading_later_inventories() -> bool:
    """Whether the inventories are read for their names only; no guests are wanted then."""
    return _reading


class OtherInventories:
    """The hosts and groups of all inventories of a run but the guests' own.

    Ansible merges hosts of one name, and variables of the one that is read later win. An inventory plugin sees only what was read before, so
    the inventories that follow are read here as well. Ansible's loader has their files in memory then.

    :arg inventory: what Ansible has read so far.
    :arg path: the file that is being read.
    """

    def __init__(self, inventory: t.Any, loader: t.Any, path: str, warn: t.Callable[[str], None]):
        self._read = [inventory]
        later = _later(path)
        if later:
            self._read.append(_names_of(loader, later, warn))

    def names(self) -> set[str]:
        """Names of hosts and groups, and addresses of hosts, in the form of :func:`fold`."""
        names: set[str] = set()
        for inventory in self._read:
            names.update(map(fold, (*inventory.hosts, *inventory.groups)))
            for host in inventory.hosts.values():
                if "bootflow_instance" not in host.vars:
                    addresses = (host.vars.get(name) for name in ("ansible_host", "ansible_ssh_host"))
                    names.update(fold(str(address)) for address in addresses if address)
        return names

    def names_closed_to_guests(self) -> set[str]:
        """Names of hosts, and of groups that have hosts other than guests, in the form of :func:`fold`."""
        names: set[str] = set()
        for inventory in self._read:
            names.update(map(fold, inventory.hosts))
            for name, group in inventory.groups.items():
                if any("bootflow_instance" not in host.vars for host in group.get_hosts()):
                    names.add(fold(name))
        return names


def _names_of(loader: t.Any, sources: list[str], warn: t.Callable[[str], None]) -> t.Any:
    global _reading
    _reading = True
    try:
        return InventoryManager(loader, sources=sources)
    except AnsibleError as e:
        warn("Names of instances are not compared with the inventories %s: %s" % (", ".join(sources), e))
        return InventoryManager(loader, sources=[], parse=False)
    finally:
        _reading = False


def _later(path: str) -> list[str]:
    """The sources that Ansible reads after a file, as it finds them in folders."""
    sources: list[str] = []
    seen = False
    for source in _sources():
        if seen:
            sources.append(source)
            continue
        seen, sources = _after(source if "," in source else unfrackpath(source, follow=False), path)
    return sources


def _after(source: str, path: str) -> tuple[bool, list[str]]:
    """Return whether a source is the file or a folder with it, and the files that Ansible reads of the source after it."""
    if source == path:
        return True, []
    if not os.path.isdir(source):
        return False, []
    names = sorted(name for name in os.listdir(source) if not IGNORED.search(os.fsencode(name)))
    for number, name in enumerate(names):
        inside, files = _after(os.path.join(source, name), path)
        if inside:
            return True, files + [os.path.join(source, other) for other in names[number + 1 :]]
    return False, []


def _sources() -> list[str]:
    """Return the sources of the run: the sources of the manager that is reading, as also programs without a command line have one."""
    frame: t.Any = sys._getframe()
    while frame is not None:
        manager = frame.f_locals.get("self")
        if isinstance(manager, InventoryManager) and isinstance(getattr(manager, "_sources", None), (list, tuple)):
            return [str(source) for source in manager._sources if source]
        frame = frame.f_back
    return [str(source) for source in context.CLIARGS.get("inventory") or () if source]
