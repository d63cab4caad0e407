# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Libraries that may be absent where a file is merely imported (ansible-doc, ansible-test, a host without them)."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import typing as t

from .errors import MissingLibrary

# What libraries read as they are loaded. numpy's linear algebra, which nothing here uses, would start a thread for each core, which
# looks for work all the time, and is stopped and started by each fork.
_ENVIRONMENT = {"numpy": {"OPENBLAS_NUM_THREADS": "1"}}


class Missing:
    """Stands for a library that is not installed.

    Attributes and items of it, and calls at import time, give another stand-in, and it has no elements, so that tables, statements and
    type hints can be written at the top of a file. Asking whether it is there (``bool()``) answers no; L(require) raises.
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: t.Any, **kwargs: t.Any) -> Missing:
        return self

    def __getitem__(self, key: t.Any) -> Missing:
        return self

    def __iter__(self) -> t.Iterator[t.Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False


def optional_import(name: str) -> t.Any:
    """The module called ``name``, or a false stand-in when it is not installed."""
    try:
        if name in _ENVIRONMENT and name not in sys.modules:
            with _environment(_ENVIRONMENT[name]):
                return importlib.import_module(name)
        return importlib.import_module(name)
    except ImportError:
        return Missing(name)


@contextlib.contextmanager
def _environment(variables: t.Mapping[str, str]) -> t.Iterator[None]:
    """Have these variables in the block, where the user has not set them: programs that are started later do not inherit them."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


class Lazy:
    """Stands for the library called ``name``, which takes long to import, until something of it is used; then as optional_import()."""

    def __init__(self, name: str):
        self._name = name

    def imported(self) -> t.Any:
        return optional_import(self._name)

    def __getattr__(self, name: str) -> t.Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self.imported(), name)
        setattr(self, name, value)  # from now on it is as near as in a module
        return value


def installed(name: str) -> t.Any:
    """Something true where the library called ``name`` is installed, else a stand-in: it is looked for, not imported."""
    return importlib.util.find_spec(name) or Missing(name)


def require(library: t.Any, name: str, package: str, where: str = "controller") -> None:
    """Raise MissingLibrary when ``library`` came out of one of these functions and is not installed.

    :arg package: what to install (pip name on the controller, Debian name on a host).
    :arg where: ``controller`` or ``host``.
    """
    if isinstance(library.imported() if isinstance(library, Lazy) else library, Missing):
        raise MissingLibrary(name=name, package=package, where=where)
