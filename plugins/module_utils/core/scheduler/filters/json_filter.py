# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JsonFilter: a user's query over the facts of a host."""

from __future__ import annotations

from ...errors import InvalidInput
from ..columns import Fleet, Rows, np
from ..host_state import ON_DEMAND
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .capacity import at
from .hints import bad_hint
from .json_query import OPERATORS, QueryError, compile_query, lookup, parse_query, variables
from .verdicts import pass_all


def _bad(reason: str) -> InvalidInput:
    return bad_hint(
        "query",
        "cannot be used: %s" % reason,
        "Write a JSON list of an operator (%s) and the operator's arguments." % " ".join(OPERATORS),
    )


class JsonFilter(Filter):
    """Passes hosts for which the hint ``query`` holds; json_query has its grammar.

    Raises InvalidInput for an invalid query, or one that compares values that cannot be compared.
    """

    name = "JsonFilter"
    hints = ("query",)

    def concerns(self, spec: RequestSpec) -> bool:
        return bool(spec.scheduler_hints.get("query"))

    def needs(self, spec: RequestSpec) -> frozenset[str]:
        try:
            names = variables(parse_query(spec.scheduler_hints.get("query")))
        except QueryError:
            return frozenset()  # evaluate() reports it
        heads = (name[1:].split(".")[0] for name in names)
        return frozenset(ON_DEMAND[head] for head in heads if head in ON_DEMAND)

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        try:
            query = parse_query(spec.scheduler_hints.get("query"))
            if not query:
                return pass_all(rows)
            holds = compile_query(query)
        except QueryError as e:
            raise _bad(str(e)) from None
        verdicts = []
        for row in np.atleast_1d(rows):
            host = fleet.host_state(int(row))
            try:
                verdicts.append(holds(host))
            except QueryError as e:
                raise _bad("for host %s %s" % (host.host, e)) from None
        mask = np.array(verdicts, dtype=bool).reshape(np.shape(rows))

        def text(position: int) -> str:
            host = fleet.host_state(int(at(rows, position)))
            values = ["%s is %s" % (name, lookup(host, name)) for name in variables(query)]
            return "the query %s does not hold%s" % (query, " (%s)" % ", ".join(values) if values else "")

        return FilterResult(mask=mask, text=text)
