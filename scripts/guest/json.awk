# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# JSON on stdin -> one line "path<TAB>value" per leaf, list items counted from 0: links.0.id<TAB>tap1. null is left out.
# Line breaks inside a string become "\n" in two characters: the guest only reads names, addresses and paths.

{ text = text $0 "\n" }

END {
    position = 1
    value("")
}

function blanks() {
    while (substr(text, position, 1) ~ /[ \t\r\n]/) position++
}

function string(    out, ch) {
    position++
    out = ""
    while (position <= length(text)) {
        ch = substr(text, position, 1)
        if (ch == "\"") { position++; return out }
        if (ch == "\\") {
            ch = substr(text, position + 1, 1)
            out = out ((ch == "n" || ch == "t" || ch == "r" || ch == "u" || ch == "b" || ch == "f") ? "\\" ch : ch)
            position += 2
        } else {
            out = out ch
            position++
        }
    }
    return out
}

function join(path, key) {
    return path == "" ? key : path "." key
}

function value(path,    ch, key, item, from) {
    blanks()
    ch = substr(text, position, 1)
    if (ch == "{") {
        position++
        for (;;) {
            blanks()
            ch = substr(text, position, 1)
            if (ch == "}" || ch == "") { position++; return }
            if (ch == ",") { position++; continue }
            key = string()
            blanks()
            position++
            value(join(path, key))
        }
    }
    if (ch == "[") {
        position++
        item = 0
        for (;;) {
            blanks()
            ch = substr(text, position, 1)
            if (ch == "]" || ch == "") { position++; return }
            if (ch == ",") { position++; continue }
            value(join(path, item++))
        }
    }
    if (ch == "\"") { print path "\t" string(); return }
    from = position
    while (substr(text, position, 1) ~ /[^],}: \t\r\n]/ && position <= length(text)) position++
    if (position == from) position++
    if (substr(text, from, position - from) != "null") print path "\t" substr(text, from, position - from)
}
