# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A playbook of the collection that another playbook runs with the inventory of a fleet.

molecule's playbooks have the inventory of the scenario. The compute hosts must not be in it: a play of the scenario with all hosts would work on them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.legible import legible

ENVIRONMENT = "BOOTFLOW_INVENTORY"
#: Of the scenario, for its own hosts.
_NOT_OF_THE_FLEET = ("ANSIBLE_CONFIG", "ANSIBLE_INVENTORY", "ANSIBLE_FORCE_COLOR", "PY_COLORS", "FORCE_COLOR")
_CONFIG = "ansible.cfg"


def find_inventories(named: t.Sequence[str], base: str) -> list[str]:
    """Return the paths of the inventories. :arg named: bootflow_molecule_inventory. :arg base: what relative paths begin with

    :raises InvalidInput: none is named, or one does not exist.
    """
    if not named:
        raise errors.InvalidInput(
            message="no inventory of a fleet is named: neither bootflow_molecule_inventory nor %s is set" % ENVIRONMENT,
            remedy="Set %s to the inventory with the compute hosts, for example: export %s=/etc/bootflow/hosts.yml"
            % (ENVIRONMENT, ENVIRONMENT),
        )
    paths = [os.path.join(base, os.path.expanduser(path)) for path in named]
    for path in paths:
        if not os.path.exists(path):
            raise errors.InvalidInput(
                message="the inventory of the fleet %s does not exist" % path,
                remedy="Correct bootflow_molecule_inventory, or %s." % ENVIRONMENT,
            )
    return paths


def run(
    playbook: str,
    inventories: t.Sequence[str],
    variables: t.Mapping[str, t.Any],
    check_mode: bool,
    say: t.Callable[[str], None],
) -> None:
    """Run a playbook of the collection. :arg playbook: its name. :arg say: gets each line that it prints

    :raises FleetRunFailed: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="bootflow-molecule-") as folder:
        path = os.path.join(folder, "variables.json")
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(variables, stream)
        argv = [*_program(), "bootflow.compute.%s" % playbook, "-e", "@%s" % path]
        for inventory in inventories:
            argv += ["-i", inventory]
        argv += ["--check"] if check_mode else []
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(os.environ, inventories[0]),
            encoding="utf-8",
            errors="replace",
        )
        with t.cast("t.IO[str]", process.stdout) as output:
            for line in output:
                say(legible(line.rstrip("\n")))
        status = process.wait()
    if status:
        raise errors.FleetRunFailed(playbook="bootflow.compute.%s" % playbook, status_code=status)


def _program() -> list[str]:
    """Return the program ansible-playbook that runs this, or the one of the path."""
    if os.path.basename(sys.argv[0]) == "ansible-playbook" and os.path.exists(sys.argv[0]):
        return [sys.executable, sys.argv[0]]
    return [shutil.which("ansible-playbook") or "ansible-playbook"]


def _environment(environment: t.Mapping[str, str], inventory: str) -> dict[str, str]:
    """Return the environment of the run. It has the ansible.cfg of the inventory's folder, where there is one, and not the scenario's."""
    folder = inventory if os.path.isdir(inventory) else os.path.dirname(inventory)
    config = os.path.join(folder, _CONFIG)
    return {
        **{name: value for name, value in environment.items() if name not in _NOT_OF_THE_FLEET},
        **({"ANSIBLE_CONFIG": config} if os.path.exists(config) else {}),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "bootflow.compute.concise",
    }
