# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules before which a host gets its filters: all that may start a guest or plug an interface in."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.plugin_utils.run.firewall.port_filters import may_start

HOSTS = pathlib.Path(__file__).resolve().parents[6] / "plugins" / "module_utils" / "hosts"
#: Calls of libvirt after which a guest runs, or has another device, and the files that make them. All of them work for the modules that
#: may_start() knows; a new one has to, too.
STARTING = {
    r"\.createWithFlags\(": {"libvirt/running.py"},
    r"\bdomain\.(create|createXML|restore|restoreFlags)\(": set(),
    r"\.resume\(\)": {"libvirt/power.py"},
    r"\.attachDeviceFlags\(": {"libvirt/hot_plug.py", "libvirt/pci_devices.py"},
    r"\.migrateToURI3\(": {"live/migrate.py"},
}


@pytest.mark.parametrize("call", STARTING)
def test_the_calls_that_start_guests_are_known(call: str) -> None:
    files = {str(path.relative_to(HOSTS)) for path in HOSTS.rglob("*.py") if re.search(call, path.read_text())}
    assert files == STARTING[call]


@pytest.mark.parametrize(
    ("module", "arguments", "starts"),
    [
        ("domain_power", {"state": "running"}, True),
        ("domain_power", {"state": "rebooted"}, True),
        ("domain_power", {"state": "unpaused"}, True),
        ("domain_power", {"state": "shutdown"}, False),
        ("domain_migration", {"step": "prepare"}, True),
        ("domain_migration", {"step": "migrate"}, False),
        ("domain_interface", {"interfaces": [{"state": "detached"}, {}]}, True),
        ("domain_interface", {"interfaces": [{"state": "detached"}]}, False),
        ("instance_build", {}, True),
        ("image_file", {}, False),
    ],
)
def test_a_module_may_start_a_guest(module: str, arguments: dict[str, t.Any], starts: bool) -> None:
    assert may_start(module, arguments) is starts
