# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The catalogue: flavors, images, networks, key pairs and groups in variables of the inventory."""

from __future__ import annotations

import base64
import binascii
import re
import struct
import typing as t
from dataclasses import dataclass, field

from ..errors import (
    BootflowError,
    FlavorNotFound,
    InvalidInput,
    InvalidRequest,
    KeypairNotFound,
    NetworkNotFound,
    SubnetNotFound,
)
from ..images.resolve import LedgerImages, resolve
from ..instances.server_groups import ServerGroup
from ..model import Flavor, Image
from ..networks.network import Network
from ..networks.subnet import Subnet
from ..reading.fields import Fields, catalogue_id, entries_of
from ..reading.nearest import suggestion
from ..reading.problems import Problems
from .catalogue_groups import find_server_group, read_server_groups
from .catalogue_images import read_image
from .catalogue_networks import NetworkReader
from .requested_resources import read_pci_aliases

_SPEC_KEY = re.compile(r"[a-zA-Z0-9_:. -]{1,255}\Z")
_KEY_TYPE = re.compile(r"[a-zA-Z0-9@.-]+\Z")

T = t.TypeVar("T")


@dataclass(frozen=True)
class Catalogue:
    """The objects that requests may name. The keys are names; lookups accept names and ids, ids first."""

    flavors: t.Mapping[str, Flavor] = field(default_factory=dict)
    images: t.Mapping[str, Image] = field(default_factory=dict)
    networks: t.Mapping[str, Network] = field(default_factory=dict)
    keypairs: t.Mapping[str, str] = field(default_factory=dict)  # name: public key
    server_groups: t.Mapping[tuple[str, str], ServerGroup] = field(default_factory=dict)  # (project, name): group
    pci_aliases: t.Any = field(default_factory=dict)  # from core.resources.pci.request.parse_aliases
    # name: the errors of an image, which count only for requests that name it
    image_errors: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]] = field(default_factory=dict)
    ledger_images: LedgerImages = field(default_factory=LedgerImages)  # that requests may name too

    def flavor(self, name_or_id: str) -> Flavor:
        """:raises FlavorNotFound: unknown, or disabled."""
        flavor = _find(self.flavors, name_or_id, "flavorid")
        if flavor is None:
            raise FlavorNotFound(flavor_id=name_or_id, remedy=suggestion(name_or_id, self.flavors, "bootflow_flavors"))
        if flavor.disabled:
            raise FlavorNotFound(
                message="Flavor %s is disabled." % name_or_id,
                remedy="Choose another flavor, or write disabled: false for this one.",
            )
        return flavor

    def image(self, name_or_id: str, project: str | None = None) -> Image:
        """The image of the inventory or of the ledger. :arg project: of the request; None: an administrator's

        :raises ImageNotFound: unknown. :raises InvalidRequest: the errors of its entry in the catalogue.
        :raises ImageAmbiguous, ImageNotReadable: see core.images.resolve.
        """
        image = resolve(name_or_id, self.images, self.ledger_images, project)
        if image.name in self.image_errors and image is self.images.get(image.name):
            raise InvalidRequest(self.image_errors[image.name])
        return image

    def network(self, name_or_id: str) -> Network:
        """:raises NetworkNotFound: unknown."""
        network = _find(self.networks, name_or_id, "id")
        if network is None:
            raise NetworkNotFound(
                network_id=name_or_id, remedy=suggestion(name_or_id, self.networks, "bootflow_networks")
            )
        return network

    def subnet(self, name_or_id: str) -> tuple[Network, Subnet]:
        """A subnet named without its network.

        :raises SubnetNotFound: unknown.
        :raises InvalidInput: several networks have a subnet of this name.
        """
        hits = [(net, sub) for net in self.networks.values() for sub in net.subnets if name_or_id in (sub.id, sub.name)]
        if not hits:
            known = [sub.name for net in self.networks.values() for sub in net.subnets]
            raise SubnetNotFound(
                subnet_id=name_or_id, remedy=suggestion(name_or_id, known, "The list of subnets in bootflow_networks")
            )
        if len(hits) > 1:
            raise InvalidInput(
                reason="subnet %s is in several networks: %s"
                % (name_or_id, ", ".join(net.name for net, _subnet in hits)),
                remedy="Name the network too, or give the subnet's id.",
            )
        return hits[0]

    def keypair(self, name: str) -> str:
        """:raises KeypairNotFound: unknown."""
        if name not in self.keypairs:
            raise KeypairNotFound(name=name, remedy=suggestion(name, self.keypairs, "bootflow_keypairs"))
        return self.keypairs[name]

    def server_group(self, project: str, name_or_id: str) -> ServerGroup:
        """:raises InstanceGroupNotFound: unknown in the project."""
        return find_server_group(self.server_groups, project, name_or_id)


def _find(entries: t.Mapping[str, T], name_or_id: str, id_field: str) -> t.Optional[T]:
    for entry in entries.values():
        if getattr(entry, id_field) == name_or_id:
            return entry
    return entries.get(name_or_id)


def parse_catalogue(
    flavors: t.Any,
    images: t.Any,
    networks: t.Any,
    keypairs: t.Any,
    server_groups: t.Any = None,
    pci_alias: t.Any = None,
    default_project: str = "default",
    ledger_images: LedgerImages | None = None,
) -> Catalogue:
    """Read the catalogue from the variables bootflow_flavors, _images, _networks, _keypairs, _server_groups and _pci_alias.

    Each is a list of mappings with the fields of core.model (plus ``name``), or a mapping keyed by name, or None. A
    key pair is {name, public_key}, or in the keyed form just the public key. ``pci_alias`` is Nova's list.

    :arg default_project: the project of server groups that name none.
    :arg ledger_images: images of the ledger, which requests may name too.
    :raises InvalidRequest: all errors, with paths below flavors, networks, keypairs, server_groups or pci_alias. Errors of an
    image are raised by Catalogue.image.
    """
    problems = Problems()
    image_errors: dict[str, list[dict[str, t.Any]]] = {}
    catalogue = Catalogue(
        flavors=_read_all("flavors", flavors, _read_flavor, problems, "flavorid"),
        images=_read_all("images", images, read_image, problems, "id", image_errors),
        networks=_read_all("networks", networks, NetworkReader().read, problems, "id"),
        keypairs=_read_all("keypairs", keypairs, _read_keypair, problems),
        server_groups=read_server_groups(server_groups, default_project, problems),
        pci_aliases=read_pci_aliases(pci_alias, problems),
        image_errors=image_errors,
        ledger_images=ledger_images or LedgerImages(),
    )
    problems.raise_if_any()
    return catalogue


def parse_images(images: t.Any) -> dict[str, Image]:
    """Read only the images of the variable bootflow_images, by name, without images that have errors.

    :raises InvalidRequest: the variable is not a list of images.
    """
    problems = Problems()
    image_errors: dict[str, list[dict[str, t.Any]]] = {}
    images_by_name = _read_all("images", images, read_image, problems, "id", image_errors)
    problems.raise_if_any()
    return {name: image for name, image in images_by_name.items() if name not in image_errors}


def _read_all(
    kind: str,
    data: t.Any,
    read: t.Callable[[Fields, str], t.Any],
    problems: Problems,
    id_field: str = "",
    later: dict[str, list[dict[str, t.Any]]] | None = None,
) -> dict[str, t.Any]:
    """:arg later: is given the errors of entries with a name, which are then not among the ``problems``."""
    entries: dict[str, t.Any] = {}
    ids: dict[str, str] = {}
    for fields in entries_of(kind, data, problems, short="public_key" if kind == "keypairs" else ""):
        fields.problems = Problems()
        name = fields.name("name")
        entry = read(fields, name)
        fields.unknown()
        if name and name in entries:
            fields.wrong("name", "%r is used twice" % name, "Give each of the %s a unique name." % kind)
        if id_field:
            if getattr(entry, id_field) in ids:
                other = ids[getattr(entry, id_field)]
                fields.wrong(
                    id_field, "%s is also the id of %s" % (getattr(entry, id_field), other), "Ids must differ."
                )
            ids[getattr(entry, id_field)] = name
        entries[name] = entry
        if later is None or not name:
            problems.extend(fields.problems.errors)
        elif fields.problems.errors:
            later.setdefault(name, []).extend(fields.problems.errors)
    return entries


def _read_flavor(fields: Fields, name: str) -> Flavor:
    specs = {}
    for key, value in fields.mapping("extra_specs").items():
        if not _SPEC_KEY.match(key):
            fields.wrong("extra_specs", "key %r must have 1 to 255 letters, digits, blanks and -_:. only" % key)
        elif not isinstance(value, (str, int, float)):
            fields.wrong("extra_specs", "%s must be a text, a number or a boolean" % key)
        elif len(str(value)) > 255:
            fields.wrong("extra_specs", "%s must have at most 255 characters" % key)
        else:
            specs[key] = str(value)
    return Flavor(
        name=name,
        memory_mb=fields.integer("memory_mb", 1),
        vcpus=fields.integer("vcpus", 1),
        root_gb=fields.integer("root_gb", 0, 0),
        ephemeral_gb=fields.integer("ephemeral_gb", 0, 0),
        swap=fields.integer("swap", 0, 0),
        extra_specs=specs,
        flavorid=fields.name("flavorid", catalogue_id("flavor", name)),
        disabled=fields.boolean("disabled"),
    )


def _read_keypair(fields: Fields, name: str) -> str:
    key = fields.text("public_key").strip()
    if not key:
        fields.wrong("public_key", "is missing", "Add the content of the .pub file.")
    else:
        with fields.problems.collect(fields.at("public_key")):
            check_public_key(key)
    return key


def check_public_key(key: str) -> None:
    """Check that ``key`` has the form of one OpenSSH public key line.

    :raises InvalidInput: another form.
    """
    error = InvalidInput(reason="is not an OpenSSH public key", remedy="Use the content of the .pub file, one line.")
    if "PRIVATE KEY" in key:
        raise InvalidInput(
            reason="is a private key",
            remedy="Use the content of the .pub file, and replace the private key: anyone who can read the inventory has it.",
        )
    parts = key.split(None, 2)
    if len(parts) < 2 or "\n" in key or not _KEY_TYPE.match(parts[0]):
        raise error
    try:
        blob = base64.b64decode(parts[1].encode("ascii"), validate=True)
        (length,) = struct.unpack(">I", blob[:4])
    except (binascii.Error, UnicodeEncodeError, struct.error):
        raise error from None
    # the blob repeats its type
    if blob[4 : 4 + length] != parts[0].encode("ascii"):
        raise error


def find_subnet(network: Network, name_or_id: str) -> Subnet:
    """The subnet of ``network``.

    :raises SubnetNotFound: unknown.
    """
    for key in ("id", "name"):
        for subnet in network.subnets:
            if getattr(subnet, key) == name_or_id:
                return subnet
    error: BootflowError = SubnetNotFound(
        message="Subnet %s could not be found in network %s." % (name_or_id, network.name),
        remedy="Subnets of the network: %s." % (", ".join(subnet.name for subnet in network.subnets) or "none"),
    )
    raise error
