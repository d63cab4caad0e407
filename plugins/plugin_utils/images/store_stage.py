# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of hosts in their stores of images: bytes of imports of this run, and files of deleted images.

The controller hands it over in the folder of the run, hosts leave there what became of it, and the controller writes that to the ledger: no host's
task opens it.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.disks.checksums import SHA256, parse_checksum
from ...module_utils.core.images.stores.registry import ImageStores
from ...module_utils.core.model import Image
from ...module_utils.core.request.image_imports import ImageImport, read_imports
from ...module_utils.flows.images import store_work
from ...module_utils.flows.images.store_work import StoreOutcome, Uploaded
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.images import images as rows
from ..run import host_settings
from ..run.lease import lease_kept
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..run.stage_results import CONTROLLER, StageResults
from ..settings.image_upload import fetch_arguments, is_local, module_image, uploaded
from ..settings.ledger_images import stores_of

BEGIN, WORK = "begin", "work"
Outcomes = t.Dict[str, StoreOutcome]  # by id
Works = t.Dict[
    str, t.List[t.Dict[str, t.Any]]
]  # host -> the work in each of its stores: store, path, mode, uploads (id -> name), removals (ids)


def hand_over(action: LedgerAction, begin: t.Callable[[], dict[str, t.Any]]) -> dict[str, t.Any]:
    """Leave the ``works`` in the result of ``begin`` to the tasks of hosts. Returns the result without them."""
    done = _results(action).begin(BEGIN, begin)
    return {name: value for name, value in done.items() if name != "works"}


def handed_over(action: LedgerAction) -> t.Mapping[str, t.Any]:
    """Return the result of hand_over(), with the works. :raises InvalidInput: its task was left out"""
    return _results(action).begun(BEGIN)


def works_of(tx: Transaction, hosts: t.Iterable[str], stores: ImageStores) -> Works:
    """Return the work that the ledger has for the stores of these hosts and of the controller."""
    works: Works = {}
    for host in sorted({*hosts, CONTROLLER}):
        works[host] = [
            {
                "store": w.store.name,
                "path": w.store.path,
                "mode": w.store.kind.mode,
                "uploads": {i.id: i.name for i in w.uploads},
                "removals": w.removals,
            }
            for w in store_work.begin(tx, host, stores)
        ]
    return works


def write_outcomes(tx: Transaction, action: LedgerAction, stores: ImageStores) -> None:
    """Write what became of the work, of the hosts that said so."""
    works: Works = handed_over(action).get("works") or {}
    ids = {i for of_host in works.values() for work in of_host for i in (*work["uploads"], *work["removals"])}
    rows.select(tx, ids=ids, with_deleted=True, lock=True)  # before the places are read
    for host in works:
        for of_store in (_results(action).read(WORK, host) or {}).get("outcomes") or ():
            uploads = {i: _error(o) or Uploaded(o["size"], o["checksum"]) for i, o in of_store["uploads"].items()}
            removals = {i: _error(o) for i, o in of_store["removals"].items()}
            store_work.finish(tx, stores.get(of_store["store"]), uploads, removals, of_store["unknown"])


def run(action: LedgerAction) -> dict[str, t.Any]:
    """Do the work of this host. Returns the result of the task; a failed image does not fail it."""
    if action.check_mode:
        return {"changed": False, "skipped": True, "msg": "The plan was shown before."}
    host = action.task_vars["inventory_hostname"]
    works = (handed_over(action).get("works") or {}).get(host) or []
    entries = _entries(action) if any(work["uploads"] for work in works) else {}
    result: dict[str, t.Any] = {"changed": bool(works), "uploaded": [], "removed": [], "image_errors": {}}
    done: list[dict[str, t.Any]] = []
    for work in works:
        with lease_kept(action):
            uploads, removals, unknown = _work_in(action, work, entries)
        failed = {i: o for i, o in {**uploads, **removals}.items() if isinstance(o, errors.BootflowError)}
        result["uploaded"] += sorted(set(uploads) - set(failed))
        result["removed"] += sorted(set(removals) - set(failed))
        result["image_errors"].update({image_id: error.as_dict() for image_id, error in failed.items()})
        for image_id, error in sorted(failed.items()):
            action.ports.display.warning("%s, image %s: %s" % (host, image_id, error.message))
        done.append(
            {
                "store": work["store"],
                "uploads": {i: _plain(o) for i, o in uploads.items()},
                "removals": {i: _plain(o) for i, o in removals.items()},
                "unknown": sorted(unknown),
            }
        )
        _results(action).leave(WORK, host, {"outcomes": done})
    return result


def _results(action: LedgerAction) -> StageResults:
    return StageResults(action, "image_stage")


def _entries(action: LedgerAction) -> dict[str, ImageImport]:
    """Return the entries of this host's variables, by name; none where they are not as on the controller: then each upload fails, not the task."""
    try:
        return {e.name: e for e in read_imports(action.options["image_imports"] or [], stores_of(action))}
    except errors.BootflowError as e:
        action.ports.display.warning("%s: %s" % (action.task_vars["inventory_hostname"], e.paragraph))
        return {}


def _plain(outcome: StoreOutcome) -> dict[str, t.Any]:
    """Return an outcome as plain data."""
    if isinstance(outcome, errors.BootflowError):
        return {"error": outcome.as_dict()}
    return {"error": None, **({} if outcome is None else dataclasses.asdict(outcome))}


def _error(outcome: t.Mapping[str, t.Any]) -> errors.BootflowError | None:
    return errors.from_dict(outcome["error"]) if outcome["error"] else None


def _work_in(
    action: LedgerAction, work: t.Mapping[str, t.Any], entries: t.Mapping[str, ImageImport]
) -> tuple[Outcomes, Outcomes, set[str]]:
    """Return the outcomes of uploads and of removals in a store, and the uploads without an answer of the host. It never raises: the other stores
    have their turn.
    """
    unknown: set[str] = set()
    uploads: Outcomes = {}
    removals: Outcomes = {}
    images: list[Image] = []
    for image_id, name in work["uploads"].items():
        entry = entries.get(name)
        if entry is None:
            uploads[image_id] = _without_entry(name)
        else:
            images.append(dataclasses.replace(entry.image, id=image_id))
    copied = [image for image in images if image.path and not is_local(action)]
    try:
        with uploaded(action, copied) as (paths, refused):
            uploads.update(refused)
            ready = [image for image in images if image.id not in refused]
            outcomes = _run(action, work, ready, paths)
            unknown = _sort(action, outcomes, ready, work["removals"], uploads, removals)
    except errors.BootflowError as e:
        unknown = _fail(e, images, work["removals"], uploads, removals)
    except Exception as e:  # any exception: the other stores continue, and the play too
        unknown = _fail(action.unexpected(e), images, work["removals"], uploads, removals)
    return uploads, removals, unknown


def _run(
    action: LedgerAction, work: t.Mapping[str, t.Any], images: t.Sequence[Image], paths: t.Mapping[str, str]
) -> t.Mapping[str, t.Any]:
    """Have the host work on its files. Returns the outcomes of the module."""
    if not images and not work["removals"]:
        return {}
    arguments = {
        "path": work["path"],
        "mode": work["mode"],
        "images": [module_image(image, is_local(action), action.task_vars["inventory_hostname"]) for image in images],
        "removed": list(work["removals"]),
        "uploads": dict(paths),
        # An entry without a checksum was refused unless it says allow_unverified.
        "allow_unverified": any(not image.checksum for image in images),
        **fetch_arguments(host_settings.read_current_host(action)),
    }
    outcomes: t.Mapping[str, t.Any] = action.run_module("image_file", arguments)["outcomes"]
    return outcomes


def _sort(
    action: LedgerAction,
    outcomes: t.Mapping[str, t.Any],
    images: t.Sequence[Image],
    removal_ids: t.Sequence[str],
    uploads: Outcomes,
    removals: Outcomes,
) -> set[str]:
    """Put the outcomes of the module where they belong. Returns the ids of uploads of which it gave no answer that can be true."""
    unknown: set[str] = set()
    failed = item_errors({"outcomes": outcomes}, [*(image.id for image in images), *removal_ids])
    for image in images:
        answer = outcomes.get(image.id) or {}
        error = failed.get(image.id) or _nonsense(action, image, answer)
        uploads[image.id] = error or Uploaded(answer["size"], answer["checksum"])
        if error is not None and not answer.get("error"):
            unknown.add(image.id)
    removals.update({image_id: failed.get(image_id) for image_id in removal_ids})
    return unknown


def _nonsense(action: LedgerAction, image: Image, answer: t.Mapping[str, t.Any]) -> errors.BootflowError | None:
    """Return why the host cannot have written the image as it says; None: it may be true."""
    if "size" not in answer or "checksum" not in answer:
        return errors.RemoteError(reason="the module gave neither size nor checksum of %s" % image.id)
    wanted = parse_checksum(image.checksum) if image.checksum else None
    if wanted is None or wanted.algorithm != SHA256 or wanted.digest in ("", answer["checksum"]):
        return None
    return errors.InvalidAnswer(
        host=action.task_vars["inventory_hostname"],
        module="image_file",
        path="outcomes[%s].checksum" % image.id,
        expects=wanted.digest,
        got=answer["checksum"],
    )


def _fail(
    error: errors.BootflowError,
    images: t.Sequence[Image],
    removal_ids: t.Sequence[str],
    uploads: Outcomes,
    removals: Outcomes,
) -> set[str]:
    """Fail all that has no outcome yet. Returns the ids of uploads that it failed."""
    failed = {image.id for image in images} - set(uploads)
    for image in images:
        uploads.setdefault(image.id, error)
    for image_id in removal_ids:
        removals.setdefault(image_id, error)
    return failed


def _without_entry(name: str) -> errors.BootflowError:
    return errors.ImageNotReadable(
        image_id=name,
        reason="this task has no entry of the name in bootflow_image_imports, or not its store in bootflow_image_stores",
        remedy="Set both for all hosts, as with -e or in group_vars/all.",
    )
