# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs under the distribution's Python: what its cloud-init makes of a drive's files, as JSON on stdout.

Arguments: a folder whose subfolder seed/config_drive or seed/nocloud holds the files, and a JSON object MAC -> interface name.
"""

from __future__ import annotations

import json
import os
import sys

from cloudinit import helpers, stages, util
from cloudinit.net import eni, netplan, network_state
from cloudinit.sources import DataSourceConfigDrive as config_drive
from cloudinit.sources import DataSourceNoCloud as nocloud

# Where netplan's own library is, cloud-init 23 and later let it write, below / whatever the target is.
sys.modules["netplan"] = None


def rendered(renderer, path, config, target):
    state = network_state.parse_net_config_data(config)
    renderer.render_network_state(state, target=target)
    with open(os.path.join(target, path), encoding="utf-8") as stream:
        return stream.read()


def merged(source, folder):
    """The configuration that cloud-init's modules get: the distribution's, vendor data and user data, handled as at a boot."""
    config = util.get_builtin_cfg()
    config["system_info"] = {"distro": "debian", "paths": {"cloud_dir": folder, "run_dir": os.path.join(folder, "run")}}
    config["def_log_file"] = os.path.join(folder, "log")

    class Init(stages.Init):
        """Reads nothing of this machine, and writes nothing to it."""

        def read_cfg(self, extra_fns=None):
            self._cfg = config

    init = Init()
    init.datasource = source
    init.initialize()
    init.instancify()
    init.update()
    init.consume_data()
    return helpers.ConfigMerger(paths=init.paths, datasource=source, base_cfg=config).cfg


def main():
    folder, macs = sys.argv[1], json.loads(sys.argv[2])
    paths = helpers.Paths({"cloud_dir": folder, "run_dir": os.path.join(folder, "run")})
    if os.path.isdir(os.path.join(folder, "seed", "nocloud")):
        answer = of_nocloud(folder, paths)
    else:
        answer = of_config_drive(folder, paths, macs)
    network = answer["network"]
    if network:
        target = os.path.join(folder, "target")
        answer["netplan"] = rendered(
            netplan.Renderer({"netplan_path": "netplan.yaml"}), "netplan.yaml", network, target
        )
        answer["eni"] = rendered(eni.Renderer({"eni_path": "interfaces"}), "interfaces", network, target)
    json.dump(answer, sys.stdout)


def as_text(data):
    return data.decode() if isinstance(data, bytes) else data


def of_nocloud(folder, paths):
    # This machine's DMI data and kernel command line, and disks with the label, are not the guest's.
    nocloud.dmi.read_dmi_data = lambda key: None
    nocloud.load_cmdline_data = lambda fill, cmdline=None: False
    source = nocloud.DataSourceNoCloud({"datasource": {"NoCloud": {"fs_label": None}}}, None, paths)
    if not source._get_data():
        raise SystemExit("cloud-init found no drive")
    config = merged(source, folder)
    return {
        "metadata": source.metadata,
        "user_data": as_text(source.userdata_raw),
        "vendor_data_raw": as_text(source.vendordata_raw),
        "public_keys": source.get_public_ssh_keys(),
        "instance_id": source.get_instance_id(),
        "network": source.network_config,
        "chpasswd": config.get("chpasswd"),
        "timezone": config.get("timezone"),
        "ssh_keys": config.get("ssh_keys"),
    }


def of_config_drive(folder, paths, macs):
    source = config_drive.DataSourceConfigDrive({"datasource_list": ["ConfigDrive"]}, None, paths)
    # Injected files would be written to this machine's root: only their contents are looked at, below.
    written = {}
    config_drive.write_injected_files = written.update
    source.known_macs = macs
    if not source._get_data():
        raise SystemExit("cloud-init found no config drive")
    network = source.network_config
    answer = {
        "metadata": {k: v for k, v in source.metadata.items() if k != "random_seed"},
        "random_seed_bytes": len(source.metadata.get("random_seed") or b""),
        "user_data": as_text(source.userdata_raw),
        "vendor_data": config_drive.read_config_drive(source.source)["vendordata"],
        "vendor_data_raw": source.vendordata_raw,
        "vendor_data2_raw": source.vendordata2_raw,
        "ec2": source.ec2_metadata,
        "version": source.version,
        "files": {k: as_text(v) for k, v in written.items()},
        "public_keys": source.get_public_ssh_keys(),
        "instance_id": source.get_instance_id(),
        "network": network,
    }
    answer["chpasswd"] = merged(source, folder).get("chpasswd")
    return answer


main()
