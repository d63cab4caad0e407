# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of a plan: its canonical content, the hash over it, and how it is read.

The file is JSON. The field ``hash`` is the SHA-256 of all other fields as canonical JSON: keys in order, no spaces, UTF-8.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

from .. import errors
from ..instances.request import ServerRequest
from ..request import expand
from .plan_states import KINDS

VERSION = 1
HASH = "hash"
#: Fields of every plan, with the types of their values.
FIELDS: dict[str, type] = {
    "version": int,
    "kind": str,
    "id": str,
    "ledger": str,
    "created": str,
    "expires": str,
    "actor": str,
    "request": dict,
    "instances": list,
    HASH: str,
}
OF_INSTANCES = ("name", "project", "uuid", "host", "node")
SHOWN = 5  # differences that an error names

Plan = t.Dict[str, t.Any]


def canonical(content: t.Any) -> str:
    """Return ``content`` as canonical JSON."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_hash(content: t.Any) -> str:
    """Return the SHA-256 of ``content`` as hexadecimal digits."""
    return hashlib.sha256(canonical(content).encode("utf-8")).hexdigest()


def signed(content: t.Mapping[str, t.Any]) -> Plan:
    """Return the plan with the hash over its content."""
    plain = json.loads(json.dumps({k: v for k, v in content.items() if k != HASH}))
    return {**plain, HASH: content_hash(plain)}


def text_of(plan: t.Mapping[str, t.Any]) -> str:
    """Return the plan as the text of its file."""
    return json.dumps(plan, indent=2, ensure_ascii=False) + "\n"


def parse(text: str, file: str) -> Plan:
    """Return the plan in the text of a file.

    :arg file: its path, for messages.
    :raises PlanUnreadable: it is not a plan, or of a version that is not known. :raises PlanAltered: its hash is another one.
    """
    try:
        plan = json.loads(text)
        canonical(plan).encode("utf-8")  # half of a surrogate pair has no UTF-8
    except (ValueError, RecursionError) as e:
        raise errors.PlanUnreadable(file=file, reason="it is not JSON of a plan (%s)" % e) from None
    if not isinstance(plan, dict):
        raise errors.PlanUnreadable(file=file, reason="it is not a mapping")
    lacking = [name for name in FIELDS if name not in plan]
    if lacking:
        raise errors.PlanUnreadable(file=file, reason="it has no %s" % ", ".join(lacking))
    wrong = [name for name, kind in FIELDS.items() if not isinstance(plan[name], kind) or plan[name] is True]
    if wrong:
        raise errors.PlanUnreadable(file=file, reason="the type of %s is wrong" % ", ".join(wrong))
    if plan["version"] != VERSION:
        raise errors.PlanUnreadable(
            file=file,
            reason="it is of version %d, and this version of the collection knows %d" % (plan["version"], VERSION),
        )
    if content_hash({name: value for name, value in plan.items() if name != HASH}) != plan[HASH]:
        raise errors.PlanAltered(file=file)
    if plan["kind"] not in KINDS or not all(_is_instance(i) for i in plan["instances"]):
        raise errors.PlanUnreadable(
            file=file, reason="its kind is unknown, or an instance lacks one of %s" % ", ".join(OF_INSTANCES)
        )
    return plan


def _is_instance(value: t.Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in OF_INSTANCES)


def check_use(plan: Plan, file: str, kind: str, ledger_id: str) -> None:
    """Check that the plan is for this playbook and this ledger.

    :raises PlanOfAnotherPlaybook: of another kind. :raises PlanOfAnotherLedger: of another ledger
    """
    if plan["kind"] != kind:
        raise errors.PlanOfAnotherPlaybook(file=file, kind=plan["kind"], playbook=kind)
    if plan["ledger"] != ledger_id:
        raise errors.PlanOfAnotherLedger(file=file, of=plan["ledger"], ledger_id=ledger_id)


# --- the request --------------------------------------------------------------------------------------------------------


def request_of(entries: t.Sequence[ServerRequest]) -> dict[str, t.Any]:
    """Return the request of a plan, without secrets: {digest, entries: [{min_count, max_count, and the fields of request_digest()}]}."""
    plain = [{**expand.request_digest(r), "min_count": r.min_count, "max_count": r.max_count} for r in entries]
    plain = json.loads(json.dumps(plain))
    return {"digest": content_hash(plain), "entries": plain}


def request_differences(
    planned: t.Mapping[str, t.Any], now: t.Mapping[str, t.Any], names: t.Mapping[str, str] | None = None
) -> list[str]:
    """Return in words how a request differs from the planned one; none: it is the same.

    :arg planned: see request_of(). :arg names: of ids, for messages
    """
    if planned.get("digest") == now["digest"]:
        return []
    before = {(e["project"], e["name"]): e for e in planned.get("entries", ())}
    after = {(e["project"], e["name"]): e for e in now["entries"]}
    words = ["%s is not in the plan" % name for project, name in after if (project, name) not in before]
    words += ["%s is not in the request any more" % name for project, name in before if (project, name) not in after]
    for key in before:
        if key in after and before[key] != after[key]:
            requested, drift = expand.differing(before[key], after[key], names)
            words += ["%s: %s" % (key[1], d.words("%s was %s, is %s")) for d in (*requested, *drift)]
    return words or ["the order of its entries"]


def move_request(flavor: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """Return the request of a plan of moves: {digest, entries: []; flavor: the new one with all of its fields, None: each keeps its own}."""
    plain = json.loads(json.dumps(flavor))
    return {"digest": content_hash(plain), "entries": [], "flavor": plain}


def flavor_differences(planned: t.Mapping[str, t.Any], now: t.Mapping[str, t.Any]) -> list[str]:
    """Return in words how the flavor of a request differs from the planned one. :arg planned, now: see move_request()"""
    before, after = planned.get("flavor") or {}, now["flavor"] or {}
    if before.get("name") != after.get("name"):
        return ["flavor was %s, is %s" % (before.get("name"), after.get("name"))]
    return [
        "flavor.%s was %s, is %s" % (field, canonical(before.get(field)), canonical(after.get(field)))
        for field in sorted({*before, *after})
        if before.get(field) != after.get(field)
    ]


def drain_request(host: str, live: bool) -> dict[str, t.Any]:
    """Return the request of a plan of a drain: {digest, entries: [], host, live: guests that run may go while they run}."""
    plain = {"host": host, "live": live}
    return {"digest": content_hash(plain), "entries": [], **plain}


def drain_differences(planned: t.Mapping[str, t.Any], now: t.Mapping[str, t.Any]) -> list[str]:
    """Return in words how the request of a drain differs from the planned one. :arg planned, now: see drain_request()"""
    return ["%s was %s, is %s" % (n, planned.get(n), now[n]) for n in ("host", "live") if planned.get(n) != now[n]]


#: Fields of an instance that exists, which are to be as they were when it was planned, with their words.
AS_PLANNED = {
    "name": "name",
    "from": "host",
    "vm_state": "vm_state",
    "flavor": "flavor",
    "ports": "ports",
    "volumes": "volumes",
    "how": "way",
}


def instance_differences(planned: t.Mapping[str, t.Any], now: t.Mapping[str, t.Any]) -> list[str]:
    """Return in words how an instance that exists differs from the planned one."""
    words = []
    for field, word in AS_PLANNED.items():
        before, after = planned.get(field), json.loads(json.dumps(now.get(field)))
        if before == after:
            continue
        plain = isinstance(before, str) and isinstance(after, str)
        words.append("%s: %s %s" % (planned["name"], word, "was %s, is %s" % (before, after) if plain else "changed"))
    return words


def some_words(words: t.Sequence[str]) -> str:
    """Return the first of these words, and the number of the others."""
    more = len(words) - SHOWN
    return "; ".join(words[:SHOWN]) + (" and %d more" % more if more > 0 else "")
