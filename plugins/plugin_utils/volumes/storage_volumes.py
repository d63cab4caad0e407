# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes and snapshots that one backend of the current host has to make, extend and remove.

All of a backend at once: the host's module reads LVM once before and once after, and copies side by side.
"""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.model import Image
from ...module_utils.core.request.catalogue import parse_images
from ...module_utils.core.request.catalogue_images import find_image
from ...module_utils.core.settings.storage import THIN
from ...module_utils.flows.volumes.work import BackendWork, WorkResult
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..settings import storage_settings
from ..settings.image_upload import fetch_arguments, is_local, module_image, remove_uploads, upload


def work_on(action: LedgerAction, works: t.Sequence[BackendWork]) -> dict[str, WorkResult]:
    """Do it, one backend after the other. Returns backend -> what the ledger is to hear; it never raises."""
    results: dict[str, WorkResult] = {}
    unreachable: errors.BootflowError | None = None
    for work in works:
        if unreachable is None:
            try:
                results[work.backend] = _backend(action, work)
                continue
            except errors.BootflowError as e:
                problem = e
            except Exception as e:  # any exception: the other backends continue, and the play too
                problem = action.unexpected(e)
            if isinstance(problem, errors.HostUnreachable):
                unreachable = problem
        else:
            problem = unreachable  # the others are on the same host
        results[work.backend] = WorkResult(error=problem)
    return results


def _backend(action: LedgerAction, work: BackendWork) -> WorkResult:
    catalogue = parse_images(action.options["images"]).values() if work.images else ()
    images = {i.id: i for i in (find_image(catalogue, data) for data in work.images)}
    settings = storage_settings.read_current_host(action)
    local = is_local(action)
    c = work.configuration
    arguments: dict[str, t.Any] = {
        **storage_settings.lvm_arguments(c),
        "ledger_id": action.ledger_id(),
        "volumes": work.volumes,
        "images": [module_image(i, local, action.task_vars["inventory_hostname"]) for i in images.values()],
        # The catalogue has refused an image without a checksum unless it says allow_unverified.
        "allow_unverified": any(not i.checksum for i in images.values()),
        "temp_dir": settings.conversion_dir,
        **fetch_arguments(settings),
        "verify": c["verify"],
        "image_cache": c["image_cache"],
        # A backend that reported before there were limits has none.
        "image_cache_max_gb": c.get("image_cache_max_gb", 0),
        "image_cache_max_count": c.get("image_cache_max_count", 0),
        "clear": c["volume_clear"],
        "clear_size_mb": c["volume_clear_size_mb"],
        "workers": storage_settings.workers(action, len(work.volumes)),
    }
    # A file of the controller alone is uploaded, but not before the backend reported that it has no copy.
    controller_images = {i.id for i in images.values() if i.path and not i.url and not local}
    cached = c["provisioning"] == THIN and c["image_cache"]
    waiting = [v for v in work.volumes if v.get("image_id") in controller_images]
    if not waiting or cached:
        result = _run(action, arguments)
        outcomes, capacity = dict(result["outcomes"]), result["backend"]
        waiting = [v for v in waiting if _misses_image(outcomes.get(v["id"]))]
        others: list[dict[str, t.Any]] = []
    else:
        outcomes, capacity = {}, None
        others = [v for v in work.volumes if v.get("image_id") not in controller_images]
    if waiting:
        capacity = _with_uploads(action, arguments, images, waiting, others, outcomes) or capacity
    ids = [str(v["id"]) for v in work.volumes]
    problems = item_errors({"outcomes": outcomes}, ids)
    return WorkResult(
        outcomes={
            i: {**outcomes.get(i, {}), "error": problems[i].between_hosts() if i in problems else None} for i in ids
        },
        capacity=capacity,
    )


def _run(action: LedgerAction, arguments: dict[str, t.Any]) -> t.Mapping[str, t.Any]:
    result = action.run_module("volume_lvm", arguments)
    for image in result.get("evicted") or ():
        text = "evicted from the image cache of %s: %s" % (arguments["volume_group"], image["name"])
        action._display.v(text, host=action.task_vars["inventory_hostname"])
    return result


def _misses_image(outcome: t.Mapping[str, t.Any] | None) -> bool:
    return bool(outcome and outcome.get("error") and outcome["error"].get("code") == errors.ImageNotFound.__name__)


def _with_uploads(
    action: LedgerAction,
    arguments: t.Mapping[str, t.Any],
    images: t.Mapping[str, Image],
    waiting: t.Sequence[t.Mapping[str, t.Any]],
    others: t.Sequence[t.Mapping[str, t.Any]],
    outcomes: dict[str, t.Any],
) -> t.Mapping[str, t.Any] | None:
    """Upload what ``waiting`` is made from, then make it and ``others``; fills ``outcomes``. Returns the capacity afterwards."""
    uploads: dict[str, str] = {}
    refused: dict[str, errors.BootflowError] = {}
    try:
        for image_id in sorted({str(v["image_id"]) for v in waiting}):
            try:
                uploads[image_id] = upload(action, images[image_id])
            except errors.HostUnreachable:
                raise
            except errors.BootflowError as e:
                refused[image_id] = e
        now = [v for v in waiting if v["image_id"] in uploads] + list(others)
        for volume in waiting:
            if volume["image_id"] in refused:
                outcomes[volume["id"]] = {"changed": False, "error": refused[volume["image_id"]].as_dict()}
        if not now:
            return None
        result = _run(action, {**arguments, "volumes": now, "uploads": uploads})
    finally:
        if uploads:
            remove_uploads(action)
    outcomes.update(result["outcomes"])
    return t.cast("t.Mapping[str, t.Any]", result["backend"])
