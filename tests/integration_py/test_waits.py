# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boots that end when their guests are ready: an address that answers ARP only, an open port, the end of cloud-init by a real agent."""

from __future__ import annotations

import json
import typing as t

import flow as flow_module
import pytest

# As cloud-init ends: the result is written elsewhere, and renamed.
ENDS = """#!/bin/sh
echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all
(sleep 3; mkdir -p /run/cloud-init; echo '%s' > /run/new; mv /run/new /run/cloud-init/result.json) &
"""


@pytest.mark.long
def test_a_boot_waits_for_all_that_it_names(lab: t.Any, tmp_path: t.Any) -> None:
    flow = flow_module.Flow(lab, tmp_path, flow_module.build_guest_image("--ssh"))
    (image,) = flow.variables["bootflow_images"]
    image["properties"] = {"hw_qemu_guest_agent": "yes"}
    subnet = "198.19.%d" % lab.subnet
    lan = {"name": "lan-v4", "cidr": subnet + ".0/24", "gateway_ip": None}
    flow.variables["bootflow_networks"] = [{"name": "lan", "type": "bridge", "source": "br-guests", "subnets": [lan]}]
    flow.variables.update(bootflow_wait_address=True, bootflow_wait_cloud_init=True)

    def wanted(name: str, *errors: str) -> dict[str, t.Any]:
        ends = ENDS % json.dumps({"v1": {"datasource": "DataSourceConfigDrive", "errors": errors}})
        return flow_module.entry(name, networks=[{"network": "lan"}], user_data=ends, key_name="ops")

    try:
        flow.boot(wanted("ready"), bootflow_wait_port=22)
        (row,) = flow.instances().values()
        assert row["vm_state"] == "active"
        failed = flow.run("boot", bootflow_instances=[wanted("broken", "runcmd failed")])
        assert failed.returncode == 2 and "ended with errors: runcmd failed" in failed.output, failed.output
        flow.variables.update(bootflow_wait_cloud_init=False, bootflow_max_attempts=1)
        silent = flow.run(
            "boot", bootflow_instances=[wanted("closed")], bootflow_wait_port=81, bootflow_wait_guest_timeout=8
        )
        assert "connection to port 81 of %s." % subnet in silent.output, silent.output
    finally:
        flow.delete("ready", "broken", "closed")
    assert flow.residue() == {}
