# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of the catalogue, and how a request stores them: as in the catalogue when it was accepted."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import urlsplit

from ..disks.block_device_mapping import IMAGE_LISTS
from ..disks.checksums import parse_checksum
from ..disks.image_urls import split_login
from ..errors import InvalidInput
from ..image_access import ImageAccess
from ..model import Image
from ..reading.fields import Fields, catalogue_id

#: Glance's disk formats
DISK_FORMATS = ("raw", "qcow2", "vmdk", "vdi", "vhd", "vhdx", "iso", "ploop", "ami", "ari", "aki")

_FILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_IMAGE_STATUSES = ("active", "queued", "saving", "importing", "deactivated", "killed", "deleted", "pending_delete")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_HEADER_VALUE = re.compile(r"[\t -~]*\Z")


def read_image(fields: Fields, name: str) -> Image:
    """An image of the inventory; its errors are noted in ``fields``."""
    url, path = fields.text("url"), fields.text("path")
    if not url and not path:
        fields.wrong(
            "url",
            "or path is missing",
            "Set url (http, https or file) or path (on the controller).",
        )
    if url:
        _check_url(fields, url)
    if path and (not path.startswith(("/", "~")) or "\0" in path):
        fields.wrong("path", "must be an absolute path on the controller", "Write it as {{ playbook_dir }}/... or /...")
    properties = fields.mapping("properties")
    for key, value in properties.items():
        if key in IMAGE_LISTS and isinstance(value, (list, tuple)):
            continue  # their errors are reported when the image is booted
        if value is not None and not isinstance(value, (str, int, float)):
            fields.wrong("properties", "%s must be a text, a number or a boolean" % key)
    access = _read_access(fields, url)
    return Image(
        name=name,
        id=_read_image_id(fields, name),
        disk_format=fields.choice("disk_format", DISK_FORMATS),
        checksum=_read_checksum(fields),
        url=split_login(url)[0],
        path=path,
        size=fields.integer("size", 0, None, maximum=2**63 - 1),
        min_disk=fields.integer("min_disk", 0, 0),
        min_ram=fields.integer("min_ram", 0, 0),
        status=fields.choice("status", _IMAGE_STATUSES, "active"),
        properties={key: value for key, value in properties.items() if value is not None},
        access=access,
    )


def _read_access(fields: Fields, url: str) -> ImageAccess:
    """The login of the URL is a part of it."""
    _url, user, password = split_login(url)
    given: dict[str, t.Any] = {
        "validate_certs": fields.boolean("validate_certs", True),
        "use_proxy": fields.boolean("use_proxy", True),
        "url_username": fields.text("url_username"),
        "url_password": fields.text("url_password"),
        "headers": _read_headers(fields),
        **{name: _read_file(fields, name) for name in ("ca_path", "client_cert", "client_key")},
    }
    if not url.startswith(("http://", "https://")):
        for name in given:
            fields.refuse(name, fields.has(name), "has no effect without a url that is http or https", "Leave it out.")
    if user and given["url_username"]:
        fields.wrong("url_username", "is given, and the url has a user too", "Leave one of them out.")
    if given["url_password"] and not given["url_username"]:
        fields.wrong("url_password", "is given without url_username", "Add url_username.")
    if given["client_key"] and not given["client_cert"]:
        fields.wrong("client_key", "is given without client_cert", "Add client_cert.")
    if user:
        given.update(url_username=user, url_password=password)
    return ImageAccess(**given)


def _read_file(fields: Fields, name: str) -> str:
    path = fields.text(name)
    if path and (not path.startswith("/") or "\0" in path):
        fields.wrong(name, "must be an absolute path on the hosts that fetch the image")
    return path


def _read_headers(fields: Fields) -> dict[str, str]:
    headers = {}
    for key, value in fields.mapping("headers").items():
        if not _HEADER.match(key):
            fields.wrong("headers", "key %r is not the name of a header" % key)
        elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
            fields.wrong("headers", "%s must be a text" % key)
        elif not _HEADER_VALUE.match(str(value)):
            fields.wrong("headers", "%s must be printable ASCII on one line" % key)
        else:
            headers[key] = str(value)
    return headers


def _read_image_id(fields: Fields, name: str) -> str:
    """Hosts name files by it."""
    image_id = fields.name("id", catalogue_id("image", name), 128)
    if image_id and not _FILE_ID.match(image_id):
        fields.wrong("id", "must begin with a letter or digit, and have letters, digits, _ and - only")
    return image_id


def _check_url(fields: Fields, url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        fields.wrong("url", "is not valid: %s" % error)
        return
    if parts.scheme not in ("http", "https", "file"):
        fields.wrong("url", "must begin with http://, https:// or file://")
    elif parts.scheme == "file" and (host or not parts.path.startswith("/")):
        fields.wrong("url", "must be file:///absolute/path as the compute host sees it")
    elif parts.scheme != "file" and not host:
        fields.wrong("url", "names no host")
    elif any(ord(char) <= 32 or ord(char) == 127 for char in url):
        fields.wrong("url", "must not have blanks or control characters")


def _read_checksum(fields: Fields) -> str:
    """As Checksum writes it. Required unless the image has allow_unverified."""
    text = fields.text("checksum").strip()
    unverified = fields.boolean("allow_unverified")
    if text.rpartition(":")[2]:
        try:
            return str(parse_checksum(text))
        except InvalidInput as error:
            fields.wrong("checksum", "is not valid: %s" % error.message, error.remedy or "")
    elif not unverified:
        fields.wrong(
            "checksum",
            "is missing",
            "Add what sha256sum or sha512sum FILE prints as sha256:<hex> or sha512:<hex>, or the address of the publisher's file with checksums"
            " as sha256:https://..., or set allow_unverified: true to trust the source.",
        )
    return ""


def image_data(image: Image | None) -> dict[str, t.Any] | None:
    """Plain JSON, without how it is fetched: that has secrets, and is read from the catalogue when needed."""
    if image is None:
        return None
    data = {**vars(image), "properties": dict(image.properties)}
    del data["access"]
    return data


def find_image(images: t.Iterable[Image], data: t.Mapping[str, t.Any]) -> Image:
    """The image of a stored request: the catalogue's if it is still the same file, else as it was when accepted."""
    for image in images:
        if image.id == data["id"] and image.checksum == data["checksum"]:
            return image
    return Image(**data)
