# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.flow import Flow, Step
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.outcome import (
    as_copy_failure,
    clean_reason,
    outcome_of,
)

RETRY = {"num_attempts": 1, "backends": ["h@b#p"]}


class Broken(errors.BootflowError):
    msg_fmt = "broken"


def flow_of(names, log, fail=None, bad_reverts=(), reverts_itself=False):
    def step(name):
        def execute(store):
            log.append("do " + name)
            if name == fail:
                raise Broken()
            return {name: len(store)}

        def revert(store, result, failure):
            log.append("undo " + name)
            if name in bad_reverts:
                raise RuntimeError("can not undo " + name)

        return Step(name, execute, revert, reverts_itself)

    return Flow("f", [step(name) for name in names])


def test_steps_run_in_order_and_hand_on_what_they_give():
    log, told = [], []
    store = flow_of("abc", log).run({"x": 1}, lambda *event: told.append(event[:2]))
    assert log == ["do a", "do b", "do c"]
    assert store == {"x": 1, "a": 1, "b": 2, "c": 3}
    assert told == [(e, n) for n in "abc" for e in ("started", "done")]


@given(st.integers(1, 8), st.data())
def test_what_was_done_is_undone_in_reverse_order_and_nothing_else(count, data):
    names = [str(n) for n in range(count)]
    at = data.draw(st.integers(0, count - 1))
    bad = data.draw(st.sets(st.sampled_from(names)))
    itself = data.draw(st.booleans())
    log = []
    with pytest.raises(Broken) as caught:
        flow_of(names, log, names[at], bad, itself).run({})
    undone = names[:at] + ([names[at]] if itself else [])
    assert log == ["do " + n for n in names[: at + 1]] + ["undo " + n for n in reversed(undone)]
    failures = [f["step"] for f in caught.value.details.get("revert_failures", [])]
    assert failures == [n for n in reversed(undone) if n in bad]


@given(st.integers(1, 6), st.data())
def test_a_journal_is_enough_to_go_on_or_back(count, data):
    """Killed behind any step: the next run does the rest, and undoing undoes all."""
    names = [str(n) for n in range(count)]
    killed_at = data.draw(st.integers(0, count - 1))
    journal = {}

    class Killed(BaseException):
        pass

    def tell(event, name, result):
        if event == "done":
            journal[name] = result
        if event == "started" and name == names[killed_at]:
            raise Killed()

    log = []
    flow = flow_of(names, log)
    with pytest.raises(Killed):
        flow.run({}, tell)
    assert list(journal) == names[:killed_at]
    del log[:]
    store = flow.run({}, done=journal)
    assert log == ["do " + n for n in names[killed_at:]]
    assert store == {n: i for i, n in enumerate(names)}
    del log[:]
    assert flow.revert(store, journal, Broken()) == []
    assert log == ["undo " + n for n in reversed(names[:killed_at])]


def test_the_first_error_is_what_is_raised_and_everything_is_told():
    told = []
    with pytest.raises(Broken):
        flow_of("ab", [], "b", "a").run({}, lambda *event: told.append(event))
    assert told[2:] == [
        ("started", "b", None),
        ("failed", "b", "broken"),
        ("reverting", "a", None),
        ("revert_failed", "a", "can not undo a"),
    ]


def test_steps_without_names_of_their_own_are_refused():
    with pytest.raises(ValueError, match="there twice"):
        flow_of("aba", [])


def test_a_step_may_have_nothing_to_undo():
    flow = Flow("f", [Step("a", lambda store: None), Step("b", lambda store: {}["missing"])])
    with pytest.raises(KeyError):
        flow.run({})


# --- reschedule or error ----------------------------------------------------------------------------------------------

NEVER = [
    errors.ImageCopyFailure(reason="x"),
    errors.MetadataCopyFailure(reason="x"),
    errors.MetadataCreateFailure(reason="x"),
    errors.MetadataUpdateFailure(reason="x"),
    errors.VolumeNotFound(volume_id="x"),
    errors.SnapshotNotFound(snapshot_id="x"),
    errors.VolumeTypeNotFound(volume_type_id="x"),
    errors.VolumeTypeNotFoundByName(volume_type_name="x"),
    errors.ImageUnacceptable(image_id="x", reason="y"),
    errors.ImageTooBig(image_id="x", reason="y"),
    errors.ImageChecksumMismatch(image_id="x", actual="a", expected="b"),
    errors.ImageNotFound(image_id="x"),
]
ELSEWHERE = [
    errors.VolumeBackendAPIException(data="x"),
    errors.DriverNotInitialized(),
    errors.CommandFailed(cmd="lvcreate", rc=5, stderr="no room"),
    errors.HostUnreachable(host="h", reason="x"),
    errors.DiskFull(host="h", path="/", reason="x"),
    errors.InvalidInput(reason="x"),
    errors.ImageDownloadFailed(image_id="x", url="y", reason="z"),  # none of Cinder's list: nothing was made yet
    Broken(),
]


@pytest.mark.parametrize("error", NEVER, ids=lambda e: e.code)
def test_what_no_other_backend_would_do_better_ends_in_error(error):
    outcome = outcome_of(error, RETRY)
    assert (outcome.kind, outcome.values) == ("error", {"status": "error"})


@pytest.mark.parametrize("error", ELSEWHERE, ids=lambda e: e.code)
def test_everything_else_is_tried_elsewhere(error):
    outcome = outcome_of(error, RETRY, now=5.0)
    assert outcome.kind == "reschedule"
    assert outcome.values == {"host": None, "scheduled_at": 5.0, "status": "creating"}
    assert outcome.delete_remains


@pytest.mark.parametrize("error", ELSEWHERE, ids=lambda e: e.code)
@pytest.mark.parametrize(
    "more",
    [{"retry": None}, {"retry": {}}, {"retry": RETRY, "allow_reschedule": False}, {"retry": RETRY, "copying": True}],
)
def test_unless_it_may_not_be_or_the_copy_had_begun(error, more):
    assert outcome_of(error, **more).values == {"status": "error"}


def test_errors_of_a_copy_get_one_name():
    wrapped = as_copy_failure(errors.CommandFailed(cmd="qemu-img", rc=1, stderr="x"))
    assert isinstance(wrapped, errors.ImageCopyFailure)
    assert wrapped.message == "Failed to copy image to volume: qemu-img failed with exit code 1: x"
    cut_off = as_copy_failure(errors.ImageDownloadFailed(image_id="x", url="y", reason="z"))
    assert isinstance(cut_off, errors.ImageCopyFailure)
    assert outcome_of(cut_off, RETRY).kind == "error"
    for kept in (
        errors.ImageUnacceptable(image_id="x", reason="y"),
        errors.ImageTooBig(image_id="x", reason="y"),
        wrapped,
    ):
        assert as_copy_failure(kept) is kept


@pytest.mark.parametrize(
    ("reason", "kept"), [(None, "Unknown reason"), ("x" * 128, "x" * 128), ("x" * 129, "x" * 128 + "..."), (5, "5")]
)
def test_reasons_are_cut(reason, kept):
    assert clean_reason(reason) == kept


@pytest.mark.parametrize("error", [*NEVER, *ELSEWHERE[:-1]], ids=lambda e: e.code)
def test_errors_survive_as_plain_data(error):
    again = errors.from_dict(error.as_dict())
    assert type(again) is type(error)
    assert again.as_dict() == error.as_dict()
