#!/bin/sh
# What the documents name exists: files, make targets, subcommands, options.
. tests/tap.sh
scratch

documents='README.md docs/ARCHITECTURE.md scripts/help.txt'

# Relative links of the Markdown files.
links()
{
    bad=0
    for d in $(git ls-files '*.md' 2>/dev/null || find . -name '*.md' ! -path './build/*'); do
        for l in $(grep -oE '\]\([^)#: ]+\)' "$d" | sed 's/^](//; s/)$//'); do
            [ -e "$(dirname "$d")/$l" ] || { echo "$d: $l"; bad=1; }
        done
    done
    return $bad
}

targets()
{
    bad=0
    for t in $(cat $documents | grep -oE '\bmake( -j[0-9]*)? [a-z][a-z0-9-]+' | awk '{ print $NF }' | sort -u); do
        grep -hE "^(\.PHONY:|[a-z][a-z0-9 -]*:)" GNUmakefile scripts/*.mk tests/module.mk | tr ' :' '\n\n' |
            grep -qx -e "$t" || case $t in
            runtime | profiler | planner | packer) ;;
            *) echo "no target '$t'"; bad=1 ;;
            esac
    done
    return $bad
}

# Every `thermo-x sub --option` of the README is one that the program's help lists.
options()
{
    bad=0
    sed -e ':a' -e '/\\$/N; s/\\\n//; ta' README.md | grep -oE 'build/bin/thermo-[a-z]+ [a-z]+.*' > "$tmp/commands"
    while read -r program command rest; do
        help=$("$BIN/${program##*/}" "$command" --help) || { echo "$program $command"; bad=1; continue; }
        for o in $(echo "$rest" | grep -oE '(^| )--[a-z-]+'); do
            echo "$help" | grep -q -e "$o " -e "$o\$" || { echo "$program $command has no $o"; bad=1; }
        done
    done < "$tmp/commands"
    rm -f "$tmp/commands"
    return $bad
}

check "links in Markdown files lead somewhere" links
check "make targets that the documents name exist" targets
check "commands and options in README.md exist" options
done_testing
