# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts and sizes of a request for a volume or snapshot. source: Cinder's API and utils (Queens)"""

from __future__ import annotations

import re
import typing as t

from ..errors import InvalidInput, InvalidVolumeMetadata, InvalidVolumeMetadataSize
from ..reading.formats import MAX_INT

MAX_LENGTH = 255  # of names, descriptions, keys and values of metadata

_NEVER_KEPT = re.compile(r"[\x00\ud800-\udfff]")


def check_length(value: t.Any, name: str, minimum: int = 0, maximum: int | None = None) -> str:
    """:raises InvalidInput: (400) not a text, a wrong length, or a character that databases cannot store (Cinder fails there)."""
    if not isinstance(value, str):
        raise InvalidInput(reason="%s is not a string or unicode" % name, remedy="Write it as a text: quote it.")
    if _NEVER_KEPT.search(value):
        raise InvalidInput(reason="%s has a NUL or half a surrogate pair in it" % ascii(name)[1:-1])
    if len(value) < minimum:
        raise InvalidInput(
            reason="%s has %d characters, less than %d." % (name, len(value), minimum),
            remedy="Give %s, of %d or more characters." % (name, minimum),
        )
    if maximum is not None and len(value) > maximum:
        raise InvalidInput(
            reason="%s has %d characters, more than %d." % (name, len(value), maximum), remedy="Shorten it."
        )
    return value


def check_text(value: t.Any, name: str) -> str:
    """A name or description without surrounding blanks; "" if there is none. :raises InvalidInput: (400)"""
    if value is None:
        return ""
    return check_length(value.strip() if isinstance(value, str) else value, name, maximum=MAX_LENGTH)


def check_metadata(metadata: t.Any) -> dict[str, str]:
    """User's metadata: keys of 1 to 255 characters, values of 0 to 255.

    :raises InvalidInput: :raises InvalidVolumeMetadata: :raises InvalidVolumeMetadataSize: (400)
    """
    if not metadata:
        return {}
    if not isinstance(metadata, t.Mapping):
        raise InvalidInput(message="Metadata should be a dict.", remedy="Write metadata as key: value.")
    for key, value in metadata.items():
        try:
            check_length(key, "Metadata key: %s" % (key,), minimum=1)
            check_length(value, "Value for metadata key: %s" % (key,))
        except InvalidInput as e:
            raise InvalidVolumeMetadata(reason=e.message, remedy="Keys and values are texts: quote them.") from None
        if len(key) > MAX_LENGTH:
            raise InvalidVolumeMetadataSize(reason="Metadata property key %s greater than 255 characters." % key)
        if len(value) > MAX_LENGTH:
            raise InvalidVolumeMetadataSize(reason="Metadata property key %s value greater than 255 characters." % key)
    return dict(metadata)


def check_size_form(size: t.Any) -> None:
    """Check that a given size is a positive integer, or its text. :raises InvalidInput: (400)"""
    if not size:
        return  # nothing given, or 0: extract_size() decides
    try:
        number = int(size)
    except (TypeError, ValueError, OverflowError):
        number = 0
    if str(number) != str(size) or number <= 0:
        raise InvalidInput(
            reason="Invalid volume size provided for create request: %s (size argument must be an integer (or string "
            "representation of an integer) and greater than zero)." % (size,),
            remedy="Give whole GiB.",
        )


def extract_size(size: t.Any, source_size: int | None, snapshot_size: int | None) -> int:
    """The size in GB: the given one, or the source's; never less than the source's.

    A fraction is cut off (check_size_form() rejects it before), and the maximum is 2147483647, as in later releases.
    :raises InvalidInput: (400)
    """
    if not size:
        size = source_size if source_size is not None else snapshot_size if snapshot_size is not None else size
    number: t.Any = _as_int(size)
    if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
        raise InvalidInput(
            reason="Volume size '%s' must be an integer and greater than 0" % (number,), remedy="Give whole GiB."
        )
    if number > MAX_INT:
        raise InvalidInput(reason="Volume size '%s' must be at most %d" % (number, MAX_INT))
    if source_size is not None and number < source_size:
        raise InvalidInput(
            reason="Volume size '%s'GB cannot be smaller than original volume size  %sGB. They must be >= original "
            "volume size." % (number, source_size),
            remedy="Leave size out, or request %d GiB or more." % source_size,
        )
    if source_size is None and snapshot_size is not None and number < snapshot_size:
        raise InvalidInput(
            reason="Volume size '%s'GB cannot be smaller than the snapshot size %sGB. They must be >= original snapshot "
            "size." % (number, snapshot_size),
            remedy="Leave size out, or request %d GiB or more." % snapshot_size,
        )
    return number


def _as_int(value: t.Any) -> t.Any:
    """A number or its text as an integer; any other value unchanged."""
    for convert in (int, lambda text: int(float(text))):
        try:
            return convert(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return value
