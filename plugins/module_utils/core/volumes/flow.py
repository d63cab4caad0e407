# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A linear flow: steps one after the other, and back in reverse order when one fails.

Journal-friendly: every beginning and end of a step is told before the next thing is done, with results that are plain data,
so that a later run can go on behind the steps that are done, or take them back (design: every step can be undone).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import BootflowError

Store = t.Dict[str, t.Any]
#: event, step, data: the result of a step that is done, or the error as text
Journal = t.Callable[[str, str, t.Any], None]

STARTED = "started"
DONE = "done"
FAILED = "failed"
REVERTING = "reverting"
REVERTED = "reverted"
REVERT_FAILED = "revert_failed"


@dataclass(frozen=True)
class Step:
    """``execute(store)`` gives a mapping that is added to the store, or None. ``revert(store, result, failure)`` takes it back.

    ``reverts_itself``: it is taken back also when itself failed half-way; its result is None then.
    """

    name: str
    execute: t.Callable[[Store], t.Optional[t.Mapping[str, t.Any]]]
    revert: t.Callable[[Store, t.Any, BaseException], None] | None = None
    reverts_itself: bool = False


@dataclass(frozen=True)
class RevertFailure:
    step: str
    error: BaseException


class Flow:
    """Steps in order. Raises ValueError for two of the same name: a journal could not tell them apart."""

    def __init__(self, name: str, steps: t.Iterable[Step]):
        self.name = name
        self.steps = list(steps)
        names = [step.name for step in self.steps]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError("flow %s: step %s is there twice" % (name, ", ".join(twice)))

    def run(
        self, store: t.Mapping[str, t.Any], journal: Journal | None = None, done: t.Mapping[str, t.Any] | None = None
    ) -> Store:
        """Do the steps. Returns the store given, with the results of all steps.

        :arg done: name -> result of steps that an earlier run did; they are not done again, but reverted like the others.
        :raises: what the failed step raised, after all that was done is reverted; a BootflowError has the failures of
            reverts in ``details["revert_failures"]``: [{step, message}].
        """
        tell = journal or _silent
        found: Store = dict(store)
        results: Store = {}
        for step in self.steps:
            if done is not None and step.name in done:
                results[step.name] = done[step.name]
                found.update(done[step.name] or {})
                continue
            tell(STARTED, step.name, None)
            try:
                result = step.execute(found)
            except BaseException as error:
                tell(FAILED, step.name, str(error))
                if step.reverts_itself:
                    results[step.name] = None
                failures = self.revert(found, results, error, journal)
                if failures and isinstance(error, BootflowError):
                    error.details["revert_failures"] = [{"step": f.step, "message": str(f.error)} for f in failures]
                raise
            results[step.name] = None if result is None else dict(result)
            found.update(result or {})
            tell(DONE, step.name, results[step.name])
        return found

    def revert(
        self,
        store: t.Mapping[str, t.Any],
        done: t.Mapping[str, t.Any],
        failure: BaseException,
        journal: Journal | None = None,
    ) -> list[RevertFailure]:
        """Take back the steps that are done, the last first. A revert that fails does not keep the others from it.

        :arg done: name -> result. Returns the reverts that failed.
        """
        tell = journal or _silent
        failures = []
        for step in reversed(self.steps):
            if step.name not in done or step.revert is None:
                continue
            tell(REVERTING, step.name, None)
            try:
                step.revert(dict(store), done[step.name], failure)
            except Exception as error:
                failures.append(RevertFailure(step.name, error))
                tell(REVERT_FAILED, step.name, str(error))
            else:
                tell(REVERTED, step.name, None)
        return failures


def _silent(_event: str, _step: str, _data: t.Any) -> None:
    return None
