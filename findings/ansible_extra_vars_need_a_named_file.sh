#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# ansible-core 2.19.14 (PyPI). `-e @FILE` resolves links before it reads: a file that is a descriptor of the caller, such as bash's process
# substitution (-e @<(command)) or a memfd that a program hands over, becomes /proc/PID/fd/pipe:[NUMBER], which nobody can open. Secrets
# for one run have to be in a file that has a name. The error names the inventory as its origin.
#
# Installs ansible-core in a temporary folder.
set -euo pipefail
VERSION=2.19.14
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv python
python/bin/python -m pip install -qq --disable-pip-version-check "ansible-core==$VERSION"
cat >play.yml <<'PLAY'
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "the value is {{ example }}"
PLAY
echo 'example: 1' >vars.yml
export ANSIBLE_HOME=$folder/home ANSIBLE_NOCOLOR=1 ANSIBLE_LOCALHOST_WARNING=false
run() { python/bin/ansible-playbook -i localhost, -c local play.yml -e "$1" >output 2>&1 && echo works || echo fails; }
named=$(run @vars.yml)
descriptor=$(run @<(cat vars.yml))
echo "ansible-core $VERSION: -e @vars.yml $named, -e @<(cat vars.yml) $descriptor"
grep -m 1 -o "Could not find or access '[^']*'" output | sed 's|/proc/[0-9]*/fd/pipe:\[[0-9]*\]|/proc/PID/fd/pipe:[NUMBER]|'
grep -m 1 '^Origin:' output
if [ "$named $descriptor" != "works fails" ]; then
    echo "the behaviour changed"
    exit 1
fi
