# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import config_drive_rules as rules


@pytest.mark.parametrize(
    ("force", "asked", "props", "wanted"),
    [
        (False, None, {}, False),
        (False, False, {}, False),
        (False, True, {}, True),
        (True, None, {}, True),
        (True, False, {}, True),
        (False, None, {"img_config_drive": "optional"}, False),
        (False, None, {"img_config_drive": "mandatory"}, True),
        (False, False, {"img_config_drive": "mandatory"}, True),
        (False, True, {"img_config_drive": "optional"}, True),
    ],
)
def test_three_triggers(force, asked, props, wanted):
    assert rules.config_drive_wanted(force, asked, props) is wanted


@pytest.mark.parametrize("value", ["Mandatory", "yes", True, None])
def test_unknown_policy(value):
    with pytest.raises(errors.InvalidInput, match="img_config_drive"):
        rules.config_drive_wanted(True, True, {"img_config_drive": value})


def test_formats():
    assert [rules.check_format(f) for f in ("iso9660", "vfat")] == ["iso9660", "vfat"]
    with pytest.raises(errors.ConfigDriveUnknownFormat, match="ext4"):
        rules.check_format("ext4")


def test_datasource_is_that_of_the_image():
    name = rules.DATASOURCE
    assert [rules.datasource(properties) for properties in ({}, {name: "ConfigDrive"}, {name: "NoCloud"})] == [
        "ConfigDrive",
        "ConfigDrive",
        "NoCloud",
    ]


@pytest.mark.parametrize(
    "properties",
    [{rules.DATASOURCE: "nocloud"}, {rules.DATASOURCE: 1}, {rules.DATASOURCE: "NoCloud", "os_type": "windows"}],
)
def test_datasource_that_no_guest_can_read(properties):
    with pytest.raises(errors.InvalidInput, match=rules.DATASOURCE) as caught:
        rules.datasource(properties)
    assert caught.value.remedy


def test_injected_files_need_a_config_drive():
    rules.check_files({}, ["file"])
    rules.check_files({rules.DATASOURCE: "NoCloud"}, [])
    with pytest.raises(errors.InvalidInput, match="injected files"):
        rules.check_files({rules.DATASOURCE: "NoCloud"}, ["file"])
