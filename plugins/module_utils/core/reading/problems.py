# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collects all errors of a request before it is rejected, each with the path of its value."""

from __future__ import annotations

import typing as t

from ..errors import BootflowError, InvalidRequest


class Problems:
    """Errors with their paths."""

    def __init__(self) -> None:
        self.errors: list[dict[str, t.Any]] = []

    def add(self, path: str, error: BootflowError) -> None:
        self.errors.append(
            {
                "path": path,
                "code": error.code,
                "status": error.status,
                "message": error.message,
                "remedy": error.remedy or "Correct the request as the message says.",
            }
        )

    def extend(self, errors: t.Iterable[t.Mapping[str, t.Any]]) -> None:
        self.errors.extend(dict(error) for error in errors)

    def collect(self, path: str) -> _Collect:
        """A context manager: a BootflowError of the block becomes an error at ``path``, and execution continues after it."""
        return _Collect(self, path)

    def raise_if_any(self) -> None:
        """:raises InvalidRequest: all errors; the status is theirs if they agree, else 400."""
        if not self.errors:
            return
        remedies = list(dict.fromkeys(error["remedy"] for error in self.errors if error["remedy"]))
        request_error = InvalidRequest(self.errors, remedy=" ".join(remedies))
        statuses = {error["status"] for error in self.errors}
        if len(statuses) == 1:
            request_error.status = statuses.pop()
        raise request_error


class _Collect:
    def __init__(self, problems: Problems, path: str):
        self._problems = problems
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: t.Any, error: t.Any, _traceback: t.Any) -> bool:
        if isinstance(error, InvalidRequest):
            self._problems.extend(e for e in error.errors if e not in self._problems.errors)  # with their own paths
            return True
        if isinstance(error, BootflowError):
            self._problems.add(self._path, error)
            return True
        return False
