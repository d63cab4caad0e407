# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The metadata that a volume has of the image that it was made from."""

from __future__ import annotations

import typing as t


def image_metadata(spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Cinder's volume_glance_metadata: of the image, or of the source volume."""
    image = spec.get("image")
    if image is None:
        return dict(spec.get("source_image_metadata") or {})
    return {
        **dict(image.get("properties") or {}),
        "image_id": image["id"],
        "image_name": image["name"],
        "checksum": image["checksum"],
        "container_format": "bare",
        "disk_format": image["disk_format"],
        "min_disk": image["min_disk"],
        "min_ram": image["min_ram"],
        "size": image["size"],
    }
