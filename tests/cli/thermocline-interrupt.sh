#!/bin/bash
# Ctrl-C in a terminal reaches thermocline and the program that it runs, at any stage: exit status 130, nothing half-written,
# and the same command goes on to what an undisturbed one makes. The model comes in shards, one of which is then replaced.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
here=$(pwd -P)
case $BIN in /*) ;; *) BIN=$here/$BIN ;; esac
real=$BIN
cd "$tmp" || exit 1
mkdir bin in
export XDG_CACHE_HOME=$tmp/cache
cat > bin/wrapper << END
#!/bin/bash
echo "\${0##*/}-\$1 \$\$" >> "$tmp/begun"
more=
[ "\$1" != hardware ] || more='--range 8MiB --memory-range 8MiB --seconds-per-point 0.003 --only storage,memory'
exec "$real/\${0##*/}" "\$@" \$more
END
chmod +x bin/wrapper
for p in thermo-profile thermo-plan thermo-pack thermo-run; do ln -s wrapper bin/$p; done
"$real/gguf-make" random -q --act relu --context 128 --seed 1 whole.gguf && python3 "$here/tests/split_gguf.py" whole.gguf in/m 3 &&
    "$real/gguf-make" random -q --act relu --context 128 --seed 2 other.gguf && python3 "$here/tests/split_gguf.py" other.gguf other 3 || exit 1
printf 'text\nOnce there was a dog.\nA cat sat on the mat and looked at it.\n' > p.csv
"$real/thermo-profile" import -q --db hw.sqlite --csv "$here/datasets/devices/oneplus-12.csv" > /dev/null

# A terminal's Ctrl-C: SIGINT to the whole process group, SECONDS after the program COMMAND began; prints the exit status.
cat > ctrl_c.py << 'END'
import os, signal, subprocess, sys, time
what, after, command = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
open("begun", "w").close()
p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=open("text", "w"), stderr=open("talk", "w"), start_new_session=True,
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
while p.poll() is None and not any(line.startswith(what + " ") for line in open("begun")):
    time.sleep(0.002)
time.sleep(after)
try:
    os.killpg(p.pid, signal.SIGINT)
except ProcessLookupError:
    pass
r = p.wait()
print(128 - r if r < 0 else r)
END

drive=("$real/thermocline" -v in/m-00001-of-00003.gguf --prompts p.csv --memory 64MiB --plan-flags '--context 64')
command() { BIN=$tmp/bin "${drive[@]}" "$@" > text 2> talk < /dev/null || { local r=$?; cat talk; return $r; }; } # ARGS...
same() # FOLDER: as undisturbed
{
    cmp "$1/plan.json" whole/plan.json && cmp "$1/model.thermo" whole/model.thermo &&
        [ -z "$(find "$1" -name '*.tmp-*' -o -name '*.partial' -o -name '*-journal')" ] || { ls -lR "$1"; return 1; }
}
interrupted() # PROGRAM-COMMAND SECONDS ARGS...: of what was interrupted nothing is left that the next run would not make
{
    local what=$1 after=$2 r
    shift 2
    rm -rf i
    r=$(BIN=$tmp/bin python3 ctrl_c.py "$what" "$after" "${drive[@]}" --tokens 0 --out i "$@")
    grep -q "^$what " begun || { echo "$what was not run"; cat talk; return 1; }
    [ "$r" -eq 130 ] || [ "$r" -eq 0 ] || { echo "exit status $r"; cat talk; return 1; } # 0: it was over before
    echo "$what $r" >> statuses
    command --tokens 0 --out i "$@"
}

check "shards" command --tokens 0 --out whole --hardware hw.sqlite
check "one file gives the same plan" eval 'BIN=$real "$real/thermocline" -v whole.gguf --prompts p.csv --memory 64MiB \
    --plan-flags "--context 64" --tokens 0 --out single --hardware hw.sqlite 2> talk && cmp whole/plan.json single/plan.json'
for after in 0 0.01; do
    for what in thermo-profile-trace thermo-plan-solve thermo-pack-pack; do
        check "Ctrl-C $after s into $what" eval "interrupted $what $after --hardware hw.sqlite && same i"
    done
done
check "Ctrl-C while the machine is measured" interrupted thermo-profile-hardware 0.02
check "most came in time" eval '[ "$(grep -c " 130$" statuses)" -ge 4 ] || { cat statuses; false; }'
cp other-00002-of-00003.gguf in/m-00002-of-00003.gguf
check "another second shard is another model" eval 'command --tokens 0 --out whole --hardware hw.sqlite &&
    grep -q "2 trace: .*again, because the model changed" talk && grep -q "4 pack: .*again" talk'
rm in/m-00003-of-00003.gguf
check "a shard that is missing is named" eval 'status 3 command --tokens 0 --out whole --hardware hw.sqlite; grep -q "00003-of-00003" talk'
done_testing
