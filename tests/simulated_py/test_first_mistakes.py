# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mistakes of a first day: the error names what was meant, or the cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flow import run_plainly

CATALOGUE = {
    "bootflow_flavors": [{"name": "tiny", "vcpus": 1, "memory_mb": 128, "root_gb": 1}],
    "bootflow_images": [{"name": "guest", "path": "/dev/null", "disk_format": "raw", "allow_unverified": True}],
    "bootflow_networks": [{"name": "lan", "type": "bridge", "source": "br0", "subnets": [{"cidr": "192.0.2.0/24"}]}],
}
WEB = {"name": "web", "flavor": "tiny", "image": "guest", "networks": [{"network": "lan"}]}


def boot(folder: Path, hosts: dict[str, object], *options: str, **variables: object) -> str:
    """The output of a boot that fails, in check mode."""
    (folder / "hosts.json").write_text(json.dumps({"all": {"children": hosts}}))
    given = {"bootflow_ledger_url": str(folder / "ledger.db"), **CATALOGUE, **variables}
    (folder / "given.json").write_text(json.dumps(given))
    code, output = run_plainly(
        folder, "bootflow.compute.boot", "-i", "hosts.json", "-e", "@given.json", "--check", *options
    )
    assert code == 2, output
    return output


HOSTS: dict[str, object] = {"bootflow_compute": {"hosts": {"h1": {"ansible_host": "127.0.0.1", "ansible_port": 1}}}}


@pytest.mark.parametrize(
    "options, variables, remedy",
    [
        (["-e", "web.yml"], {}, "write -e @web.yml"),
        ([], {"bootflow_instance": [WEB]}, "The variable bootflow_instance was given, which nothing reads"),
        ([], {"instances": [WEB]}, "The variable instances was given, which nothing reads"),
        ([], {"bootflow_instnaces": [WEB]}, "The variable bootflow_instnaces was given, which nothing reads"),
        ([], {}, "with -e @FILE"),
    ],
)
def test_what_was_given_in_place_of_the_request_is_named(
    options: list[str], variables: dict[str, object], remedy: str, tmp_path: Path
) -> None:
    output = boot(tmp_path, HOSTS, *options, **variables)
    assert "bootflow_instances is not set" in output and remedy in output


def test_a_group_that_is_not_there_is_named(tmp_path: Path) -> None:
    output = boot(tmp_path, {"bootflow_computes": HOSTS["bootflow_compute"]}, bootflow_instances=[WEB])
    assert "the inventory has no group bootflow_compute" in output and "Did you mean bootflow_computes?" in output
    assert "the group bootflow_compute of the inventory has no host" in boot(
        tmp_path, {"bootflow_compute": {}, "others": {"hosts": {"h9": {}}}}, bootflow_instances=[WEB]
    )
