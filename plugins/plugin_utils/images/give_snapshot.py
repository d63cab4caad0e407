# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of instances that go from their host to the host of a store, by the process that gives images from host to host (hosts/relay)."""

from __future__ import annotations

import hashlib
import hmac
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.answers.images import check_offer
from ...module_utils.core.answers.shapes import Misshapen
from ...module_utils.core.images import snapshots
from ...module_utils.core.images.stores.store_kind import ImageStore
from ...module_utils.core.settings.hosts import HOST
from ...module_utils.core.settings.run import TIME_LIMITS
from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, host_variables
from ..run.ledger_action import RUN_SECRET, LedgerAction
from ..run.results import item_errors
from ..settings.image_upload import fetch_arguments

Image = t.Mapping[str, t.Any]  # id and name
Answer = t.Mapping[str, t.Any]  # of the instance's host
Failed = t.Dict[str, errors.BootflowError]  # by the ids of images


def addresses(action: LedgerAction, tx: Transaction, hosts: t.Collection[str]) -> dict[str, str]:
    """Return the addresses at which other hosts reach these."""
    reported = {row.host: row.host_ip for row in nodes.rows(tx, ("host", "node", "host_ip"))}
    address_by_host: dict[str, str] = {}
    for host in hosts:
        variables = host_variables.of_host(action.task_vars["hostvars"], host)
        own = HOST.read(variables).copy_address or reported.get(host)
        address_by_host[host] = str(own or variables.get("ansible_host") or host)
    return address_by_host


def begin(action: LedgerAction, made: t.Sequence[tuple[Image, Answer]]) -> tuple[dict[str, dict[str, t.Any]], Failed]:
    """Start a process on the current host for each file that it made. Returns image id -> its port and fingerprint, and why others have none."""
    if not made:
        return {}, {}
    settings = host_settings.read_current_host(action)
    first, last = map(int, settings.copy_ports.split("-"))
    seconds = host_settings.values(action, TIME_LIMITS).copy_timeout
    host = action.task_vars["inventory_hostname"]
    arguments = {
        "state": "offered",
        "instances_path": settings.instances_path,
        "images": [
            {
                **_described(image, answer),
                "path_on_host": answer["path"],
                "serves": True,
                "token": _token("give", image["id"]),
            }
            for image, answer in made
        ],
        "name": host,
        "first_port": first,
        "last_port": last,
        "stop_token": _token("end", host),
        "lifetime": 2.0 * seconds,
        "begins": 2.0 * seconds,  # the host of the store begins when all files are made
        **fetch_arguments(settings),
    }
    outcomes = action.run_module("image_relay", arguments)["outcomes"]
    failed: Failed = item_errors({"outcomes": outcomes}, [image["id"] for image, _answer in made])
    places: dict[str, dict[str, t.Any]] = {}
    for image, _answer in made:
        if image["id"] in failed:
            continue
        try:
            check_offer(outcomes[image["id"]], "outcomes.%s" % image["id"])
        except Misshapen as wrong:
            failed[image["id"]] = errors.InvalidAnswer(
                host=host, module="image_relay", path=wrong.path, expects=wrong.expects, got=repr(wrong.got)
            )
        else:
            places[image["id"]] = {n: outcomes[image["id"]][n] for n in ("port", "fingerprint")} | {"host": host}
    return places, failed


def receive(
    action: LedgerAction, store: ImageStore, given: t.Sequence[tuple[Image, Answer]]
) -> tuple[dict[str, t.Mapping[str, t.Any]], Failed]:
    """Have the current host receive files for its store, by a module for each.

    Returns the outcomes of the module image_file by the ids of images, and why some failed.
    """
    outcomes: dict[str, t.Mapping[str, t.Any]] = {}
    failed: Failed = {}
    for image, answer in given:
        image_id, host = image["id"], action.task_vars["inventory_hostname"]
        try:
            result = _received(action, store, image, answer)
            outcome = result["outcomes"].get(image_id) or {}
            failed.update(item_errors(result, [image_id]))
            if outcome.get("error"):  # its half file is gone
                outcomes[image_id] = {**outcome, snapshots.LEFT: False}
            elif image_id not in failed:
                outcomes[image_id] = outcome
                snapshots.check_received(host, image_id, answer, outcome)
        except errors.BootflowError as e:
            failed[image_id] = e
    return outcomes, failed


def _received(action: LedgerAction, store: ImageStore, image: Image, answer: Answer) -> t.Mapping[str, t.Any]:
    """Return the result of the module image_file."""
    place = {name: answer["giver"][name] for name in ("address", "port", "fingerprint")}
    tokens = {"token": _token("give", image["id"]), "stop_token": _token("end", answer["giver"]["host"])}
    described = {**_described(image, answer), "giver": {**place, **tokens}}
    settings = host_settings.read_current_host(action)
    arguments = {"path": store.path, "mode": store.kind.mode, "images": [described], **fetch_arguments(settings)}
    result: t.Mapping[str, t.Any] = action.run_module("image_file", arguments)
    return result


def _described(image: Image, answer: Answer) -> dict[str, t.Any]:
    """The file of an image, as its host made it."""
    return {
        "id": image["id"],
        "name": image["name"],
        "checksum": "sha256:%s" % answer["checksum"],
        "disk_format": answer["disk_format"],
        "size": answer["size"],
    }


def _token(purpose: str, name: str) -> str:
    """A token that only processes of this run can make."""
    return hmac.new(RUN_SECRET, ("snapshot: %s %s" % (purpose, name)).encode(), hashlib.sha256).hexdigest()
