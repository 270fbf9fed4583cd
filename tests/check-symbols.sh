#!/bin/bash
# Exported symbols start with the name of their module, of the header that declares a family of files (solve_z3.c
# may export solve_...), of a struct that such a header declares (hwdb.h: struct hw, hw_free), or with the part of the
# name that tells a library's private file from its family (trace_h5.c: h5_open).
. tests/tap.sh
scratch

module()
{
    local o=$1 dir=$2 stem prefixes family structs found
    stem=$(basename "$o" .o)
    prefixes=$stem
    case $dir in common*) prefixes="$stem|${stem##*_}" ;; esac
    family=$stem
    while [[ $family == *_* ]]; do
        family=${family%_*}
        [ ! -e "$dir/$family.h" ] || prefixes="$prefixes|$family"
    done
    structs=$(cat "$dir/$stem".h "$dir/${family}"*.h 2>/dev/null | grep -oE '^struct [a-z0-9_]+' | cut -d ' ' -f 2 | sort -u)
    for s in $structs; do prefixes="$prefixes|$s"; done
    found=$(awk -v o="$o:" -v allowed="^($prefixes)(_|\$)" '$0 == o { mine = 1; next } /^$/ { mine = 0 }
        mine && NF == 3 && $2 !~ /[wWvVu]/ && $3 !~ allowed && $3 !~ /^(_*[alt]san|_*ubsan|_*odr|\.)/ { print $3 }' "$tmp/nm")
    [ -z "$found" ] || { echo "exports without the prefix $prefixes:" $found; return 1; }
}

objects=()
for source in $(find common profiler planner packer runtime server quantizer driver -name '*.c' ! -name main.c | sort); do
    [ ! -e "$B/${source%.c}.o" ] || objects+=("$B/${source%.c}.o")
done
nm -g --defined-only "${objects[@]}" > "$tmp/nm"
for o in "${objects[@]}"; do
    source=${o#"$B/"}
    check "${source%.o}" module "$o" "${source%/*}"
done
done_testing
