# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of the playbook rebalance."""

from __future__ import annotations

from ..reading.setting import Setting, Table

REBALANCE = Table(
    (
        Setting(
            "rebalance_policy",
            str,
            "spread",
            "Playbook `rebalance`: `spread` makes the hosts equally full, by the weighers in use; `pack` empties as many hosts as possible.",
            choices=("spread", "pack"),
            option="policy",
        ),
        Setting(
            "rebalance_moves",
            int,
            help="Playbook `rebalance`: the most live migrations of a plan.",
            default_text="no limit",
            option="moves",
            least=1,
        ),
        Setting(
            "rebalance_least_gain",
            float,
            0.0,
            "Playbook `rebalance`: the least that a live migration must gain, in points of the score.",
            option="least_gain",
            least=0,
        ),
        Setting(
            "rebalance_tolerance",
            float,
            2.0,
            "Playbook `rebalance`: a fleet with this score, or less, is even. 0: as even as it can be.",
            option="tolerance",
            least=0,
        ),
        Setting(
            "rebalance_keep_instances",
            list,
            (),
            "Playbook `rebalance`: instances that stay where they are, by name or UUID.",
            option="keep_instances",
        ),
        Setting(
            "rebalance_keep_hosts",
            list,
            (),
            "Playbook `rebalance`: compute hosts that no instance leaves or comes to. They do not count in the score.",
            option="keep_hosts",
        ),
    )
)
