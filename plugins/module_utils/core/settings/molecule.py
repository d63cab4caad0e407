# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of the playbooks molecule_create and molecule_destroy."""

from __future__ import annotations

from ..reading.setting import ABSOLUTE, FILLED, PATH, Setting, Table

MOLECULE = Table(
    (
        Setting(
            "molecule_inventory",
            list,
            (),
            "Playbooks `molecule_create` and `molecule_destroy`: inventories with the compute hosts, the catalogue and the ledger of the fleet. Also read"
            " from the environment variable `BOOTFLOW_INVENTORY`.",
            option="inventory",
        ),
        Setting(
            "molecule_run",
            FILLED,
            help="Playbooks `molecule_create` and `molecule_destroy`: what the job is called, where it is destroyed on another machine than it was created on."
            " Also read from the environment variable `BOOTFLOW_MOLECULE_RUN`.",
            default_text="this machine and MOLECULE_EPHEMERAL_DIRECTORY",
            option="run",
        ),
        Setting(
            "molecule_user",
            FILLED,
            help="Playbook `molecule_create`: who logs in to guests whose platform has no `user`.",
            default_text="the user of Ansible",
            option="user",
        ),
        Setting(
            "molecule_private_key_file",
            PATH,
            help="Playbook `molecule_create`: the private SSH key for guests whose platform has no `identity_file`.",
            default_text="the keys of ssh",
            option="private_key_file",
        ),
        Setting(
            "molecule_via",
            str,
            "jump",
            "Playbook `molecule_create`: how guests are reached, `jump` through their compute hosts, or `direct`.",
            choices=("jump", "direct"),
            option="via",
        ),
        Setting(
            "molecule_wait",
            int,
            600,
            "Playbook `molecule_create`: how long it waits until the guests answer.",
            least=1,
            unit="seconds",
            option="wait",
        ),
    )
)

#: Given by molecule_create to the playbook that it runs with the fleet's inventory.
GUESTS_FILE = Table(
    (
        Setting(
            "molecule_guests_file",
            ABSOLUTE,
            help="Given by the playbook `molecule_create` to the one that it runs: the file that gets how the guests are reached.",
            option="path",
            required=True,
        ),
    )
)
