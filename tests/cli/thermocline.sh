#!/bin/bash
# thermocline as one user would treat it: run again, inputs changed, replaced and only touched, stopped and killed at every
# stage, results damaged or lost, names of all kinds. A tiny random model; a device from a CSV, so that little is measured.
. tests/tap.sh
scratch
here=$(pwd -P)
case $BIN in /*) ;; *) BIN=$here/$BIN ;; esac
real=$BIN
cd "$tmp" || exit 1

# Programs that do as the real ones, but stop, or kill thermocline, where a file says so; a measurement takes a moment only,
# and there is one: the next time the database is that of the first, by the name that is asked for.
mkdir bin in
cat > bin/wrapper << END
#!/bin/bash
what=\${0##*/}-\$1
case " \$* " in " solve -q --model "*) what=\$what-asked ;; *" --dry-run "*) what=\$what-dry ;; esac
kill_when() { [ ! -e "$tmp/\$1-\$what" ] || { rm "$tmp/\$1-\$what"; kill -9 \$PPID; exit 1; }; }
kill_when before
if [ \$what = thermo-profile-hardware ]; then # --db FILE --device NAME
    if [ -e "$tmp/measured" ]; then
        cp "$tmp/measured" "\$3" && sqlite3 "\$3" "UPDATE device SET name = '\$5'"
    else
        "$real/\${0##*/}" "\$@" --range 8MiB --memory-range 8MiB --seconds-per-point 0.003 --only storage,memory && cp "\$3" "$tmp/measured"
    fi
elif [ -e "$tmp/stop" ] && [ \$what = thermo-profile-trace ]; then
    "$real/\${0##*/}" "\$@" & pid=\$!
    while [ "\$(stat -c %s "$tmp"/*/traces.h5.partial 2> /dev/null || echo 0)" -lt "\$(cat "$tmp/stop-at")" ] && [ -e /proc/\$pid/exe ]; do
        sleep 0.01
    done
    kill -"\$(cat "$tmp/stop")" \$pid
    rm "$tmp/stop"
    wait \$pid
else
    [ -e "$tmp/after-\$what" ] || exec "$real/\${0##*/}" "\$@"
    "$real/\${0##*/}" "\$@"
fi
r=\$?
kill_when after
exit \$r
END
chmod +x bin/wrapper
for p in thermo-profile thermo-plan thermo-pack thermo-run; do ln -s wrapper bin/$p; done
export BIN=$tmp/bin

random() { "$real/gguf-make" random -q --act relu --context 128 "$@"; } # [--seed N] FILE
random --seed 1 in/m.gguf && random --seed 2 in/other.gguf || exit 1
printf 'text\nOnce there was a dog.\nA cat sat on the mat and looked at it.\n' > in/p.csv
(cd "$here" && phone_csv "$tmp/in/hw.csv")
"$real/thermo-profile" import -q --db in/hw.sqlite --csv in/hw.csv > /dev/null
"$real/thermo-profile" import -q --db in/other.sqlite --csv "$here/datasets/devices/oneplus-ace-2.csv" > /dev/null

export XDG_CACHE_HOME=$tmp/cache
# drive ARGS...: --model FILE among them is the model, the last one that is given
drive()
{
    local m='' a=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case $1 in
        --model) m=$2; shift ;;
        *) a+=("$1") ;;
        esac
        shift
    done
    "$real/thermocline" -v "$m" "${a[@]}" "$@"
}
quietly() { drive "$@" > text 2> talk < /dev/null; }
go() # FOLDER ARGS...: with all that the other tests do not say
{
    local out=$1
    shift
    quietly --model in/m.gguf --prompts in/p.csv --hardware in/hw.sqlite --memory 64MiB --plan-flags '--context 64' --tokens 0 \
        --out "$out" "$@" || { local r=$?; cat talk; return $r; }
}

# stages WORDS: of trace, plan and pack, which were done; "" for none. What the talk says must be so.
stages()
{
    local got
    got=$(sed -n -e '/up to date$/d' -e 's/^== [234] \([a-z]*\): .*/\1/p' talk | tr '\n' ' ')
    [ "${got% }" = "$1" ] || { echo "done: $got, wanted: $1"; cat talk; return 1; }
}
because() { grep -q -e "$1" talk || { echo "looking for '$1' in:"; cat talk; return 1; }; }
# same_as FOLDER FOLDER: what both hold is the same by content (a trace's file keeps how long it took; a plan for a pack that
# was there was asked for with its layout, and its gap is one of that layout)
planned() { sed -e '/"the gap leaves out/d' -e '/^  "request": {/,/^  }/d' "$1/plan.json"; }
same_as()
{
    cmp <(planned "$1") <(planned "$2") && cmp "$1/model.thermo" "$2/model.thermo" && [ "$(content "$1")" = "$(content "$2")" ]
}
content() { "$real/thermo-profile" show --json -q "$1/traces.h5" | grep -m 1 content_hash; }
anew() { rm -rf fresh && go fresh "$@"; } # the same from nothing, to compare with
times() { stat -c '%n %i %.9Y' "$1"/{traces.h5,plan.json,model.thermo}; }

# ---- again, and with something changed ----
text() { quietly --model in/m.gguf --prompts in/p.csv --hardware in/hw.sqlite --memory 64MiB --plan-flags '--context 64' \
             --tokens 3 --prompt "$1" --run-flags '--seed 1' --out o -- --temp 0 && grep -q -F -e "$1" text; }
check "from nothing" go o
check "all stages are done" stages "trace plan pack"
times o > before
check "again" go o
check "no stage is done" stages ""
check "it says so of each" eval '[ "$(grep -c "up to date$" talk)" -eq 3 ]'
check "and runs, from a prompt that looks like an option" text '--odd "$HOME" `x`'
touch in/*
cp in/p.csv in/moved.csv
check "inputs touched and moved" go o --prompts in/moved.csv
check "are the same" stages ""
check "nothing was written anew" eval 'times o | cmp before -'

echo 'And one more.' >> in/p.csv
check "more prompts" go o
check "are traced, planned and packed" eval 'stages "trace plan pack" && because "2 trace: .*again, because the prompts changed"'
check "as from nothing" eval 'anew && same_as o fresh'

cp -p in/m.gguf in/kept.gguf
replace() # of the same name, size and time
{
    cp in/other.gguf in/m.new && touch -r in/m.gguf in/m.new && mv in/m.new in/m.gguf &&
        [ "$(stat -c '%s %.9Y' in/m.gguf)" = "$(stat -c '%s %.9Y' in/kept.gguf)" ] && go o
}
check "another model of the same name, size and time" replace
check "is traced, planned and packed" eval 'stages "trace plan pack" && because "because the model changed"'
check "as from nothing" eval 'anew && same_as o fresh'
in_place() { cat in/kept.gguf > in/m.gguf && go o && stages "trace plan pack" && cp -p in/m.gguf in/kept.gguf; }
check "a model overwritten in place" in_place

packed=$(stat -c '%i %.9Y' o/model.thermo)
check "another limit" eval 'go o --memory 8MiB,32MiB && stages plan && because "because --memory (was 64MiB) changed"'
check "another device" eval 'go o --hardware in/other.sqlite && stages plan && because "the device.s figures"'
check "another flag" eval 'go o --plan-flags "--context 32" && stages plan && because "was --context 64"'
check "other tokens to trace" eval 'go o --max-tokens 20 && stages "trace plan pack"'
check "back" eval 'go o && stages "trace plan pack"'
packed=$(stat -c '%i %.9Y' o/model.thermo)
check "below the floor: exit status 4" status 4 go o --memory 1MiB
check "and above again, with the plan and the pack that are there" eval 'go o && stages "" && [ "$(stat -c "%i %.9Y" o/model.thermo)" = "$packed" ]'
check "a layout that the pack has not is planned and packed" eval 'go o --plan-flags "--context 64 --form two-phase" && stages "plan pack"'
check "and asked for again with other words, planned alone" eval 'go o --plan-flags "--form two-phase --context 64" && stages plan'
check "tiles, in dense mode" eval 'go o --plan-flags "--context 64 --mode dense --form tiles" && stages "plan pack"'
check "a mode that tiles have not: packed again" eval 'go o --plan-flags "--context 64 --mode exact" && stages "plan pack" && because "another layout"'
check "and as before" eval 'go o && stages plan'
check "--fresh" eval 'go o --fresh && stages "trace plan pack"'

# ---- results lost, damaged or replaced ----
check "a trace that was emptied" eval ': > o/traces.h5; go o && stages trace && because "not what was made"'
check "a trace that is gone" eval 'rm o/traces.h5; go o && stages trace && because "is gone"'
check "a plan that was edited" eval 'echo >> o/plan.json; go o && stages plan && because "not what was made"'
check "a pack that was cut" eval 'truncate -s -100 o/model.thermo; go o && stages pack'
check "a pack of another model" eval 'go q --model in/other.gguf && cp q/model.thermo o/ && go o && stages pack && anew && same_as o fresh'
check "a copy of the folder" eval 'cp -r o copied && go copied && stages ""'

# ---- killed and interrupted ----
killed() # before|after PROGRAM-COMMAND STAGES: what is left to do the next time
{
    rm -rf k
    : > "$1-$2"
    go k > /dev/null 2>&1
    local r=$?
    [ $r -eq 137 ] || { echo "exit status $r, it was not killed"; return 1; }
    go k && stages "$3" && same_as k fresh
}
plainly check "killed before the trace" killed before thermo-profile-trace "trace plan pack"
plainly check "killed after the trace" killed after thermo-profile-trace "trace plan pack"
plainly check "a trace that was whole is not made again" because 'nothing to resume'
plainly check "killed before the plan" killed before thermo-plan-solve "plan pack"
plainly check "killed after the plan" killed after thermo-plan-solve "plan pack"
check "killed before the pack" killed before thermo-pack-pack pack
plainly check "killed after the pack" killed after thermo-pack-pack pack

# Six chunks. Half of what they take on disk is past the first one, which has all maps and a fifth of the samples.
long="--prompts $here/datasets/prompts/stories-profile.csv --max-tokens 20000"
# shellcheck disable=SC2086
"$real/thermo-profile" trace --model in/m.gguf $long --out none.h5 --dry-run --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["partial_bytes"] // 2)' > stop-at
stopped() # SIGNAL STATUS
{
    rm -rf r
    echo "$1" > stop
    # shellcheck disable=SC2086
    go r $long > /dev/null 2>&1
    local r=$?
    [ $r -eq "$2" ] && [ -e r/traces.h5.partial ] || { echo "exit status $r"; cat talk; ls r; return 1; }
}
# shellcheck disable=SC2086
resumed() { go r $long && because 'going on where it was interrupted' && stages "trace plan pack" && [ "$(content r)" = "$(content whole)" ]; }
# shellcheck disable=SC2086
go whole $long > /dev/null
check "a trace interrupted" eval 'stopped TERM 130 && because "the same command goes on"'
check "is resumed" resumed
early() # before its first chunk is whole: nothing is kept, and nobody says that something was
{
    cp stop-at half && echo 1 > stop-at && rm -rf r && echo TERM > stop
    # shellcheck disable=SC2086
    go r $long > /dev/null 2>&1
    local r=$?
    mv half stop-at
    [ $r -eq 130 ] && [ ! -e r/traces.h5.partial ] && because 'nothing of it was kept' && ! grep -q -e '--resume goes on' talk
}
plainly check "interrupted at its very start" early
plainly check "a trace killed" stopped KILL 137
plainly check "is resumed too" resumed
plainly check "interrupted, and then the prompts change" eval 'stopped TERM 130 && go r && anew && same_as r fresh && [ ! -e r/traces.h5.partial ]'
plainly check "interrupted, and then the model changes" eval 'stopped TERM 130 && go r $long --model in/other.gguf && ! grep -q "going on where" talk &&
    go whole2 $long --model in/other.gguf && same_as r whole2'
check "interrupted, and what is left is damaged" eval 'stopped TERM 130 && head -c 3000 /dev/zero > r/traces.h5.partial && go r $long &&
    [ "$(content r)" = "$(content whole)" ]'

measure() { quietly --model in/m.gguf --prompts in/p.csv --memory 64MiB --tokens 0 --out h "$@" || { cat talk; return 1; }; }
check "measured here" eval 'measure && because "^== 1 hardware: what this machine can do"'
check "and not again" eval 'measure && because "^== 1 hardware: up to date"'
check "for another name it is" eval 'measure --device box && because "^== 1 hardware: what" && because "3 plan: .*because"'
check "killed before it is measured" eval 'rm -rf h; : > before-thermo-profile-hardware; ! measure > /dev/null 2>&1 && measure && because "^== 1 hardware: what"'
check "a database that cannot be read" eval 'echo rubbish > cache/thermocline/machines/*.sqlite && measure && because unreadable && [ -e cache/thermocline/machines/*.sqlite.unreadable ]'
limitless() { quietly --model in/m.gguf --prompts in/p.csv --tokens 0 --out h "$@" || { cat talk; return 1; }; }
kept=h/.thermocline/memory.json
check "no limit given: what is available, less a part" eval 'limitless && because "^memory: .* that are available" && because "3 plan: .*because --memory" && grep -q "\"[0-9]*[KMG]iB\"" $kept'
check "and kept from then on" eval 'echo "{\"memory\": \"64MiB\"}" > $kept; limitless && stages plan && limitless && stages ""'

# ---- names ----
odd() # FILE
{
    rm -rf names && mkdir names && cp in/m.gguf "names/$1" && cp in/p.csv "names/$1.csv" && cp in/hw.sqlite "names/$1.sqlite" || return
    (cd names && "$real/thermocline" -v "./$1" --prompts "$1.csv" --hardware "$1.sqlite" --memory 64MiB --tokens 2 --prompt a \
        --out "$1.d" > ../text 2> ../talk) || { cat talk; return 1; }
    stages "trace plan pack" && [ -s "names/$1.d/model.thermo" ] &&
    (cd names && "$real/thermocline" "./$1" --prompts="$1.csv" --hardware="$1.sqlite" --memory=64MiB --tokens=0 \
        --out="$1.d" > ../text 2> ../talk) && stages ""
}
check "a leading dash, non-ASCII" odd $'-m\xc3\xb6del-\xe6\xa8\xa1\xe5\x9e\x8b.gguf'
check "spaces, quotes, what a shell expands, an equals sign" odd " it's \"mine\"  \\ \$HOME \`date\`; a=*%s[x].gguf"
installed() # as packages do: programs beside it, data sets under ../share
{
    mkdir -p inst/bin inst/share/thermocline && cp "$real/thermocline" inst/bin/ &&
        ln -s "$here/datasets" inst/share/thermocline/ && mkdir -p elsewhere || return
    for p in thermo-profile thermo-plan thermo-pack thermo-run; do ln -s "$real/$p" inst/bin/; done
    long=$(printf 'x%.0s' $(seq 249))
    cp in/m.gguf "in/$long.gguf"
    (cd elsewhere && env -u BIN PATH="$tmp/inst/bin:$PATH" thermocline -v "../in/$long.gguf" --hardware ../in/hw.sqlite --memory 64MiB \
        --max-tokens 30 --tokens 0 2> ../talk) || { cat talk; return 1; }
    ls cache/thermocline/models/xxx*/model.thermo && because 'stories-profile.csv'
    ln -s "$tmp/inst/bin/thermocline" in/linked
    env -u BIN in/linked --help | grep -q '^usage: thermocline'
}
check "installed, with a very long name" installed
in_path() # the script alone, the programs in PATH
{
    mkdir -p alone && cp "$real/thermocline" alone/ &&
        env -u BIN PATH="$real:$PATH" alone/thermocline in/m.gguf --prompts in/p.csv --hardware in/hw.sqlite --memory 64MiB \
            --tokens 0 --out alone/o 2> talk || { cat talk; return 1; }
}
check "programs in PATH" in_path
made() # through make
{
    cp in/m.gguf "in/it's \$mine (1) #.gguf"
    (cd "$here" && MAKEFLAGS='' "${MAKE:-make}" --no-print-directory -s CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" pipeline MODEL="$tmp/in/it's \$mine (1) #.gguf" MEMORY=64MiB \
        PROMPT="Lily's \"\$dog" PIPELINE_FLAGS="--prompts $tmp/in/p.csv --hardware $tmp/in/hw.sqlite --tokens 2 --out $tmp/made" > "$tmp/text" 2> "$tmp/talk") ||
        { cat talk; return 1; }
    grep -qF "Lily's \"\$dog" text
}
check "make pipeline" made
folder() # several models in a folder that cannot be written, each with a folder of its own
{
    mkdir ro && cp in/m.gguf in/other.gguf ro/ && chmod a-w ro/* ro || return
    for m in m other m other; do
        "$real/thermocline" ro/$m.gguf --cache co --prompts in/p.csv --hardware in/hw.sqlite --memory 64MiB --plan-flags '--context 64' \
            --tokens 0 2> talk || { cat talk; return 1; }
    done
    chmod u+w ro
    stages "" && [ "$(ls ro)" = "$(printf 'm.gguf\nother.gguf')" ] && cmp co/models/m-*/plan-64MiB-*.json fresh/plan.json &&
        ! cmp -s co/models/m-*/model.thermo co/models/other-*/model.thermo
}
check "several models in a read-only folder" eval 'anew && folder'

# ---- refusals, before anything is done ----
mine() { mkdir mine && echo '{}' > mine/plan.json && status 1 go mine && because 'was not made here' && [ "$(cat mine/plan.json)" = '{}' ]; }
refused() # STATUS PATTERN ARGS...
{
    local want=$1 pattern=$2
    shift 2
    rm -rf no
    status "$want" go no "$@" && because "$pattern" && [ ! -e no/traces.h5 ]
}
check "files that were there are left alone" mine
check "no such prompts" refused 3 "none.csv" --prompts none.csv
check "no such database" refused 3 "none.sqlite" --hardware none.sqlite
check "a database that is none" refused 3 "p.csv" --hardware in/p.csv
check "no such device" refused 2 "no device 'x'" --device x
check "a size that is none" refused 2 "'2 GiB' is not a size" --memory "1GiB,2 GiB"
check "a list that ends in a comma" refused 2 "nor a list" --memory 1GiB,
check "tokens that are none" refused 2 "1e3" --tokens 1e3
check "tokens to trace that are none" refused 2 "max-tokens" --max-tokens 0
check "an empty value" refused 2 "not empty" --out=
check "a flag with a value" refused 2 "full" --full=yes
check "measuring and not measuring" refused 2 "one of them" --full
several() { cp in/hw.sqlite in/two.sqlite && "$real/thermo-profile" import -q --db in/two.sqlite --csv "$here/datasets/devices/oneplus-ace-2.csv" > /dev/null &&
    refused 2 "name one with --device" --hardware in/two.sqlite && go o --hardware in/two.sqlite --device 'OnePlus 12'; }
check "several devices" several

# What is written is none of what is read, whatever leads to it, and links among the records are not followed.
spared() # STATUS PATTERN ARGS...: in/kept.gguf stays
{
    local want=$1 pattern=$2
    shift 2
    sha256sum in/kept.gguf in/p.csv > sums
    status "$want" go p "$@" && because "$pattern" && sha256sum --quiet -c sums
}
for o in traces.h5 traces.h5.partial plan.json model.thermo; do
    check "a model that is its $o" eval 'rm -rf p; mkdir -p p/.thermocline; ln in/kept.gguf p/$o; spared 2 "$o. are the same file" --model in/kept.gguf --fresh'
    check "prompts that are its $o" eval 'rm -rf p; mkdir -p p/.thermocline; ln in/p.csv p/$o; spared 2 "$o. are the same file" --fresh'
done
links() { rm -rf p; mkdir -p p/.thermocline; for o in lock memory.json model.json trace.begun.json prompts.json; do ln -s ../../in/kept.gguf p/.thermocline/$o; done
    spared 0 'neurons from hot to cold'; }
check "links among its records" links

waits() # a second one in the same folder waits for the first
{
    rm -rf w && mkdir -p w/.thermocline || return
    : > talk
    exec 8> w/.thermocline/lock
    flock 8
    go w 8>&- & pid=$!
    until grep -q 'waiting until it has ended' talk || [ ! -e /proc/$pid/exe ]; do sleep 0.02; done
    early=$(ls w)
    exec 8>&-
    wait $pid && [ -z "$early" ] && stages "trace plan pack"
}
check "two in one folder" waits
done_testing
