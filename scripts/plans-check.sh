#!/bin/sh
# Compare plans with those of a baseline folder: what changed, and exit status 1 when a promise got worse or is no
# longer made. Called by `make plans-check`.
[ $# -ge 4 ] || { echo "usage: plans-check.sh PLANS-DIR BASELINE-DIR TOLERANCE-PERCENT PLAN..." >&2; exit 2; }
bin=${BIN:-build/bin} dir=$1 base=$2 tolerance=$3
shift 3
[ -d "$base" ] || { echo "plans-check: there is no folder '$base'; make plans PLANS=... makes one" >&2; exit 1; }
n=0 worse=0 fresh=0
for plan in "$@"; do
    name=${plan#"$dir"/}
    if [ ! -e "$base/$name" ]; then
        echo "new:      $name"
        fresh=$((fresh + 1))
        continue
    fi
    n=$((n + 1))
    said=$("$bin/thermo-plan" check "$plan" --against "$base/$name" --tolerance "$tolerance" 2>&1)
    status=$?
    lines=$(printf '%s\n' "$said" | sed -n -e '/^worse: /p' -e '/^changed: /p' -e '/error:/p')
    [ -z "$lines" ] || printf '%s\n' "$lines" | sed "s|^|$name: |"
    [ "$status" -eq 0 ] || worse=$((worse + 1))
done
for old in "$base"/*.json; do
    [ -e "$old" ] || continue
    name=${old##*/}
    case " $* " in
    *" $dir/$name "*) ;;
    *) echo "worse:    $name is no longer planned"; worse=$((worse + 1)) ;;
    esac
done
echo "$n plans compared with $base: $worse worse, $fresh new (tolerance $tolerance %)"
[ "$worse" -eq 0 ]
