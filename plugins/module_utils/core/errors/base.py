# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bases of all errors: the root, and the most common kinds."""

from __future__ import annotations

import typing as t


class BootflowError(Exception):
    """Root of the family. A subclass sets ``msg_fmt``, and overrides ``status``, ``retryable`` and ``remedy``."""

    msg_fmt = "%(reason)s"
    status = 500
    retryable = False
    remedy = ""

    def __init__(self, message: str | None = None, remedy: str | None = None, **details: t.Any):
        self.details = details
        if message is None:
            message = self.msg_fmt % details
        self.message = message
        if remedy is not None:
            self.remedy = remedy
        super().__init__(message)

    @property
    def code(self) -> str:
        """The stable code of this kind of error."""
        return type(self).__name__

    @property
    def paragraph(self) -> str:
        """The message and, if there is one, the remedy, in separate sentences."""
        if not self.remedy:
            return self.message
        return "%s %s" % (self.message if self.message.endswith((".", "!", "?")) else self.message + ".", self.remedy)

    @property
    def in_full(self) -> str:
        """For a journal: the message, and the traceback of an error that is not of the family."""
        return "\n".join(filter(None, (self.message, self.details.get("traceback"))))

    def as_dict(self) -> dict[str, t.Any]:
        """Plain data for a module's result, a fault row and a playbook's rescue."""
        return {
            "code": self.code,
            "status": self.status,
            "message": self.message,
            "remedy": self.remedy,
            "retryable": self.retryable,
        }

    def between_hosts(self) -> dict[str, t.Any]:
        """as_dict() for from_dict() of the controller, with the traceback of an error that is not of the family."""
        frames = self.details.get("traceback")
        return {**self.as_dict(), "traceback": frames} if frames else self.as_dict()


def unexpected(error: BaseException) -> str:
    """The traceback of an exception that is not of the family: without values, and so without secrets."""
    import traceback  # on hosts, of few runs

    return "".join(traceback.format_tb(error.__traceback__))


class InvalidInput(BootflowError):
    """A value is missing, malformed or contradicts another one."""

    msg_fmt = "Invalid input received: %(reason)s"
    status = 400


class Forbidden(BootflowError):
    """A policy or a limit rejects the request."""

    status = 403


class NotFound(BootflowError):
    """The named object does not exist."""

    status = 404


class Conflict(BootflowError):
    """The request contradicts the current state of an object."""

    status = 409
