# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images as stored with a request: as in the catalogue when it was accepted."""

from __future__ import annotations

import re
import typing as t
from dataclasses import asdict

from ..model import Image


def image_data(image: Image | None) -> dict[str, t.Any] | None:
    """Plain JSON, without the password of its URL."""
    if image is None:
        return None
    data = {**asdict(image), "properties": dict(image.properties)}
    data["url"] = re.sub(r"(://)[^/@]*@", r"\1", data["url"])  # its password is read from the catalogue when needed
    return data
