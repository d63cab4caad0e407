# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules of the collection are loaded on the controller as Python loads any other: compiled once, kept in __pycache__.

Ansible's loader of collections compiles each of them from its source at every start, and a run has hundreds. The first of our
plugins that is loaded loads this package. Hosts never get it: an AnsiballZ has an empty file in its place.

With an older ansible-core than the collection needs, no plugin is loaded: the error names the release. Ansible itself only warns
(requires_ansible in meta/runtime.yml), and imports fail in words that say nothing.

What is loaded stays until the run ends. It is kept from Python's garbage collector, which would walk through all of it while it is
loaded, in each worker that a task forks, and when the run ends: a sixth of the time of a boot that has nothing to do.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import sys
import typing as t
from importlib.machinery import ModuleSpec, SourceFileLoader

PREFIX = __name__ + "."
LEAST_ANSIBLE_CORE = "2.19.4"  # requires_ansible in meta/runtime.yml


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers of a release: 2.19.4 of 2.19.4rc1, and of 2.19.4.dev0."""
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])


class Loader(SourceFileLoader):
    """Loads a module, and the modules that it needs."""

    def exec_module(self, module: t.Any) -> None:
        if not gc.isenabled():  # the module that needs this one does the rest
            super().exec_module(module)
            return
        gc.disable()
        try:
            super().exec_module(module)
        finally:
            gc.freeze()
            gc.enable()


class CompiledModules:
    """Finds modules of this package that are files. Packages, and which of several collections paths has them, stay Ansible's."""

    def find_spec(self, name: str, path: t.Sequence[str] | None, target: t.Any = None) -> ModuleSpec | None:
        if not name.startswith(PREFIX) or not path:
            return None
        file = os.path.join(path[0], name.rpartition(".")[2] + ".py")
        if not os.path.isfile(file):
            return None
        return importlib.util.spec_from_file_location(name, file, loader=Loader(name, file))


class TooOld:
    """Refuses what the plugins stand on, where ansible-core is ``release``.

    An error of this package itself would be one more cause for which Ansible looks for a module elsewhere.
    """

    def __init__(self, release: str):
        self.release = release

    def find_spec(self, name: str, path: t.Sequence[str] | None, target: t.Any = None) -> None:
        if name.startswith((PREFIX + "plugin_utils", PREFIX + "module_utils")):
            from ansible.errors import AnsibleError

            raise AnsibleError(
                "bootflow.compute needs ansible-core %s or newer, and this is %s. Remedy: Run Ansible from a virtual environment, as the README"
                " has it: python3 -m venv ~/bootflow-env; . ~/bootflow-env/bin/activate; pip install 'ansible-core>=%s'. That needs Python 3.11 or"
                " newer." % (LEAST_ANSIBLE_CORE, self.release, LEAST_ANSIBLE_CORE)
            )


for _place, _finder in enumerate(sys.meta_path):
    if (
        type(_finder).__name__ == "_AnsibleCollectionFinder"
    ):  # else Python itself loads this package, or ansible-test restricts it
        sys.meta_path.insert(_place, CompiledModules())
        _release = getattr(
            sys.modules.get("ansible.release"), "__version__", ""
        )  # "" where ansible-test restricts imports
        if _release and _numbers(_release) < _numbers(LEAST_ANSIBLE_CORE):
            sys.meta_path.insert(0, TooOld(_release))
        elif _release:
            from .plugin_utils.startup import unneeded_plays

            unneeded_plays.hide()
        break
