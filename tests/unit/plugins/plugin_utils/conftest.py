# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An action as settings are read from it: its options, the run's variables and the compute hosts."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import REQUEST
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.scheduling import SCHEDULER
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import read_settings


class Action:
    def __init__(self, hosts, groups, options):
        arguments = {
            **REQUEST.options(),
            **SCHEDULER.options(),
            "instances": REQUEST.named("instances").but(required=False),
        }
        assert not set(options) - set(arguments)
        self.variables = {}
        self.options = read_settings(arguments, options, self.variable)
        self.task_vars = {"hostvars": hosts, "groups": {"bootflow_compute": list(hosts), **groups}}

    def variable(self, name, default=None):
        return self.variables.get(name, default)

    def compute_hosts(self):
        return self.task_vars["groups"]["bootflow_compute"]


@pytest.fixture(name="make_action")
def make_action_fixture():
    """make_action(hosts={name: variables}, groups={name: hosts}, option=value, ...); 3 plain hosts by default."""

    def make_action(hosts=None, groups=None, **options):
        return Action({"kvm1": {}, "kvm2": {}, "kvm3": {}} if hosts is None else hosts, groups or {}, options)

    return make_action
