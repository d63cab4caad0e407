# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All texts for users are in one file, to be reviewed as one text, and in plain English."""

from __future__ import annotations

import ast
import io
import re
import runpy
import tokenize
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

#: Grammar of this project's former prose -> what to write.
GRAMMAR = {
    r"those (of|who|which|whose)": "name what they are",
    r"went over|goes over|go over": "the migration completes, the instance moves",
    r"leads out": "repairs",
    r"lets? go": "releases",
    r"beside": "next to, in addition to, compared with",
    r"of (its|their) own": "its own, separate",
    r"keeps? (no other|the others?|the host|an instance|nobody) from": "does not stop the others",
    r"(is|are|was|were) told": "is reported, is printed",
}
#: How the first line of a docstring does not begin.
BEGINNING = re.compile(r"(What|Who|Whoever|Whose|Those|Of which|Of)\b")
#: Places of prose.
KINDS = ("docstrings", "beginnings", "documentation", "comments", "pages", "others")
#: Other texts that people read or edit.
OTHERS = (
    "*.md",
    "roles/**/*.md",
    "roles/**/*.yml",
    "playbooks/*.yml",
    "extensions/**/*.yml",
    "docs/examples/**/*.yml",
    "changelogs/fragments/*.yml",
)
ANY = re.compile(r"\b(?:%s)(?!\w)" % "|".join([*DIALECT, *GRAMMAR]), re.IGNORECASE)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(tree: ast.AST) -> list[str]:
    return [text for node in ast.walk(tree) if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node))]


def documentation(tree: ast.AST, of_fragments: bool = False) -> list[str]:
    """The documentation blocks of a module; in a fragment all texts of its class."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            if of_fragments or any(getattr(target, "id", "") in MESSAGES["DOCUMENTATION"] for target in node.targets):
                found.append(node.value.value)
    return found


def comments(text: str) -> list[str]:
    """The comments of a file, whole ones and those at the end of a line."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


#: Names of columns, users and the like, which are not prose.
NAME_IN_CODE = re.compile(r"`\w+`")


def lines_in_other_words(kind: str) -> list[str]:
    """The lines of a kind of place that have words of DIALECT or GRAMMAR, or such a beginning."""
    if kind in ("pages", "others"):
        patterns = ("docs/*.md",) if kind == "pages" else OTHERS
        paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.name != "CHANGELOG.md"]
        lines = [(path.name, line) for path in paths for line in path.read_text().splitlines()]
        return ["%s: %s" % line for line in lines if ANY.search(NAME_IN_CODE.sub("", line[1]))]
    found: list[str] = []
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        tree = ast.parse(path.read_text())
        if kind == "comments":
            texts = comments(path.read_text())
        elif kind == "documentation":
            texts = documentation(tree, "doc_fragments" in path.parts)
        else:
            texts = docstrings(tree)
        if kind == "beginnings":
            found += ["%s: %s" % (path.name, text.splitlines()[0]) for text in texts if BEGINNING.match(text)]
        else:
            found += ["%s: %s" % (path.name, line) for text in texts for line in text.splitlines() if ANY.search(line)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_prose_is_in_the_words_of_the_field(kind: str) -> None:
    assert lines_in_other_words(kind) == []


def test_words_are_found_in_docstrings_and_documentation() -> None:
    tree = ast.parse('DOCUMENTATION = "It is told."\nOTHER = "a text"\ndef f():\n    """Those of a host."""\n')
    assert comments("x = 1  # beside it\n# of its own\n") == ["# beside it", "# of its own"]
    assert docstrings(tree) == ["Those of a host."] and BEGINNING.match("Those of a host.")
    assert documentation(tree) == ["It is told."] and documentation(tree, True) == ["It is told.", "a text"]
    assert all(ANY.search(text) for text in ("It is told.", "those of a host", "a disk of its own", "beside it"))
    assert not ANY.search("Release the attachments of a run that died.")


def test_the_file_of_messages_is_that_of_the_tree() -> None:
    assert GOLDEN.read_text().splitlines() == list(TEXTS), (
        "run scripts/messages.py > tests/unit/messages.txt and review the change"
    )


@pytest.mark.parametrize("words", [*DIALECT, *GRAMMAR])
def test_messages_are_in_the_words_of_the_field(words: str) -> None:
    pattern = re.compile(r"\b(?:%s)(?!\w)" % words, re.IGNORECASE)
    found = ["%s: %s" % (path, text) for text, path in TEXTS.items() if pattern.search(text)]
    assert not found, "say: %s" % {**DIALECT, **GRAMMAR}[words]


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
