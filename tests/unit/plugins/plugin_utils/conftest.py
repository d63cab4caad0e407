# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An action as the inputs see it: its options, the run's variables and the compute hosts."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.plugin_utils.request_inputs import REQUEST_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.plugin_utils.scheduler_inputs import SCHEDULER_ARGUMENTS


class Action:
    def __init__(self, hosts, groups, options):
        arguments = {**REQUEST_ARGUMENTS, **SCHEDULER_ARGUMENTS}
        self.options = {name: a.get("fallback_default") for name, a in arguments.items()}
        unknown = set(options) - set(self.options)
        assert not unknown
        self.options.update(options)
        self.task_vars = {"hostvars": hosts, "groups": {"bootflow_compute": list(hosts), **groups}}

    def compute_hosts(self):
        return self.task_vars["groups"]["bootflow_compute"]


@pytest.fixture(name="make_action")
def make_action_fixture():
    """make_action(hosts={name: variables}, groups={name: hosts}, option=value, ...); 3 plain hosts by default."""

    def make_action(hosts=None, groups=None, **options):
        return Action({"kvm1": {}, "kvm2": {}, "kvm3": {}} if hosts is None else hosts, groups or {}, options)

    return make_action
