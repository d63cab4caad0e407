# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of the playbook apply."""

from __future__ import annotations

from ..apply.fields import ALLOWABLE
from ..reading.setting import Setting, Table, names_of

#: what boot's stages read of it
FOLLOW = Table(
    (
        Setting(
            "follow_file",
            bool,
            False,
            "Set by the playbook `apply` for its boots (instances that ran stay as they are, whatever the request says of them), resizes (each gets the"
            " flavor of its entry) and rebuilds (each gets the image and the key pair of its entry).",
        ),
    )
)

APPLY = Table(
    (
        Setting(
            "apply_allow",
            names_of(ALLOWABLE),
            (),
            "Playbook `apply`: what may be done with every instance beyond what can be done live, see [apply.md](apply.md): `resize`, `rebuild`,"
            " `restart`. An entry allows it for its own instances (`allow`).",
            option="allow",
        ),
        Setting(
            "prune",
            bool,
            False,
            "Playbook `apply`: delete the instances of the project that the file does not have.",
        ),
        Setting(
            "prune_max",
            int,
            10,
            "Playbook `apply`: where more instances would be deleted, nothing is done, and the playbook fails.",
            least=0,
        ),
    )
)
