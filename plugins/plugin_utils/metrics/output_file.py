# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file on the controller that a playbook writes for others to read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...module_utils.core.errors import InvalidInput
from ..transport.packed_modules import write_whole

MODE = 0o644  # other users read it


@dataclass(frozen=True)
class OutputFile:
    """A file that ``variable`` names. It must end in ``suffix``; the remedies say what to do about a wrong name or a missing folder."""

    path: str
    variable: str
    suffix: str
    remedy_for_name: str
    remedy_for_folder: str

    def check(self) -> None:
        """:raises InvalidInput: the name has another ending, or the folder is missing."""
        if not self.path.endswith(self.suffix) or os.path.basename(self.path) == self.suffix:
            raise InvalidInput(
                reason="%s must end in %s, got %s" % (self.variable, self.suffix, self.path),
                remedy=self.remedy_for_name,
            )
        if not os.path.isdir(os.path.dirname(self.path)):
            raise InvalidInput(
                reason="the folder of %s does not exist: %s" % (self.variable, os.path.dirname(self.path)),
                remedy=self.remedy_for_folder,
            )

    def read(self) -> str | None:
        """Return the text of the file; None if it cannot be read."""
        try:
            with open(self.path, encoding="utf-8") as stream:
                return stream.read()
        except (OSError, UnicodeDecodeError):
            return None

    def write(self, text: str) -> None:
        """Write the file as a whole: readers never see a part of it.

        :raises InvalidInput: it cannot be written.
        """
        try:
            write_whole(Path(self.path), text.encode("utf-8"), MODE)
        except OSError as error:
            raise InvalidInput(
                reason="%s %s cannot be written: %s" % (self.variable, self.path, error.strerror),
                remedy="Let the user of this run write to the folder.",
            ) from None
