# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of modules that work on images."""

from __future__ import annotations

import re
import typing as t

from ..disks.local import QCOW2, RAW
from ..guest.nvram import LARGEST_PACKED, PACKED
from .guests import power_state, seconds
from .outcomes import outcomes
from .shapes import Field, Fields, Misshapen, choice, flag, mapping, maybe, message, name, path, size, text, whole

_sha256 = text(64, least=64, pattern=re.compile("[0-9a-f]+"))
_fingerprint = text(64, pattern=re.compile("[0-9a-f]{64}"))
_OFFERED = "for images of O(state=offered)"
_COLLECTED = "for images of O(state=collected)"

ANSWERS: dict[str, tuple[Fields, Fields]] = {
    "image_file": (
        {
            "outcomes": outcomes(
                "The outcome of each image, by its id.",
                "Whether a file was, or in check mode would be, written or removed.",
                {},
                {
                    "size": Field(size, "Size of the written file in bytes.", "for written images"),
                    "checksum": Field(_sha256, "Its sha256.", "for written images"),
                },
            )
        },
        {},
    ),
    "instance_snapshot": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether the image was, or in check mode would be, made.",
                {
                    "power_state": Field(power_state, "Nova's number for the guest's state, 1 for running."),
                    "disk_format": Field(choice(QCOW2, RAW), "Format of the file."),
                },
                {
                    "live": Field(flag, "Whether QEMU copied the disk of a guest that it runs, or has paused."),
                    "quiesced": Field(flag, "Whether the guest's file systems stood still at that moment."),
                    "size": Field(size, "Size of the file in bytes.", "success, not in check mode"),
                    "checksum": Field(_sha256, "Its sha256.", "success, not in check mode"),
                    "path": Field(path, "Where the file is.", "success, not in check mode"),
                    "nvram": Field(
                        text(LARGEST_PACKED, pattern=PACKED),
                        "UEFI variables of the guest, compressed and in base64; empty if it has none.",
                        "success, not in check mode",
                    ),
                    "seconds": Field(seconds, "Duration in seconds."),
                },
            )
        },
        {},
    ),
    "volume_lvm_image": (
        {
            "outcomes": outcomes(
                "The outcome of each volume, by its id.",
                "Whether the image was, or in check mode would be, made.",
                {"disk_format": Field(choice(QCOW2, RAW), "Format of the file.")},
                {
                    "size": Field(size, "Size of the file in bytes.", "success, not in check mode"),
                    "checksum": Field(_sha256, "Its sha256.", "success, not in check mode"),
                    "path": Field(path, "Where the file is.", "success, not in check mode"),
                    "seconds": Field(seconds, "Duration in seconds."),
                },
            )
        },
        {},
    ),
    "image_relay": (
        {
            "outcomes": outcomes(
                "The outcome of each image, by its id.",
                "Whether a process was started, or the image is on the host now.",
                {},
                {
                    "state": Field(
                        choice("lacks", "has", "whole", "busy"),
                        "V(lacks), V(has), V(whole) if the host has the very file and could give it, or V(busy) if another run fetches it.",
                        _OFFERED,
                    ),
                    "bytes": Field(maybe(size), "Bytes that the host has."),
                    "port": Field(whole(0, 65535), "Where the process listens; 0 if there is none.", _OFFERED),
                    "fingerprint": Field(_fingerprint, "The SHA-256 of its certificate.", _OFFERED),
                    "source": Field(
                        maybe(message), "The host, or the web server, that sent the end of it.", _COLLECTED
                    ),
                    "wrong": Field(
                        maybe(mapping(name, size)),
                        "Hosts that sent something else than the image, each with the offset of it.",
                        _COLLECTED,
                    ),
                    "left": Field(
                        maybe(mapping(name, message)),
                        "Hosts that were left for another one, each with the reason.",
                        _COLLECTED,
                    ),
                },
            )
        },
        {},
    ),
}


def check_offer(offer: t.Mapping[str, t.Any], where: str) -> None:
    """Check the answer of a host about an image to receive or to give, after the shapes of its fields: other hosts read all of them.

    :arg where: path of the offer in the answer. :raises Misshapen: a field is missing, or the process has no port or fingerprint
    """
    for field in ("state", "bytes", "port", "fingerprint"):
        if offer.get(field) is None:
            raise Misshapen("%s.%s" % (where, field), "given", None)
    if offer["state"] == "lacks" and not offer["port"]:
        raise Misshapen(where + ".port", "where its process listens", offer["port"])
    if offer["port"] and not offer["fingerprint"]:
        raise Misshapen(where + ".fingerprint", "the SHA-256 of a certificate", offer["fingerprint"])
