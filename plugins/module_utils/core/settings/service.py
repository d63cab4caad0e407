# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of the rolling service of hosts."""

from __future__ import annotations

from ..reading.setting import ABSOLUTE, FILLED, Setting, Table

SERVICE = Table(
    (
        Setting(
            "service_name",
            FILLED,
            "default",
            "Playbook `service`: name of the service. The ledger keeps which hosts it has done: a rerun under the same name leaves them alone.",
            option="name",
        ),
        Setting(
            "service_hosts",
            list,
            help="Playbook `service`: the compute hosts to be serviced, within the limit of the run.",
            default_text="all",
            option="hosts",
        ),
        Setting(
            "service_tasks",
            ABSOLUTE,
            help="Playbook `service`: file with the tasks that service a host (update, reboot), run on the host when it has no instance.",
            option="tasks",
        ),
        Setting(
            "service_role",
            FILLED,
            help="Playbook `service`: role that services a host, instead of tasks.",
            option="role",
        ),
        Setting(
            "service_at_once",
            int,
            1,
            "Playbook `service`: hosts that are serviced together.",
            option="at_once",
            least=1,
        ),
        Setting(
            "service_zone_at_once",
            int,
            1,
            "Playbook `service`: hosts of one availability zone that are serviced together.",
            option="zone_at_once",
            least=1,
        ),
        Setting(
            "service_window",
            int,
            0,
            "Playbook `service`: no host begins that would not be done so long after the begin of the run. 0: there is no end.",
            option="window",
            least=0,
            unit="seconds",
        ),
        Setting(
            "service_host_time",
            int,
            1800,
            "Playbook `service`: how long hosts that are serviced together are expected to take, for the window. What others of the service took counts,"
            " if it was longer.",
            option="host_time",
            least=1,
            unit="seconds",
        ),
        Setting(
            "service_tasks_timeout",
            int,
            3600,
            "Playbook `service`: how long the tasks of a host may take; then they are ended, and the service stops.",
            option="tasks_timeout",
            least=1,
            unit="seconds",
        ),
        Setting(
            "service_report_timeout",
            int,
            900,
            "Playbook `service`: how long a host may take to report after its tasks; then the service stops, and the host stays disabled.",
            option="report_timeout",
            least=1,
            unit="seconds",
        ),
        Setting(
            "service_return",
            bool,
            True,
            "Playbook `service`: instances that left a host for its service return to it. False: they stay where they went.",
            option="return",
        ),
        Setting(
            "service_restart",
            bool,
            False,
            "Playbook `service`: hosts that the service has done are serviced again.",
            option="restart",
        ),
    )
)
