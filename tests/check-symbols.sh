#!/bin/bash
# Exported symbols start with the name of their module, or of the header that declares a family of files
# (kernels_avx2.c exports kernels_...): solve_z3.c may export solve_z3_... and solve_...
. tests/tap.sh

module()
{
    local o=$1 stem prefix found
    stem=$(basename "$o" .o)
    prefix=$stem
    # Every leading part of the file's name that is itself a header's name is a prefix too.
    while [[ $prefix == *_* ]]; do
        prefix=${prefix%_*}
        [ -e "$2/$prefix.h" ] && stem="$stem|$prefix"
    done
    # A probe or a command of a program is named after its family: cmd_trace.c exports cmd_trace.
    found=$(nm -g --defined-only "$o" | awk 'NF == 3 && $2 !~ /[wWvVu]/ { print $3 }' |
        grep -vE "^($stem)(_|\$)" | grep -vE '^(__|_?asan|_?tsan|_?ubsan|\.)')
    [ -z "$found" ] || { echo "exports without the prefix $stem:" $found; return 1; }
}

for dir in common common/offline profiler planner packer runtime; do
    for o in "$B/$dir"/*.o; do
        case $o in */main.o | *'*.o') continue ;; esac
        [ -e "$dir/$(basename "$o" .o).c" ] || continue # left over from an older source
        check "$dir/$(basename "$o" .o)" module "$o" "$dir"
    done
done
done_testing
