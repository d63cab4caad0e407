# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenario that molecule runs a playbook for: its platforms, and the files that molecule and its playbooks read."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.module_utils.common.yaml import yaml_dump, yaml_load

from ...module_utils.core import errors, molecule_platforms
from ...module_utils.core.molecule_platforms import Platform
from ...module_utils.ledger.db import this_run
from ..transport.packed_modules import write_whole

VARIABLES = ("MOLECULE_FILE", "MOLECULE_EPHEMERAL_DIRECTORY", "MOLECULE_INSTANCE_CONFIG", "MOLECULE_INVENTORY_FILE")
INVENTORY = "molecule_guests.yml"  # sorted behind molecule's ansible_inventory.yml, so that its variables count

Guests = t.Mapping[str, t.Mapping[str, t.Any]]


class Scenario:
    """The scenario of the environment.

    :raises InvalidInput: molecule does not run this playbook.
    """

    def __init__(self, environment: t.Mapping[str, str]):
        missing = [name for name in VARIABLES if not environment.get(name)]
        if missing:
            raise errors.InvalidInput(
                message="%s is not set: molecule does not run this playbook" % missing[0],
                remedy="Import it in create.yml or destroy.yml of a scenario, and run molecule (docs/molecule.md).",
            )
        self.file, self.folder, self.instance_config, inventory_file = (environment[name] for name in VARIABLES)
        self.inventory = os.path.join(os.path.dirname(inventory_file), INVENTORY)
        #: What relative paths begin with.
        self.base = environment.get("MOLECULE_PROJECT_DIRECTORY") or os.getcwd()

    def platforms(self, user: str, private_key_file: str) -> list[Platform]:
        """Read the platforms. :arg user: of platforms without one. :arg private_key_file: likewise

        :raises InvalidInput: molecule's file cannot be read, or a platform cannot be booted.
        """
        try:
            with open(self.file, encoding="utf-8") as stream:
                config = yaml_load(stream)
        except (OSError, UnicodeDecodeError, AnsibleError, ValueError) as error:
            raise errors.InvalidInput(
                message="%s cannot be read: %s" % (self.file, error), remedy="Correct molecule.yml."
            ) from None
        except Exception as error:  # of the YAML library, which Ansible hides
            raise errors.InvalidInput(
                message="%s is not valid YAML: %s" % (self.file, error), remedy="Correct molecule.yml."
            ) from None
        return molecule_platforms.read_platforms(config, user, private_key_file)

    def project(self, run: str) -> str:
        """Return the project of the instances. :arg run: what a person calls the job; "": nothing"""
        return molecule_platforms.project_name(run, this_run.controller_name(), self.folder)

    def write(self, platforms: t.Sequence[Platform], guests: Guests, wait: int) -> None:
        """Write molecule's instance config, and the inventory that says how its hosts are reached. :arg wait: seconds until they must answer"""
        for path, content in (
            (self.instance_config, molecule_platforms.instance_config(platforms, guests)),
            (self.inventory, molecule_platforms.inventory(platforms, guests, wait)),
        ):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_whole(Path(path), yaml_dump(content).encode())

    def forget(self) -> None:
        """Remove these files."""
        for path in (self.instance_config, self.inventory):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
