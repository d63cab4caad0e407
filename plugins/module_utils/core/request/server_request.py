# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parses the entries of bootflow_instances into ServerRequests, reporting every error of every entry at once.

source: Nova's Controller.create and API.create. The cost of an entry does not depend on its count.
"""

from __future__ import annotations

import contextlib
import typing as t

from ..disks.block_device_mapping import DEFAULT_ROOT_DEVICE, brings_root
from ..errors import (
    AmbiguousHostnameForMultipleInstances,
    FixedIpAlreadyInUse,
    FlavorMemoryTooSmall,
    ForcedHostForbidden,
    InvalidInput,
    MalformedRequestBody,
    OwnerForbidden,
    PolicyNotAuthorized,
)
from ..guest.config_drive_rules import check_files
from ..instances.quotas import DEFAULTS, limits_of
from ..instances.request import DEFAULT_GROUPS, ServerRequest
from ..instances.server_groups import ServerGroup
from ..model import BlockDevice, Flavor, Image, InjectedFile, NetworkRequest
from ..reading.formats import to_boolean, to_integer
from ..reading.problems import Problems
from ..reading.size import check_size
from ..resources.claims import Overhead, overhead_of
from ..resources.numa.topology import GuestNUMATopology
from .catalogue import Catalogue
from .guest_data import requested_files, requested_metadata, requested_user_data
from .hints import requested_hints
from .image_rules import disk_config, image_errors, property_errors
from .later import later_fields, later_security_groups
from .networks import requested_networks
from .options import POLICIES, RequestOptions
from .requested_block_devices import legacy_block_devices, requested_block_devices, root_image, root_name
from .requested_resources import RequestedResources, requested_resources
from .schema import ALWAYS, BY_BOOT, IN_VERSION_1, IN_VERSION_2, entry_errors, request_validator, without_nulls

#: Nova's limit of instances.display_name
MAX_NAME = 255

#: the fields of a ServerRequest; fields of user fragments go into ``extra``
HONOURED = frozenset(
    """
    name flavor image metadata project user description count min_count max_count return_reservation_id networks
    access_ip_v4 access_ip_v6 admin_password availability_zone block_device_mapping legacy_bdm config_drive disk_config
    hostname injected_files key_name host hypervisor_hostname scheduler_hints security_groups check_server_group_quota
    tags trusted_image_certificates user_data user_data_base64 state locked locked_reason allow
    """.split()
)


def parse_requests(
    entries: t.Any, catalogue: Catalogue, options: t.Optional[RequestOptions] = None
) -> list[ServerRequest]:
    """One ServerRequest per entry, in order, with all defaults.

    Networks and subnets become ids, addresses their short form. If the entry does not say otherwise, a config drive is
    requested when data (user data, files, key, password) reach the guest only on it.

    :raises InvalidRequest: all errors in ``errors``, each with path, code, status, message and remedy.
    :raises InvalidInput: the schema fragments are invalid.
    """
    options = options or RequestOptions()
    problems = Problems()
    validator = request_validator(options.schema_dirs)
    limits = _Limits(options.quotas, problems)
    if not isinstance(entries, (list, tuple)):
        problems.add("instances", MalformedRequestBody(reason="the instances must be a list"))
        problems.raise_if_any()
    requests = []
    for index, raw in enumerate(entries):
        path = "instances[%d]" % index
        try:
            check_size(raw, path)
        except InvalidInput as error:
            problems.add(path, error)
            continue
        entry = without_nulls(raw)
        entry_problems = entry_errors(validator, entry, path, _refused_words(entry, options))
        problems.extend(entry_problems)
        if isinstance(entry, t.Mapping):
            bad = {_top_field(error["path"], path) for error in entry_problems}
            requests.append((path, _Entry(entry, bad, path, catalogue, options, limits, problems).request()))
    _check_count(requests, options.max_count, problems)
    _check_batch(requests, problems)
    problems.raise_if_any()
    return [request for _path, request in requests]


def _refused_words(entry: t.Any, options: RequestOptions) -> list[str]:
    """The words of x-refused that hold for an entry."""
    legacy = False
    with contextlib.suppress(ValueError):
        legacy = isinstance(entry, t.Mapping) and to_boolean(entry.get("legacy_bdm", False))
    return [ALWAYS, IN_VERSION_1 if legacy else IN_VERSION_2, *([] if options.follows_file else [BY_BOOT])]


def _top_field(error_path: str, entry_path: str) -> str:
    return error_path[len(entry_path) + 1 :].partition(".")[0].partition("[")[0]


class _Limits:
    """The limits of each project, read once."""

    def __init__(self, quotas: t.Mapping[str, t.Any], problems: Problems):
        self.quotas = quotas
        self.problems = problems
        self._read: dict[str, dict[str, int]] = {}

    def limits_of_project(self, project: str) -> dict[str, int]:
        if project not in self._read:
            self._read[project] = DEFAULTS
            with self.problems.collect("bootflow_quotas"):
                self._read[project] = limits_of(self.quotas, project)
        return self._read[project]


class _Entry:
    """One entry while it is parsed. Fields that fail the schema's check count as left out."""

    def __init__(
        self,
        entry: t.Mapping[str, t.Any],
        bad: t.Container[str],
        path: str,
        catalogue: Catalogue,
        options: RequestOptions,
        limits: _Limits,
        problems: Problems,
    ):
        self.entry = entry
        self.bad = bad
        self.path = path
        self.catalogue = catalogue
        self.options = options
        self.limits = limits
        self.problems = problems

    def get(self, name: str, default: t.Any = None) -> t.Any:
        return default if name in self.bad else self.entry.get(name, default)

    def at(self, name: str) -> str:
        return "%s.%s" % (self.path, name)

    def text(self, name: str, default: t.Optional[str] = None) -> t.Any:
        value = self.get(name)
        return default if value is None or value == "" else str(value)

    def request(self) -> ServerRequest:
        self._check_policies()
        min_count, max_count = self._counts()
        name = self.text("name", "")
        flavor, image = self._flavor(), self._image()
        devices = self._block_devices(image, max_count)
        # the source of the guest's properties: its image, or the image of its root volume
        meta = image or root_image(devices, self._find_image)
        zone, host, node = self._zone()
        networks: tuple[NetworkRequest, ...] = ()
        if "networks" not in self.bad:
            networks = requested_networks(
                self.get("networks"), max_count, self.catalogue, self.options, self.at("networks"), self.problems
            )
        user_data = requested_user_data(self.get("user_data"), self.get("user_data_base64"), self.path, self.problems)
        project = self.text("project", self.options.default_project)
        limits = self.limits.limits_of_project(project)
        files = requested_files(self.get("injected_files", ()), limits, self.at("injected_files"), self.problems)
        key_name, key_data = self._key()
        hints, group = self._hints(project)
        resources = RequestedResources()
        if flavor is not None:
            filters = None if host or node else self.options.enabled_filters  # a forced host is not filtered
            aliases = self.catalogue.pci_aliases
            resources = requested_resources(flavor, meta, aliases, self.at("flavor"), self.problems, filters)
        for field, error in later_fields(self.entry, self.bad):
            self.problems.add(self.at(field), error)
        return ServerRequest(
            name=name,
            # a request with errors is never returned, nor is the placeholder of a missing flavor
            flavor=flavor or Flavor(name="", memory_mb=0, vcpus=0),
            image=image,
            min_count=min_count,
            max_count=max_count,
            project=project,
            user=self.text("user", ""),
            description=self.text("description", ""),
            networks=networks,
            availability_zone=zone,
            forced_host=host,
            forced_node=node,
            scheduler_hints=hints,
            metadata=requested_metadata(self.get("metadata", {}), limits, self.at("metadata"), self.problems),
            tags=tuple(sorted(set(self.get("tags", ())))),
            user_data=user_data,
            config_drive=self._config_drive(meta, user_data, files, key_name),
            key_name=key_name,
            key_data=key_data,
            admin_password=self.text("admin_password"),
            injected_files=files,
            block_device_mapping=devices,
            security_groups=self._security_groups(),
            access_ip_v4=self.text("access_ip_v4"),
            access_ip_v6=self.text("access_ip_v6"),
            disk_config=self._disk_config(image, meta, flavor),
            hostname=self._hostname(max_count),
            state=self.text("state"),
            locked=self._locked(),
            locked_reason=self.text("locked_reason", ""),
            allow=tuple(sorted(self.get("allow", ()))),
            extra={key: value for key, value in self.entry.items() if key not in HONOURED and key not in self.bad},
            server_group=group,
            check_server_group_quota=self._check_server_group_quota(group),
            numa_topology=resources.numa_topology,
            pci_requests=resources.pci_requests,
            whole_disks=resources.whole_disks,
            overhead=self._overhead(flavor, resources.numa_topology),
            root_image=meta if image is None else None,
        )

    def _locked(self) -> t.Optional[bool]:
        locked = self.get("locked")
        if not self.text("locked_reason") or (locked is not None and to_boolean(locked)):
            return None if locked is None else to_boolean(locked)
        self.problems.add(
            self.at("locked_reason"),
            InvalidInput(message="locked_reason without a lock", remedy="Set locked: true, or leave the reason out."),
        )
        return None

    def _overhead(self, flavor: t.Optional[Flavor], cells: t.Optional[GuestNUMATopology]) -> Overhead:
        if flavor is None:
            return Overhead()
        isolated = cells is not None and cells.emulator_isolated
        return overhead_of(flavor.vcpus, flavor.memory_mb, self.options.overhead, isolated)

    def _check_policies(self) -> None:
        """source: Nova's API._check_create_policies"""
        for action, field in POLICIES.items():
            if action in self.options.denied_policies and (action == "create" or self.get(field)):
                self.problems.add(self.at(field), PolicyNotAuthorized(action=action))
        project, user = self.options.default_project, self.options.user
        owners = {
            "project": (project, "bootflow_project is %s" % project),
            "user": (user, "the playbook is run by %s" % (user or "nobody")),
        }
        for field, (owner, of_run) in owners.items():
            wanted = self.text(field, owner)
            if wanted != owner and not self.options.allow_other_owners:
                self.problems.add(self.at(field), OwnerForbidden(field=field, wanted=wanted, of_run=of_run))

    def _counts(self) -> tuple[int, int]:
        """(min, max): min defaults to 1, max to min; count is both."""
        count, low, high = (self.get(name) for name in ("count", "min_count", "max_count"))
        if count is not None and (low is not None or high is not None):
            self.problems.add(
                self.at("count"),
                InvalidInput(
                    message="count excludes min_count and max_count",
                    remedy="Give count alone, or min_count and max_count.",
                ),
            )
        low = to_integer(low if low is not None else count if count is not None else 1)
        high = to_integer(high if high is not None else count if count is not None else low)
        if low > high and "min_count" not in self.bad and "max_count" not in self.bad:
            self.problems.add(
                self.at("min_count"),
                InvalidInput(message="min_count must be <= max_count", remedy="Lower min_count, or raise max_count."),
            )
        longest = len(self.text("name", "")) + len("-%d" % high)
        if high > 1 and longest > MAX_NAME:
            self.problems.add(
                self.at("name"),
                InvalidInput(
                    message="Names would have %d characters with the number behind, more than %d" % (longest, MAX_NAME),
                    remedy="Use a shorter name.",
                ),
            )
        return low, high

    def _flavor(self) -> t.Optional[Flavor]:
        requested = self.text("flavor", self.options.default_flavor)
        if requested is not None:
            with self.problems.collect(self.at("flavor")):
                return self.catalogue.flavor(str(requested))
        elif "flavor" not in self.bad:
            self.problems.add(
                self.at("flavor"),
                InvalidInput(
                    message="Missing flavorRef attribute: flavor",
                    remedy="Name a flavor, or set bootflow_default_flavor.",
                ),
            )
        return None

    def _image(self) -> t.Optional[Image]:
        requested = self.text("image")
        if requested is not None:
            with self.problems.collect(self.at("image")):
                return self._find_image(requested)
        elif "image" not in self.bad and not self.entry.get("block_device_mapping"):
            self.problems.add(
                self.at("image"),
                InvalidInput(message="Missing imageRef attribute: image", remedy="Name an image of bootflow_images."),
            )
        return None

    def _find_image(self, name_or_id: str) -> Image:
        """Return an image that the project of the entry sees. :raises BootflowError: see Catalogue.image()"""
        return self.catalogue.image(name_or_id, self.text("project", self.options.default_project))

    def _zone(self) -> tuple[t.Optional[str], t.Optional[str], t.Optional[str]]:
        zone = host = node = None
        text = self.text("availability_zone")
        with self.problems.collect(self.at("availability_zone")):
            zone, host, node = parse_az(text, self.options.default_schedule_zone)
            if (host or node) and not self.options.allow_forced_host:
                raise ForcedHostForbidden(zone=text)
            known = self.options.availability_zones
            # as in Nova: a forced host overrides everything else
            if zone is not None and known is not None and not host and zone not in known:
                raise InvalidInput(
                    message="The requested availability zone is not available: %s" % zone,
                    remedy="Zones here: %s." % (", ".join(sorted(known)) or "none"),
                )
        return zone, host, node

    def _hints(self, project: str) -> tuple[dict[str, t.Any], t.Optional[ServerGroup]]:
        return requested_hints(
            self.get("scheduler_hints", {}),
            project,
            self.catalogue,
            self.options,
            self.at("scheduler_hints"),
            self.problems,
        )

    def _check_server_group_quota(self, group: t.Optional[ServerGroup]) -> bool:
        """Nova leaves this to the operator; here it may be false only if forced hosts are allowed."""
        check = to_boolean(self.get("check_server_group_quota", True))
        if not check and group is not None and not self.options.allow_forced_host:
            self.problems.add(
                self.at("check_server_group_quota"),
                PolicyNotAuthorized(
                    action="create:check_server_group_quota",
                    remedy="Leave the host out, or set bootflow_allow_forced_host: true for administrators.",
                ),
            )
        return check

    def _security_groups(self) -> tuple[str, ...]:
        requested = [item["name"] if isinstance(item, t.Mapping) else item for item in self.get("security_groups", ())]
        for error in later_security_groups(requested, self.options.filters_ports):
            self.problems.add(self.at("security_groups"), error)
        return tuple(dict.fromkeys(str(name) for name in requested)) or DEFAULT_GROUPS

    def _key(self) -> tuple[t.Optional[str], t.Optional[str]]:
        name = self.text("key_name")
        if name is not None:
            with self.problems.collect(self.at("key_name")):
                return name, self.catalogue.keypair(name)
        return None, None

    def _config_drive(
        self,
        image: t.Optional[Image],
        user_data: t.Optional[str],
        files: tuple[InjectedFile, ...],
        key: t.Optional[str],
    ) -> t.Optional[bool]:
        if image is not None and files:
            with self.problems.collect(self.at("injected_files")):
                check_files(image.properties, files)
        requested = self.get("config_drive")
        asked = None if requested is None else to_boolean(requested)
        needs = {
            "user_data": user_data,
            "injected_files": files,
            "key_name": key,
            "admin_password": self.text("admin_password"),
        }
        needing = [name for name, value in needs.items() if value]
        if not needing or asked:
            return asked
        mandatory = image is not None and image.properties.get("img_config_drive") == "mandatory"
        if asked is None:
            return True
        if self.options.force_config_drive or mandatory:
            return asked
        self.problems.add(
            self.at("config_drive"),
            InvalidInput(
                message="%s cannot reach the guest without a config drive" % ", ".join(needing),
                remedy="Set config_drive: true (there is no metadata service), or leave the field out.",
            ),
        )
        return asked

    def _block_devices(self, image: t.Optional[Image], max_count: int) -> tuple[BlockDevice, ...]:
        requested = self.get("block_device_mapping", ())
        name = DEFAULT_ROOT_DEVICE
        with self.problems.collect(self.at("image")):
            name = root_name(image)
        if to_boolean(self.get("legacy_bdm", False)):
            return legacy_block_devices(requested, image, max_count, self.at("block_device_mapping"), self.problems)
        return requested_block_devices(
            requested,
            has_image=self.text("image") is not None,
            max_count=max_count,
            root_device_name=name,
            path=self.at("block_device_mapping"),
            problems=self.problems,
            find_image=self._find_image,
        )

    def _disk_config(self, image: t.Optional[Image], meta: t.Optional[Image], flavor: t.Optional[Flavor]) -> str:
        if image is not None:
            with self.problems.collect(self.at("image")):
                for error in image_errors(image, flavor, brings_root(image), self.options.allow_zero_disk):
                    self.problems.add(self.at("image"), error)
        elif meta is not None:
            for error in property_errors(meta.properties):
                self.problems.add(self.at("block_device_mapping"), error)
            if flavor is not None and flavor.memory_mb < meta.min_ram:
                self.problems.add(self.at("block_device_mapping"), FlavorMemoryTooSmall())
        with self.problems.collect(self.at("disk_config")):
            return disk_config(self.text("disk_config"), meta)
        return "MANUAL"

    def _hostname(self, max_count: int) -> t.Optional[str]:
        hostname: t.Optional[str] = self.text("hostname")
        if hostname and max_count > 1:
            self.problems.add(self.at("hostname"), AmbiguousHostnameForMultipleInstances())
        return hostname


def parse_az(
    text: t.Optional[str], default: t.Optional[str] = None
) -> tuple[t.Optional[str], t.Optional[str], t.Optional[str]]:
    """The zone string of a request (zone, zone:host, zone:host:node, zone::node): zone, forced host, forced node.

    A missing part is None, a missing zone ``default``.
    source: Nova's _handle_availability_zone.

    :raises InvalidInput: more than three parts, or not a text.
    """
    parts = text.split(":") if isinstance(text, str) else [""]
    if len(parts) > 3 or not isinstance(text or "", str):
        raise InvalidInput(
            reason="Unable to parse availability_zone",
            remedy="Write zone, zone:host, zone:host:node or zone::node.",
        )
    zone, host, node = (parts + ["", ""])[:3]
    return zone or default or None, host or None, node or None


def _check_count(requests: t.Sequence[tuple[str, ServerRequest]], most: int, problems: Problems) -> None:
    """Refuse what would be expanded to too many instances: at the entry with which they are too many."""
    total = 0
    for path, request in requests:
        total += request.max_count
        if total > most:
            problems.add(
                path + ".max_count",
                InvalidInput(
                    message="The request has %d instances up to here, more than %d" % (total, most),
                    remedy="Request fewer, in several runs, or raise bootflow_max_count.",
                ),
            )
            return


def _check_batch(requests: t.Sequence[tuple[str, ServerRequest]], problems: Problems) -> None:
    """Check names within a project and addresses, which two entries of a run cannot share."""
    names: dict[tuple[str, str], str] = {}
    series: dict[tuple[str, str], tuple[int, str]] = {}
    for path, request in requests:
        key = (request.project, request.name)
        if not request.name:
            continue
        if key in names:
            problems.add(path + ".name", _duplicate_name(request.name, names[key]))
            continue
        names[key] = path
        if request.max_count > 1:
            series[key] = (request.max_count, path)
    for path, request in requests:
        if request.max_count > 1:
            continue
        base, dash, number = request.name.rpartition("-")
        count, other = series.get((request.project, base), (0, ""))
        if dash and number.isascii() and number.isdigit() and number == str(int(number)) and 1 <= int(number) <= count:
            problems.add(path + ".name", _duplicate_name(request.name, other))
    _check_addresses(requests, problems)


def _duplicate_name(name: str, other: str) -> InvalidInput:
    return InvalidInput(
        message="Name %s is also the name of an instance of %s" % (ascii(name), other),
        remedy="Give each entry a name that is unique in its project, or use count.",
    )


def _check_addresses(requests: t.Sequence[tuple[str, ServerRequest]], problems: Problems) -> None:
    seen: set[tuple[t.Optional[str], str]] = set()
    for path, request in requests:
        for index, network in enumerate(request.networks):
            if network.fixed_ip is None:
                continue
            address = (network.subnet, network.fixed_ip)
            if address in seen:
                problems.add(
                    "%s.networks[%d].fixed_ip" % (path, index),
                    FixedIpAlreadyInUse(
                        message="IP address %s is requested twice" % network.fixed_ip,
                        remedy="Choose another fixed_ip, or leave it out.",
                    ),
                )
            seen.add(address)
