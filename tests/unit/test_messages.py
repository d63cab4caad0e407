# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All texts for users are in one file, to be reviewed as one text, and in plain English."""

from __future__ import annotations

import ast
import re
import runpy
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "unit" / "messages.txt"
MESSAGES = runpy.run_path(str(ROOT / "scripts" / "messages.py"))
TEXTS: dict[str, str] = MESSAGES["texts"]()

#: What this project used to say -> what the field says.
DIALECT = {
    r"rid of": "clean up, remove",
    r"anew": "again",
    r"(no|some)bod(y|ies)('s)?": "unowned; or name who",
    r"wish(es|ed)?": "request, requested",
    r"told": "reported",
    r"can not": "cannot",
    r"is none (of|that)": "must be one of",
    r"(?<!there )(is|are) no (?!longer|more)[A-Za-z'%]+": "is not a",
    r"as asked": "as requested, match the request",
    r"(is|are) asked for": "is requested",
    r"mend": "fix",
    r"goes on (with|where)": "continues with",
    r"(un the|the) same again": "the same command again",
    r"believed": "its report is wrong",
    r"left so": "is left as it is",
    r"(has|have)( not)? come": "has arrived",
    r"see that": "make sure that, check that",
    r"those that": "name what they are",
    r"all that there is": "the only copy",
}


def test_the_file_of_messages_is_that_of_the_tree() -> None:
    assert GOLDEN.read_text().splitlines() == list(TEXTS), (
        "run scripts/messages.py > tests/unit/messages.txt and review the change"
    )


@pytest.mark.parametrize("words", DIALECT)
def test_messages_are_in_the_words_of_the_field(words: str) -> None:
    pattern = re.compile(r"\b(?:%s)(?!\w)" % words, re.IGNORECASE)
    found = ["%s: %s" % (path, text) for text, path in TEXTS.items() if pattern.search(text)]
    assert not found, "say: %s" % DIALECT[words]


def test_texts_are_found() -> None:
    source = '''"""A docstring is left out."""
DOCUMENTATION = "as is documentation"
raise Error("disk %s " "has no size" % name, remedy="Set a size.")
warn(f"host {host} is down")
re.compile("a pattern here")
word = "oneword"
'''
    found: t.Callable[[ast.AST], t.Iterator[str]] = MESSAGES["texts_of"]
    texts = [text for text in found(ast.parse(source)) if MESSAGES["SENTENCE"].search(text)]
    assert texts == ["disk %s has no size", "Set a size.", "host {} is down"]
