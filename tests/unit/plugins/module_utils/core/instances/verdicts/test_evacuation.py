# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of an instance in an evacuation: all combinations of answers."""

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts import evacuation

from .outcomes import FAILED, RUNNING, expanded, said

# build; whether the destination was cleaned after a failure; whether it had begun to start the guest. A guest that may run stays in error.
TABLE = """
answer  *    *        | RUNNING                      | active on the destination, migration done
error   clean *       | failed                       | ERROR on the source, migration failed
error   left  waiting | failed owes                  | ERROR on the source, migration failed; the destination keeps what was made
error   left  started | failed owes may_run          | ERROR on the source, migration failed, and the guest may run on the destination
silence *    *        | failed owes may_run          | stays in rebuilding
"""


def test_an_evacuation() -> None:
    choices = [("answer", "error", "silence"), ("clean", "left"), ("waiting", "started")]
    for (build, clean, start), outcome in expanded(TABLE, choices).items():
        failure = evacuation.failure(errors.from_dict(FAILED), "h2", clean == "clean", start == "started")
        its = evacuation.ending("h2", said(build, "h2", RUNNING, failure))
        words = ["RUNNING"] if its.power_state == states.RUNNING else []
        words += ["failed"] if its.error is not None else []
        words += [] if its.cleaned else ["owes"]
        words += ["may_run"] if its.may_run else []
        assert " ".join(words) == outcome, (build, clean, start)
        assert its.error is None or ("may run on h2" in its.error.remedy) is its.may_run


def test_a_guest_that_runs_has_no_error_of_what_came_later() -> None:
    assert evacuation.ending("h2", {**RUNNING, "error": FAILED}) == (states.RUNNING, None, True, False)


def test_a_guest_that_was_off_stays_off() -> None:
    before = [states.ACTIVE, states.ERROR, states.STOPPED]
    assert [evacuation.vm_state(state) for state in before] == [states.ACTIVE, states.ACTIVE, states.STOPPED]
