# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The family of errors: every class of its files is in core.errors, and comes back from plain data."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import pkgutil

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


def classes() -> dict[str, type[errors.BootflowError]]:
    """Those that the files of the family define, by name and file."""
    found = {}
    for file in pkgutil.iter_modules(errors.__path__):
        module = importlib.import_module("%s.%s" % (errors.__name__, file.name))
        for name, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == module.__name__:
                found["%s.%s" % (file.name, name)] = cls
    return found


FAMILY = classes()


def test_errors_has_the_whole_family() -> None:
    names = sorted(cls.__name__ for cls in FAMILY.values())
    assert len(set(names)) == len(names)  # no code twice
    assert all(getattr(errors, cls.__name__) is cls for cls in FAMILY.values())


@pytest.mark.parametrize("cls", FAMILY.values(), ids=list(FAMILY))
def test_comes_back_from_plain_data(cls: type[errors.BootflowError]) -> None:
    error = cls.__new__(cls)
    errors.BootflowError.__init__(error, message="what happened", remedy="what to do")
    if isinstance(error, errors.InvalidRequest):
        error.errors = [{"path": "p", "message": "m"}]
    if isinstance(error, errors.Incomplete):
        error.items = [errors.failed_item("web", "u1", None)]
    again = errors.from_dict(json.loads(json.dumps(error.as_dict())))
    assert again.__class__ is cls
    assert again.as_dict() == error.as_dict()


def test_an_unknown_code_is_a_remote_error() -> None:
    again = errors.from_dict({"code": "Unheard", "message": "of", "status": 418, "retryable": False, "remedy": "r"})
    assert again.__class__ is errors.RemoteError
    assert (again.message, again.status, again.retryable, again.remedy) == ("Unheard: of", 418, False, "r")


def test_goes_through_pickle() -> None:
    again = pickle.loads(pickle.dumps(errors.VolumeNotFound(message="gone", remedy="r")))
    assert again.__class__ is errors.VolumeNotFound
    assert (again.message, again.remedy) == ("gone", "r")


def test_message_and_remedy_are_sentences_of_one_paragraph() -> None:
    assert errors.BootflowError("The host is silent", "Start it.").paragraph == "The host is silent. Start it."
    assert errors.BootflowError("The host is silent.", "Start it.").paragraph == "The host is silent. Start it."
    assert errors.BootflowError("The host is silent").paragraph == "The host is silent"
