# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every answer of a host is checked here, before anything reads it: a host that answers nonsense counts as one that did not answer."""

from __future__ import annotations

import reprlib
import typing as t

from ..errors import InvalidAnswer
from ..legible import legible
from . import backups, compute, disks, guests, images, outcomes, storage, volumes
from .shapes import Fields, Misshapen, Shape, flag, items, maybe, message, name, prose, record, shapes_of, whole

# Module, with a dot and its step where it has several -> what its answer has, and what it may have.
ANSWERS: dict[str, tuple[Fields, Fields]] = {
    **compute.ANSWERS,
    **guests.ANSWERS,
    **disks.ANSWERS,
    **storage.ANSWERS,
    **volumes.ANSWERS,
    **images.ANSWERS,
    **backups.ANSWERS,
}
_WARNINGS: dict[str, Shape] = {"warnings": maybe(items(message))}


def _list_fields(required: Fields, optional: Fields) -> list[tuple[str, Shape, bool]]:
    may = shapes_of({**optional, **_WARNINGS})
    return [(n, s, True) for n, s in shapes_of(required).items()] + [(n, s, False) for n, s in may.items()]


_SHAPES = {module: _list_fields(*shapes) for module, shapes in ANSWERS.items()}
_OTHERS = _list_fields({}, {"outcomes": outcomes.ANY})
_FAILED = _list_fields(
    {"error_code": name},
    {
        "msg": prose,
        "status": whole(100, 599),
        "remedy": prose,
        "retryable": flag,
        "traceback": prose,
        "changed": flag,
        **dict.fromkeys(("errors", "failed_items"), items(record({}))),
    },
)


def check(module: str, host: str, result: t.Mapping[str, t.Any], step: str = "") -> None:
    """Check what ``module`` answered on ``host``. What Ansible adds to a result is not looked at.

    :arg step: of a module with several steps, its option ``step``.
    :raises InvalidAnswer: naming the first field that does not fit, what it must be, and its value.
    """
    _check(module, host, result, _SHAPES.get(_entry(module, step), _OTHERS))


def check_failure(module: str, host: str, result: t.Mapping[str, t.Any], step: str = "") -> None:
    """The same for the result of a module that failed with an error of ours. It may have what it did nevertheless.

    :raises InvalidAnswer: see check().
    """
    own = _SHAPES.get(_entry(module, step), [])
    _check(module, host, result, [*_FAILED, *((field, shape, False) for field, shape, _required in own)])


def _entry(module: str, step: str) -> str:
    return "%s.%s" % (module, step) if step else module


def _check(module: str, host: str, result: t.Mapping[str, t.Any], shapes: t.Iterable[tuple[str, Shape, bool]]) -> None:
    try:
        for field, shape, required in shapes:
            if field in result:
                shape(result[field], field)
            elif required:
                raise Misshapen(field, "given", None)
    except Misshapen as wrong:
        raise InvalidAnswer(
            host=host, module=module, path=wrong.path, expects=wrong.expects, got=legible(reprlib.repr(wrong.got))
        ) from None
