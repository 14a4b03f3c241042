#!/bin/sh
# Fill in a template of this folder: every @NAME@ becomes what the settings say.
#
#   sh fill.sh SETTINGS TEMPLATE > RESULT
#
# SETTINGS is a file of lines NAME=VALUE (site.env is the example), or - for standard input; lines that are empty
# or begin with # are skipped, values are taken as they stand, without quotes. A line of the template whose setting
# is empty is left out. A setting that the template asks for and nobody gives: one line that names it, nothing on
# standard output, and exit code 1.
set -eu
[ $# = 2 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -r "$2" ] || { echo "fill.sh: cannot read $2" >&2; exit 1; }

# Each setting becomes two commands of sed: to delete a line, or to replace in it.
commands=$(sed -n -e 's/[[:space:]]*$//' -e '/^#/d' -e 's/[\\|&]/\\&/g' \
    -e 's/^\([A-Z][A-Z0-9_]*\)=$/\/@\1@\/d/p' -e 's/^\([A-Z][A-Z0-9_]*\)=\(.*\)$/s|@\1@|\2|g/p' -- "$1")
filled=$(sed -e "$commands" "$2")
missing=$(printf '%s\n' "$filled" | grep -o '@[A-Z][A-Z0-9_]*@' | sort -u | tr '\n' ' ')
[ -z "$missing" ] || { echo "fill.sh: $2 asks for ${missing% }, which the settings do not have" >&2; exit 1; }
printf '%s\n' "$filled"
