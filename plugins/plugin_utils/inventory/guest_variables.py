# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of thousands of hosts of an inventory, and the expressions of its file, at the cost of once for all hosts where that is possible.

Ansible compiles an expression again for each host, and visits each value that a plugin sets. That takes longer than to read the ledger.
"""

from __future__ import annotations

import contextlib
import re
import types
import typing as t

from ansible.template import trust_as_template

TEMPLATE = re.compile(r"[{}]|#jinja2", re.IGNORECASE)


@contextlib.contextmanager
def compiled_once(templar: t.Any) -> t.Iterator[None]:
    """Have the ``templar`` compile each expression once in the block, whatever the number of hosts that it is evaluated for.

    All else, variables and errors among it, stays Ansible's. What does not compile is compiled again, as its error belongs to one host. A templar
    that compiles in another way (a later ansible-core) is left as it is.
    """
    engine: t.Any = getattr(templar, "_engine", None)
    compile_expression = getattr(engine, "_compile_expression", None)
    if compile_expression is None or not hasattr(engine, "__dict__"):
        yield
        return
    compiled: dict[tuple[str, t.Any], t.Any] = {}

    def once(expression: str, options: t.Any) -> t.Any:
        key = (str(expression), getattr(options, "escape_backslashes", None))
        if key not in compiled:
            made = compile_expression(expression, options)
            if isinstance(made, types.FunctionType):  # it raises the error
                return made
            compiled[key] = made
        return compiled[key]

    engine._compile_expression = once
    try:
        yield
    finally:
        del engine._compile_expression


class PlainValues:
    """Data of the ledger as values of variables: new containers, and texts that hosts share.

    Text that cannot be a template is marked as trusted, so that ansible-inventory shows it as it is.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def plain(self, value: t.Any) -> t.Any:
        """Return the same data, of dictionaries, lists, texts, numbers, booleans and None."""
        if isinstance(value, str):
            text = self._texts.get(value)
            is_marked = value.__class__ is not str
            if text is None or is_marked:
                text = value if TEMPLATE.search(value) else trust_as_template(value)
                if not is_marked:
                    self._texts[value] = text
            return text
        if isinstance(value, dict):
            return {name: self.plain(item) for name, item in value.items()}
        return [self.plain(item) for item in value] if isinstance(value, list) else value


def set_variable(inventory: t.Any, host: str, name: str, value: t.Any) -> None:
    """Set a variable of a host to a value of :class:`PlainValues`, which Ansible need not visit again."""
    getattr(inventory, "__wrapped__", inventory).set_variable(host, name, value)
