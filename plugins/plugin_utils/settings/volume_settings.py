# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes as options of an action: what requests are read with, and the settings of the volume scheduler.

Everything is checked before anything is written: one list has all errors.
"""

from __future__ import annotations

import contextlib
import re
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.images.resolve import LedgerImages
from ...module_utils.core.instances import quotas as instance_quotas
from ...module_utils.core.model import Image
from ...module_utils.core.reading.limits import is_volume_resource
from ...module_utils.core.reading.nearest import question
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.request import catalogue as catalogue_module
from ...module_utils.core.volumes import quotas
from ...module_utils.core.volumes.catalogue import VolumeTypes, read_volume_types
from ...module_utils.core.volumes.create_request import CreateOptions
from ...module_utils.core.volumes.scheduler.options import VolumeSchedulerOptions
from ...module_utils.core.volumes.scheduler.registry import FILTER_OF_HINT, make_filters, make_weighers
from ...module_utils.flows.volumes.requests import VolumeSettings
from ..run.ledger_action import LedgerAction
from . import storage_settings

# volumes[2].size, snapshots[2], attachments[2].volume: which entry an error is about
_ENTRY = re.compile(r"\w+\[([0-9]+)\]")
# Words of bootflow_quotas that are not of volumes.
_OTHER_QUOTAS = (*instance_quotas.RESOURCES, instance_quotas.PORTS, *instance_quotas.DEFAULTS, "projects")


def check(action: LedgerAction) -> None:
    """:raises InvalidRequest: every setting of types, quotas, scheduler and storage hosts that no volume could be made with."""
    option_values = action.options
    problems = Problems()
    types = _volume_types(option_values, problems)
    try:
        _images(option_values)
    except errors.InvalidRequest as e:
        problems.extend(e.errors)
    default = option_values["default_volume_type"]
    if default:
        with problems.collect("bootflow_default_volume_type"):
            types.get(default)
    _check_quota_words(option_values["quotas"], problems)
    projects = (option_values["quotas"] or {}).get("projects")
    for project in dict.fromkeys((option_values["project"], *(projects if isinstance(projects, t.Mapping) else ()))):
        with problems.collect("bootflow_quotas"):
            quotas.limits_of(option_values["quotas"], project, types)
    _check_scheduler(option_values, problems)
    hosts = storage_settings.storage_hosts(action)
    storage_settings.check(action.task_vars["hostvars"], hosts, problems)
    if not hosts:
        problems.add(
            "bootflow_storage_group",
            errors.InvalidInput(
                message="the inventory has no storage host",
                remedy="Put hosts with bootflow_storage_backends into the group bootflow_storage, or name another with"
                " bootflow_storage_group.",
            ),
        )
    problems.raise_if_any()


def _check_scheduler(option_values: t.Mapping[str, t.Any], problems: Problems) -> None:
    options = scheduler_options(option_values, now=0.0)
    for make in (make_filters, make_weighers):
        with problems.collect("scheduler"):
            make(options)


def scheduler_options(
    option_values: t.Mapping[str, t.Any], now: float, explain: bool = False, hosts: t.Collection[str] | None = None
) -> VolumeSchedulerOptions:
    """:arg hosts: the storage hosts of the inventory."""
    return VolumeSchedulerOptions(
        enabled_filters=option_values["volume_filters"],
        weighers=option_values["volume_weighers"],
        multipliers=option_values["volume_weight_multipliers"],
        max_attempts=option_values["volume_max_attempts"],
        max_over_subscription_ratio=option_values["max_over_subscription_ratio"],
        now=now,
        service_down_time=option_values["service_down_time"],
        explain=explain,
        hosts=hosts,
    )


def read_options(
    option_values: t.Mapping[str, t.Any], ledger_images: LedgerImages | None = None, sees_all_images: bool = False
) -> VolumeSettings:
    """Return the settings that the ledger reads requests with.

    :arg ledger_images: images of the ledger that requests may name. :arg sees_all_images: whether the images were looked up before, by projects
    :raises InvalidRequest: all errors of the types, images and names of quotas.
    """
    problems = Problems()
    types = _volume_types(option_values, problems)
    _check_quota_words(option_values["quotas"], problems)
    problems.raise_if_any()
    return VolumeSettings(
        types=types,
        image=_images(option_values, ledger_images, None if sees_all_images else option_values["project"]),
        options=CreateOptions(
            default_volume_type=option_values["default_volume_type"] or None,
            storage_availability_zone=option_values["storage_availability_zone"],
            allow_availability_zone_fallback=option_values["allow_availability_zone_fallback"],
        ),
        quotas=option_values["quotas"],
        project=option_values["project"],
        max_attempts=option_values["volume_max_attempts"],
        no_snapshot_gb_quota=option_values["no_snapshot_gb_quota"],
    )


def check_hints(entries: t.Iterable[t.Any], option_values: t.Mapping[str, t.Any], problems: Problems) -> None:
    """Hints that no filter reads would be ignored: a volume would lie where it must not."""
    enabled = [f.name for f in make_filters(scheduler_options(option_values, now=0.0))]
    for number, entry in enumerate(entries):
        hints = entry.get("scheduler_hints") if isinstance(entry, t.Mapping) else None
        for hint in hints if isinstance(hints, t.Mapping) else ():
            reader = FILTER_OF_HINT.get(hint)
            if reader in enabled:
                continue
            remedy = "Known: %s." % ", ".join(FILTER_OF_HINT)
            if reader is not None:
                remedy = "Add %s to bootflow_volume_filters (%s)." % (reader, ", ".join(enabled) or "empty")
            problems.add(
                "volumes[%d].scheduler_hints" % number,
                errors.InvalidInput(message="no filter reads the hint %s" % ascii(hint), remedy=remedy),
            )


def configurations(action: LedgerAction) -> dict[str, list[dict[str, t.Any]]]:
    """storage host -> its backends, of the whole inventory. :raises InvalidRequest: check() tells the same."""
    return {h: storage_settings.of_host(action, h) for h in storage_settings.storage_hosts(action)}


@contextlib.contextmanager
def told_in_order() -> t.Iterator[None]:
    """Sort errors of a request by its entries; errors of the whole request come last. :raises InvalidRequest: of the block"""
    try:
        yield
    except errors.InvalidRequest as e:
        e.errors.sort(key=_entry_of)
        raise


def _entry_of(error: t.Mapping[str, t.Any]) -> tuple[int, int]:
    match = _ENTRY.match(str(error.get("path") or ""))
    return (0, int(match.group(1))) if match else (1, 0)


def _check_quota_words(given: t.Any, problems: Problems) -> None:
    """A quota that is misspelt would be none."""
    projects = given.get("projects") if isinstance(given, t.Mapping) else None
    of_projects = projects.values() if isinstance(projects, t.Mapping) else ()
    for words in (given, *of_projects):
        for word in words if isinstance(words, t.Mapping) else ():
            if word in _OTHER_QUOTAS or is_volume_resource(word):
                continue
            known = [*quotas.DEFAULTS, *_OTHER_QUOTAS]
            problems.add(
                "bootflow_quotas",
                errors.InvalidInput(
                    message="unknown resource %s" % ascii(word),
                    remedy="%sKnown: %s." % (question(str(word), known), ", ".join(known)),
                ),
            )


def _volume_types(option_values: t.Mapping[str, t.Any], problems: Problems) -> VolumeTypes:
    try:
        return read_volume_types(option_values["volume_types"])
    except errors.InvalidRequest as e:
        problems.extend(e.errors)
        return VolumeTypes()


def _images(
    option_values: t.Mapping[str, t.Any], ledger_images: LedgerImages | None = None, project: str | None = None
) -> t.Callable[[str], Image]:
    catalogue = catalogue_module.parse_catalogue(None, option_values["images"], None, None, ledger_images=ledger_images)
    return lambda word: catalogue.image(word, project)
