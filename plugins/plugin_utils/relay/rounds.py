# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages in which large images come to the hosts of a round that lack them, so that each leaves the controller, or the web server, once.

Hosts begin to receive and say where they listen (offer); hosts that have an image give it, where others lack it (serve). Each learns whom to ask
(connect). The controller sends an image that is its file to one host, by the task of the host that is the first one of the image's order (send), and who
needs it waits for it (collect). No stage fails a build or the play: what did not come so, a build gets by itself, as if there were no other hosts.

An image that only a store of a host has comes from that host, which takes part to give it. A build cannot get it by itself, and fails without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.answers.images import check_offer
from ...module_utils.core.answers.shapes import Misshapen
from ...module_utils.core.disks import image_checks
from ...module_utils.core.disks.checksums import SHA256
from ...module_utils.core.disks.image_urls import host_and_path, host_of
from ...module_utils.core.model import Image
from ...module_utils.core.reading.setting import Values
from ...module_utils.core.relay.plan import BUSY, LACKS, STORED, Plan, givers
from ...module_utils.core.request.catalogue import parse_images
from ...module_utils.core.request.catalogue_images import find_image
from ...module_utils.core.settings.hosts import HOST
from ...module_utils.core.settings.request import CATALOGUE
from ...module_utils.core.settings.run import RUN, TIME_LIMITS
from ...module_utils.flows.boot.builds import Build
from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.compute.instances import Instance
from ..run import host_settings, host_variables, tables
from ..run.inventory_hosts import reachable
from ..run.lease import lease_kept
from ..run.ledger_action import RUN_SECRET, LedgerAction, read_settings
from ..run.results import item_errors
from ..settings.image_upload import fetch_arguments, is_local, module_image
from . import sending
from .file_pieces import FilePieces, mark_of, of_file
from .large_images import image_data, is_large, is_of_use, lacking_file
from .round_files import Offers, RoundFiles, Wanted, plan_of

Result = t.Dict[str, t.Any]  # of a task
BEGINS, BEGINS_A_HOST = 300.0, 2.0  # seconds until all hosts know whom to ask: with few forks, that takes a while
SENDS = 20 * 10**6  # bytes a second that the controller reads of a file and sends, at least: one image after the other
_NO_OFFER: dict[str, t.Any] = {"bytes": 0, "port": 0, "fingerprint": "", "changed": False}
_NO_TASKS: dict[str, t.Any] = {
    "root": "",
    "sha256": "",
    "size": 0,
    "may_fetch": False,
    "before": [],
    "after": [],
    "origins": [],
}


def begin(action: LedgerAction, builds: t.Mapping[str, t.Sequence[Build]], catalogue: t.Any) -> list[str]:
    """Begin a round for the large images of these builds (host -> builds). Returns the hosts that are asked whether they lack one.

    :arg catalogue: bootflow_images
    """
    is_on = host_settings.values(action, RUN).image_relay
    needed = {host: {d["id"]: d for d in map(image_data, of_host) if d} for host, of_host in builds.items()}
    accepted = {image_id: data for of_host in needed.values() for image_id, data in of_host.items()}
    inventory = parse_images(catalogue).values()
    candidates = [find_image(inventory, data) for data in accepted.values() if is_on or host_of(data["url"])]
    images = {i.id: i for i in candidates if is_of_use(i, _hosts_of(i.id, needed)) and is_large(i)}
    reported = {host: of_host[0].facts.get("host_ip") for host, of_host in builds.items()}
    return _begin(action, {host: own.keys() & images.keys() for host, own in needed.items()}, images, reported)


def begin_of_stores(action: LedgerAction, needed: t.Mapping[str, t.Iterable[Image]]) -> list[str]:
    """Begin a round for the images that only stores of hosts have. Returns the hosts of the round. :arg needed: host -> images that it needs"""
    of_hosts = {host: {i.id: i for i in images if host_of(i.url) not in ("", host)} for host, images in needed.items()}
    images = {i: image for own in of_hosts.values() for i, image in own.items()}
    return _begin(action, of_hosts, images, addresses_of(action) if images else {})


def begin_for(action: LedgerAction, rows: t.Iterable[Instance], images: t.Mapping[str, Image]) -> dict[str, t.Any]:
    """Begin a round of begin_of_stores() for instances. Returns its hosts, and the file that is there once one lacks an image: {images, lacking};
    empty: there is no round.

    :arg images: that their hosts need, by the uuids of instances
    """
    needed: dict[str, list[Image]] = {}
    for row in rows:
        if row.uuid in images and row.host:
            needed.setdefault(str(row.host), []).append(images[row.uuid])
    hosts = begin_of_stores(action, needed)
    return {"images": hosts, "lacking": str(lacking_file(action))} if hosts else {}


def _begin(
    action: LedgerAction,
    needed: t.Mapping[str, t.Collection[str]],
    images: t.Mapping[str, Image],
    reported: t.Mapping[str, str | None],
) -> list[str]:
    """Begin a round. Returns its hosts. :arg needed: host -> ids of images. :arg reported: addresses of hosts"""
    wanted = [wanted_of(action, host, reported.get(host), ids) for host, ids in needed.items() if ids]
    wanted += store_hosts_of(action, images.values(), {w.name for w in wanted})
    RoundFiles(action).begin(wanted, images.values())
    return [w.name for w in wanted]


def _hosts_of(image_id: str, needed: t.Mapping[str, t.Collection[str]]) -> list[str]:
    return [host for host, ids in needed.items() if image_id in ids]


def addresses_of(action: LedgerAction) -> dict[str, str | None]:
    """Return the addresses that compute hosts have reported."""
    with_addresses = action.open_ledger().inspect(nodes.rows, ("host", "node", "host_ip"))
    return {row.host: row.host_ip for row in with_addresses}


def store_hosts_of(action: LedgerAction, images: t.Iterable[Image], known: t.Collection[str]) -> list[Wanted]:
    """Return the hosts whose stores have these images, without the ``known`` ones and hosts that the inventory lacks. They need none of the images."""
    names = sorted({host_of(image.url) for image in images} - {"", *known})
    reported = addresses_of(action) if names else {}
    return [wanted_of(action, name, reported.get(name), ()) for name in reachable(action, names)]


def wanted_of(action: LedgerAction, host: str, reported: str | None, images: t.Collection[str]) -> Wanted:
    """A host of a round. :arg reported: its address, as it reported"""
    variables = host_variables.of_host(action.task_vars["hostvars"], host)
    address = HOST.read(variables).copy_address or reported or variables.get("ansible_host") or host
    return Wanted(host, str(address), str(variables.get("bootflow_availability_zone") or ""), sorted(images))


class ImageRound:
    """The stages on a host, by the option of the action: its phase."""

    def __init__(self, action: LedgerAction):
        self.action, self.options = action, action.options
        self.host: str = action.task_vars["inventory_hostname"]
        self.files = RoundFiles(action)
        self.images, self.count = self.files.wanted_of(self.host)

    def run(self) -> Result:
        """Run the stage that the task is for. Returns the result of the task."""
        stages = {"offer": self.offer, "serve": self.serve, "connect": self.connect, "send": self.send}
        if self.action.check_mode or not self.count:
            return {"changed": False, "skipped": True}
        try:
            with lease_kept(self.action):
                return {"changed": stages[self.options["phase"]]()}
        except errors.BootflowError as error:
            self._warn("%s: images do not come from other hosts: %s" % (self.host, error.message))
            return {"changed": False}

    # --- the host -----------------------------------------------------------------------------------------------------

    def offer(self) -> bool:
        """Begin to receive what the host lacks."""
        images = self._images(self.images)
        local = [
            i for i in images if i.path and is_local(self.action)
        ]  # it reads the controller's files where they are
        stored = [i for i in images if host_of(i.url) == self.host]  # and files of the host's stores
        others = [i for i in images if i not in local and i not in stored]
        offers = self._offered(others, serves=False) if others else {}
        read = {**{i.id: "local" for i in local}, **{i.id: STORED for i in stored}}
        self.files.offered(self.host, {**offers, **{i: {**_NO_OFFER, "state": state} for i, state in read.items()}})
        return any(offer.get("changed") for offer in offers.values())

    def serve(self) -> bool:
        """Give what the host has, and others lack: the host whose store has it, and the first ones that have it."""
        self.files.once("holders", self._choose_holders)
        wanted = self.files.read(self.host, "serves") or []
        if wanted:
            images = self._images(wanted)
            offers = self._offered(images, serves=True)
            own = {i.id for i in images if host_of(i.url) == self.host}  # who lacks these learns why they are not given
            given = {i: offer for i, offer in offers.items() if not offer.get("error") or i in own}
            self.files.offered(self.host, {**self.files.offers_of(self.host), **given})
        return bool(wanted)

    def _choose_holders(self) -> None:
        """Choose the hosts that give images, for all hosts."""
        offers = self.files.all_offers()
        serves: dict[str, list[str]] = {}
        for image in self._images(list(dict.fromkeys(i for own in offers.values() for i in own))):
            states = {name: str(own[image.id]["state"]) for name, own in offers.items() if image.id in own}
            store_host = host_of(image.url)
            for name in givers(states, store_host if store_host in offers else ""):
                serves.setdefault(name, []).append(image.id)
        for name, images in serves.items():
            self.files.leave(name, "serves", images)

    def _offered(self, images: t.Sequence[Image], serves: bool) -> Offers:
        settings = host_settings.read_current_host(self.action)
        first, last = map(int, settings.copy_ports.split("-"))
        more = {
            i.id: {
                "bytes": _size(i),
                "token": _token("image %s" % i.id),
                "serves": serves,
                **({"path_on_host": path} if serves and store_host == self.host else {}),
            }
            for i in images
            for store_host, path in [host_and_path(i.url)]
        }
        arguments = {
            **self._arguments("offered", images, more),
            "name": self.host,
            "first_port": first,
            "last_port": last,
            "stop_token": _token("end on %s" % self.host),
            "lifetime": 2.0 * self._limits().copy_timeout,
            "begins": BEGINS + BEGINS_A_HOST * self.count + sum(map(_size, images)) / SENDS,
        }
        result = self.action.run_module("image_relay", arguments)
        problems = item_errors(result, [i.id for i in images])
        for image in images:
            if image.id in problems:
                self._warn("%s: image %s: %s" % (self.host, image.name, problems[image.id].message))
        offers = {i.id: dict(result["outcomes"][i.id]) for i in images if i.id not in problems}
        for image_id, offer in offers.items():
            self._check(image_id, offer)
        return {**offers, **{i: {**_NO_OFFER, "state": "failed", "error": e.as_dict()} for i, e in problems.items()}}

    def _check(self, image_id: str, offer: t.Mapping[str, t.Any]) -> None:
        """:raises InvalidAnswer: the tasks of other hosts could not read it"""
        try:
            check_offer(offer, "outcomes.%s" % image_id)
        except Misshapen as wrong:
            raise errors.InvalidAnswer(
                host=self.host, module="image_relay", path=wrong.path, expects=wrong.expects, got=repr(wrong.got)
            ) from None

    def connect(self) -> bool:
        """Tell the processes of the host whom they ask."""
        self.files.once("orders", self._make_orders)
        own, orders = self.files.offers_of(self.host), self.files.read(self.host, "orders") or {}
        coming = [i for i, offer in own.items() if offer["state"] == BUSY]  # another run brings it
        failed = self._images([i for i, offer in own.items() if offer.get("error")])
        coming += [i.id for i in failed if host_of(i.url) not in ("", self.host)]  # no build gets it by itself
        tasks: dict[str, t.Any] = {}
        sends: dict[str, str] = {}
        images = self._images([i for i, offer in own.items() if offer["state"] == LACKS and i in orders])
        for image in images:
            try:
                tasks[image.id] = self._tasks(image, orders[image.id])
            except errors.BootflowError as error:
                tasks[image.id] = {"error": error.as_dict()}
            if orders[image.id]["is_first"] and image.path and not orders[image.id]["has_holders"]:
                sends[image.id] = tasks[image.id].get("root") or ""
        self.files.begins_with(self.host, sends)  # also if this host does not answer: the others wait for the image
        if images:
            self.action.run_module(
                "image_relay",
                self._arguments(
                    "connected",
                    images,
                    {i: {"tasks": task, "token": _token("image %s" % i)} for i, task in tasks.items()},
                ),
            )
        self.files.connected(self.host, [*coming, *tasks])
        return bool(tasks)

    def _make_orders(self) -> None:
        """Make the order of each image, and leave to each host that lacks some whom it asks."""
        hosts, offers = self.files.hosts(), self.files.all_offers()
        orders: dict[str, dict[str, t.Any]] = {}

        def peers(names: t.Iterable[str], image_id: str) -> list[dict[str, t.Any]]:
            return [
                {
                    "name": name,
                    "address": hosts[name].address,
                    **{n: offers[name][image_id][n] for n in ("port", "fingerprint")},
                }
                for name in names
            ]

        for image in self._images(list(dict.fromkeys(i for own in offers.values() for i in own))):
            image_id = image.id
            order = plan_of(image_id, hosts, offers)
            error = None if order.holders else _not_given(image, offers)
            for place, name in enumerate(order.names):
                orders.setdefault(name, {})[image_id] = {
                    "is_first": not place,
                    "error": error.as_dict() if error else None,
                    "has_holders": bool(order.holders),
                    "before": peers(order.before(name), image_id),
                    "after": peers(order.after(name), image_id),
                    "origins": peers((n for n in order.origins(name) if n != name), image_id),
                }
        for name, own in orders.items():
            self.files.leave(name, "orders", own)

    def _tasks(self, image: Image, order: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Whom the process of this host asks for an image. :arg order: see _make_orders()

        :raises BootflowError: the file is not the catalogue's, the controller cannot send it to this host, or the host of its store does not give it.
        """
        if order["error"]:
            raise errors.from_dict(order["error"])
        may_fetch = not image.path and not host_of(image.url)
        tasks = {**_NO_TASKS, "before": order["before"], "after": order["after"], "may_fetch": may_fetch}
        if order["has_holders"] or not image.path:
            return {**tasks, "origins": order["origins"]}
        known = self._pieces(image)
        self._program(image, self.host)  # it must be possible: the controller sends it to this one if others are gone
        return {**tasks, "root": known.pieces.root(), "sha256": known.sha256, "size": known.pieces.size}

    # --- the controller -----------------------------------------------------------------------------------------------

    def send(self) -> bool:
        """Send the images whose orders begin with this host: files of the controller."""
        roots = self.files.first_of(self.host)
        offers, hosts = (self.files.all_offers(), self.files.hosts()) if roots else ({}, {})
        sent = False
        for image in self._images(roots):
            try:
                sent = self._send(image, plan_of(image.id, hosts, offers), roots[image.id]) or sent
            except OSError as error:
                self._warn("image %s: %s: %s" % (image.name, os.path.expanduser(image.path), error.strerror))
            except errors.BootflowError:  # the task of each host fails with it
                continue
        return sent

    def _send(self, image: Image, order: Plan, root: str) -> bool:
        """Send a file to the first host that takes it; the others get it from there. :arg root: of its pieces, as the hosts know them; "": unknown"""
        known, path = self._pieces(image), os.path.expanduser(image.path)
        if root and known.pieces.root() != root:
            self._warn("image %s: %s has changed since the hosts learned its digests" % (image.name, path))
            return False
        for host in order.names:
            try:
                words = self._program(image, host)
            except errors.BootflowError:  # the task of that host fails with it
                continue
            size_mib, others = -(-(known.pieces.size or 0) >> 20), len(order.names) - 1
            more = ", which gives it to %d other%s" % (others, "" if others == 1 else "s") if others else ""
            tables.say(self.action._display, "%s: copying image %s (%d MiB)%s" % (host, image.name, size_mib, more))
            report = sending.reporter(
                "%s: copying image %s" % (host, image.name),
                known.pieces.size or 0,
                lambda line: tables.say(self.action._display, line),
            )
            reason = sending.send(words, path, known, report=report)
            if not reason and mark_of(os.stat(path)) == known.mark:
                return True
            if mark_of(os.stat(path)) != known.mark:
                self._warn("image %s: %s changed while it was sent" % (image.name, path))
                return False
            self._warn("%s: image %s is sent to the next host: %s" % (host, image.name, reason))
        return False

    def _pieces(self, image: Image) -> FilePieces:
        """:raises ImageUnacceptable, ImageChecksumMismatch: the file is not there, or not the catalogue's."""
        path = os.path.expanduser(image.path)
        try:
            known = of_file(path, self.files.run_folder)
        except OSError as error:
            raise errors.ImageUnacceptable(image_id=image.name, reason="%s: %s" % (path, error.strerror)) from None
        wanted = image_checks.checksum_of(image.checksum, image.name)
        if wanted is not None and wanted.algorithm == SHA256 and wanted.digest not in ("", known.sha256):
            raise errors.ImageChecksumMismatch(image_id=image.name, actual=known.sha256, expected=wanted.digest)
        return known

    def _program(self, image: Image, host: str) -> list[str]:
        """:raises HostUnreachable: see sending.program()"""
        variables = host_variables.of_host(self.action.task_vars["hostvars"], host)
        names = [n for n in variables if n.startswith("ansible_")]
        path = HOST.read(variables).instances_path
        return sending.program(host, {n: variables[n] for n in names}, path, image.id)

    # --- both ---------------------------------------------------------------------------------------------------------

    def _images(self, ids: t.Collection[str]) -> list[Image]:
        return images_of(self.action, self.files, ids)

    def _arguments(
        self, state: str, images: t.Sequence[Image], more: t.Mapping[str, t.Mapping[str, t.Any]]
    ) -> dict[str, t.Any]:
        return arguments(self.action, state, images, more)

    def _limits(self) -> Values:
        return host_settings.values(self.action, TIME_LIMITS)

    def _warn(self, text: str) -> None:
        self.action._display.warning(text)


def arguments(
    action: LedgerAction, state: str, images: t.Sequence[Image], more: t.Mapping[str, t.Mapping[str, t.Any]]
) -> dict[str, t.Any]:
    """Options of the module image_relay on the current host."""
    settings = host_settings.read_current_host(action)
    return {
        "state": state,
        "instances_path": settings.instances_path,
        "images": [
            {**module_image(i, False, action.task_vars["inventory_hostname"]), **more.get(i.id, {})} for i in images
        ],
        "allow_unverified": any(not i.checksum for i in images),
        **fetch_arguments(settings),
    }


def images_of(action: LedgerAction, files: RoundFiles, ids: t.Iterable[str]) -> list[Image]:
    """Return images of the round, as it began with them: of the inventory or of the ledger."""

    def catalogue() -> t.Iterable[Image]:
        declared = action.options.get("images")
        if declared is None:
            declared = read_settings(CATALOGUE.options("images"), {}, action.variable)["images"]
        return parse_images(declared).values()

    return files.images(ids, catalogue)


def collect(action: LedgerAction) -> dict[str, errors.BootflowError]:
    """Wait for the images that come to the current host from others. Returns image id -> why no build can use the image.

    What did not come is left to the build, which gets it by itself unless only a store of a host has it.
    """
    files, host = RoundFiles(action), action.task_vars["inventory_hostname"]
    ids = files.take_coming(host)
    own = files.offers_of(host)
    without = {i: errors.from_dict(own[i]["error"]) for i in ids if (own.get(i) or {}).get("error")}
    images = images_of(action, files, [i for i in ids if i not in without])
    if not images:
        return without
    tokens = {i.id: {"token": _token("image %s" % i.id)} for i in images}
    seconds = 0.9 * host_settings.values(action, TIME_LIMITS).copy_timeout
    try:
        result = action.run_module("image_relay", {**arguments(action, "collected", images, tokens), "wait": seconds})
    except errors.BootflowError as error:  # a host that does not answer does not answer to the build either
        action._display.warning("%s: images did not come from other hosts: %s" % (host, error.message))
        return {}
    files.collected(host, result["outcomes"])
    problems = item_errors(result, [i.id for i in images])
    for image in images:
        for other, offset in ((result["outcomes"].get(image.id) or {}).get("wrong") or {}).items():
            action._display.warning(
                "%s sent something else than image %s to %s, at byte %d: look at its memory and disks"
                % (other, image.name, host, offset)
            )
        if image.id in problems:
            text = "%s: image %s did not come from other hosts: %s"
            action._display.warning(text % (host, image.name, problems[image.id].message))
    # Another try may end otherwise where other hosts said what the image is.
    final = {i for i, e in problems.items() if isinstance(e, errors.ImageUnacceptable) and not e.retryable}
    final |= {i.id for i in images if host_of(i.url)}
    return {**without, **{i: e for i, e in problems.items() if i in final}}


def _not_given(image: Image, offers: t.Mapping[str, Offers]) -> errors.BootflowError | None:
    """Return why no host has an image that comes from the store of a host; None: it comes from elsewhere. :arg offers: of all hosts"""
    store_host = host_of(image.url)
    if not store_host:
        return None
    answer = (offers.get(store_host) or {}).get(image.id) or {}
    if answer.get("error"):
        return errors.from_dict(answer["error"])
    return errors.ImageNotReadable(
        image_id=image.name,
        reason="only a store of host %s has it, which did not answer" % store_host,
        remedy="Bring %s up, within the limit of the run, or import the image into another store." % store_host,
    )


def _size(image: Image) -> int:
    """Bytes of the file of the controller, or of a store of a host; 0: it is elsewhere, or not there."""
    if host_of(image.url):
        return image.size or 0
    with contextlib.suppress(OSError):
        return os.path.getsize(os.path.expanduser(image.path)) if image.path else 0
    return 0


def _token(purpose: str) -> str:
    """A token that only processes of this run can make."""
    return hmac.new(RUN_SECRET, purpose.encode(), hashlib.sha256).hexdigest()
