# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input through the playbooks: an error with its code and its remedy, before a host is asked and anything is written."""

from __future__ import annotations

import hashlib
import json
import typing as t
from pathlib import Path

import pytest
from flow import FLAVORS, GUEST_NETWORK, entry
from refusals import refused, rows, words
from simulated_site import Site


@pytest.fixture
def flow(tmp_path: Path, home: Path) -> t.Iterator[Site]:
    """The hosts and the catalogue of the lab."""
    image = tmp_path / "guest.qcow2"
    image.write_bytes(b"a guest")
    file = {"path": str(image), "checksum": "sha256:" + hashlib.sha256(image.read_bytes()).hexdigest()}
    made = Site(tmp_path, home, ("compute1", "compute2", "compute3"))
    made.variables.update(
        bootflow_flavors=FLAVORS,
        bootflow_networks=[GUEST_NETWORK],
        bootflow_images=[{"name": "guest", **file, "disk_format": "qcow2", "min_disk": 1, "min_ram": 128}],
    )
    yield made
    assert made.problems() == "" and made.asked() == {name: [] for name in made.hosts}


def test_all_errors_of_a_request_at_once(flow: Site) -> None:
    cases = [
        (
            "web",
            "instances[0]: MalformedRequestBody: Malformed request body: an instance must be a mapping, not a text Remedy: Write each instance as a mapping",
        ),
        (
            entry("field", flavour="tiny"),
            "instances[1].flavour: InvalidInput: Unknown field 'flavour' Remedy: Did you mean flavor?",
        ),
        (
            {"flavor": "tiny", "image": "guest", "networks": "none"},
            "instances[2].name: InvalidInput: Server name is not defined Remedy: Add name.",
        ),
        (
            entry(""),
            "instances[3].name: InvalidInput: Invalid input for field name: must have at least 1 character, has 0 Remedy: Use 1 to 255 printable",
        ),
        (
            entry("x" * 256),
            "instances[4].name: InvalidInput: Invalid input for field name: must have at most 255 characters, has 256 Remedy: Use 1 to 255",
        ),
        (
            entry("a\x01b"),
            "instances[5].name: InvalidInput: Invalid input for field name: 'a\\x01b' character 2 (U+0001) is not printable Remedy: Use 1",
        ),
        (
            entry("line\nend"),
            "instances[6].name: InvalidInput: Invalid input for field name: 'line\\nend' character 5 (U+000A) is not printable Remedy: Use",
        ),
        (
            entry(" blank"),
            "instances[7].name: InvalidInput: Invalid input for field name: ' blank' must not begin or end with blanks Remedy: Use 1 to 255",
        ),
        (
            entry("list", metadata=["a"]),
            "instances[8].metadata: InvalidMetadata: Invalid input for field metadata: must be a mapping, not a list Remedy: ",
        ),
        (
            entry("less", min_count=3, max_count=2),
            "instances[9].min_count: InvalidInput: min_count must be <= max_count Remedy: Lower min_count, or raise",
        ),
        (
            entry("same", max_count=2, networks=[{"network": "guests", "fixed_ip": "10.77.0.20"}]),
            "instances[10].networks[0].fixed_ip: InvalidFixedIpAndMaxCountRequest: Failed to launch instances: max_count cannot be greater than 1",
        ),
        (
            entry("flavor", flavor="nix"),
            "instances[11].flavor: FlavorNotFound: Flavor nix could not be found. Remedy: bootflow_flavors has: full, huge, tiny.",
        ),
        (
            entry("image", image="nix"),
            "instances[12].image: ImageNotFound: Image nix could not be found. Remedy: bootflow_images has: almalinux-10, ",
        ),
        (
            entry("net", networks=[{"network": "nix"}]),
            "instances[13].networks[0].network: NetworkNotFound: Network nix could not be found. Remedy: bootflow_networks has: ",
        ),
        (
            entry("out", networks=[{"network": "guests", "fixed_ip": "10.99.0.20"}]),
            "instances[14].networks[0].fixed_ip: InvalidIpForNetwork: IP address 10.99.0.20 is not a valid IP for any of the subnets on the specified",
        ),
        (
            entry("pool", networks=[{"network": "pools", "fixed_ip": "10.78.0.5"}]),
            "instances[15].networks[0].fixed_ip: InvalidIpForAllocationPools: IP address 10.78.0.5 is not in the allocation pools of subnet pools-v4",
        ),
        (
            entry("groups", security_groups=["web"]),
            "instances[16].security_groups: NotSupportedYet: Security group 'web'",
        ),
        (entry("zone", availability_zone="nova:compute1"), "instances[17].availability_zone: ForcedHostForbidden: "),
        (
            entry("count", max_count="many"),
            "instances[18].max_count: InvalidInput: Invalid input for field max_count: 'many' must be an integer Remedy: Correct the value; docs/request.md",
        ),
        (
            entry("b64", user_data_base64="%%%"),
            "instances[19].user_data_base64: InstanceUserDataMalformed: Invalid input for field user_data_base64: is not valid base64 Remedy: Encode it",
        ),
    ]
    pools = {
        **GUEST_NETWORK,
        "name": "pools",
        "source": "bf-pools",
        "enforce_allocation_pools": True,
        "subnets": [
            {
                "name": "pools-v4",
                "cidr": "10.78.0.0/24",
                "allocation_pools": [{"start": "10.78.0.10", "end": "10.78.0.20"}],
            }
        ],
    }
    done = refused(
        flow,
        "The request has %d errors." % len(cases),
        *[text for _entry, text in cases],
        bootflow_instances=[wrong for wrong, _text in cases],
        bootflow_networks=[GUEST_NETWORK, pools],
    )
    for remedy in (
        "Write one entry per instance that needs its own address.",
        "Choose an address of one of its subnets.",
        "Choose an address of the pools, or set enforce_allocation_pools: false on the network.",
    ):
        assert "Remedy: " + remedy in words(done)
    assert words(done).count("Remedy: ") == len(cases), done.output
    assert flow.ledger_path.exists() and set(rows(flow).values()) == {0}
    assert flow.residue() == {}

    # Errors of images count for those who name them.
    image = flow.variables["bootflow_images"][0]
    refused(
        flow,
        "The request has 4 errors.",
        "images[guest].disk_format: InvalidInput: ",
        "images[guest].checksum: InvalidInput: checksum is not valid: a sha256 has 64 hexadecimal digits "
        "Remedy: Write sha256:<hex> as sha256sum prints it, or sha256:<address of the file with checksums>.",
        "images[none].checksum: InvalidInput: checksum is missing Remedy: Add what sha256sum or sha512sum FILE prints as "
        "sha256:<hex> or sha512:<hex>, or the address of the publisher's file with checksums as sha256:https://..., "
        "or set allow_unverified: true to trust the source.",
        "images[ftp].url: InvalidInput: url must begin with http://, https:// or file://",
        bootflow_images=[
            {**image, "checksum": "sha256:12", "disk_format": "floppy"},
            {**image, "name": "none", "checksum": ""},
            {**image, "name": "ftp", "path": "", "url": "ftp://images.example.org/x"},
            {"name": "unused"},
        ],
        bootflow_instances=[entry("web"), entry("none", image="none"), entry("ftp", image="ftp"), entry("again")],
    )
    refused(
        flow, "InvalidInput: bootflow_instances is not set Remedy: Set it in the inventory, in group_vars or with -e"
    )
    refused(flow, "InvalidInput: bootflow_instances must be a list Remedy: ", bootflow_instances="web")
    refused(
        flow,
        "InvalidInput: Invalid input received: no instance is selected Remedy: Give bootflow_names, bootflow_uuids ",
        playbook="delete",
    )
    assert flow.residue() == {}


def test_settings_are_checked_before_anything_is_written(flow: Site, tmp_path: Path) -> None:
    mistyped = tmp_path / "mistyped.json"
    mistyped.write_text(
        json.dumps(
            {
                "bootflow_compute": {
                    "hosts": {
                        "compute1": {
                            "bootflow_reserved_memory_mb": "1.5",
                            "bootflow_disabled": "maybe",
                            "bootflow_config_drive_format": "floppy",
                        },
                        "compute2": {
                            "bootflow_ram_allocation_ratio": "many",
                            "bootflow_cpu_allocation_ratio": "nan",
                            "bootflow_disk_backend": "zfs",
                        },
                        "compute3": {
                            "bootflow_disk_allocation_ratio": -1,
                            "bootflow_wait_timeout": "soon",
                            "bootflow_cpu_allocation_ratio": "nan",
                        },
                    }
                }
            }
        )
    )
    correct = "Remedy: Correct it in the inventory"
    refused(
        flow,
        "The request has 12 errors.",
        "bootflow_max_attempts: InvalidInput: bootflow_max_attempts must be a whole number from 1 to 3, got 9 Remedy: Correct it in the inventory",
        "bootflow_filter_dirs: InvalidInput: folder /nowhere does not exist Remedy: Correct the path, or create the folder.",
        "scheduler: InvalidInput: Invalid input received: unknown filter NoFilter Remedy: bootflow_enabled_filters may hold: RetryFilter, ",
        "scheduler: InvalidInput: Invalid input received: unknown weigher NoWeigher Remedy: bootflow_weighers may hold: RAMWeigher, ",
        "host compute1: InvalidInput: bootflow_reserved_memory_mb must be a whole number of MiB, at least 0, got '1.5' "
        + correct,
        "host compute1: InvalidInput: bootflow_disabled must be true or false, got 'maybe' " + correct,
        "host compute1: InvalidInput: bootflow_config_drive_format must be one of iso9660, vfat, got 'floppy' "
        + correct,
        "host compute2: InvalidInput: bootflow_ram_allocation_ratio must be a number, at least 0, got 'many' "
        + correct,
        "hosts compute2, compute3: InvalidInput: bootflow_cpu_allocation_ratio must be a number, at least 0, got 'nan' "
        + correct,
        "host compute2: InvalidInput: bootflow_disk_backend must be one of qcow2, raw, lvm, qcow2_on_lvm, rbd, got 'zfs' "
        + correct,
        "host compute3: InvalidInput: bootflow_disk_allocation_ratio must be a number, at least 0, got -1 " + correct,
        "host compute3: InvalidInput: bootflow_wait_timeout must be a number of seconds, at least 0, got 'soon' "
        + correct,
        options=("-i", str(mistyped)),
        bootflow_instances=[entry("web")],
        bootflow_max_attempts=9,
        bootflow_enabled_filters=["RamFilter", "NoFilter"],
        bootflow_weighers=["NoWeigher"],
        bootflow_filter_dirs=["/nowhere"],
    )
    refused(
        flow,
        "InvalidInput: bootflow_facts_max_age must be a whole number of seconds, at least 0, got 'soon'",
        "Remedy: Correct it in the inventory",
        bootflow_instances=[entry("web")],
        bootflow_facts_max_age="soon",
    )
    assert flow.residue() == {}
