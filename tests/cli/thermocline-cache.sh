#!/bin/bash
# The cache: one folder a model, found again by content; one measurement a machine; list, show, remove, du. And the ways to answer: a text, a
# message, a conversation, HTTP. A tiny random model with a chat template, dense, so that its trace is 16 tokens.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
here=$(pwd -P)
case $BIN in /*) ;; *) BIN=$here/$BIN ;; esac
real=$BIN
export XDG_CACHE_HOME=$tmp/cache
cd "$tmp" || exit 1
mkdir bin
cat > bin/wrapper << END
#!/bin/bash
echo "\${0##*/} \$*" >> "$tmp/begun"
more=
case " \$* " in *" --dry-run "*) ;; " hardware "*) more='--range 8MiB --memory-range 8MiB --seconds-per-point 0.003 --only storage,memory --patience 0' ;; esac
exec "$real/\${0##*/}" "\$@" \$more
END
chmod +x bin/wrapper
for p in thermo-profile thermo-plan thermo-pack thermo-run thermo-serve; do ln -s wrapper bin/$p; done
export BIN=$tmp/bin
cat > template.py << 'END'
import struct, sys
sys.path.insert(0, sys.argv[1] + "/tests")
from split_gguf import Reader
data = open(sys.argv[2], "rb").read()
r = Reader(data)
r.take(4); r.number("I"); r.number("Q"); n = r.number("Q"); keys = r.at
for _ in range(n):
    r.string(); r.skip_value(r.number("I"))
tensors = r.at
for _ in range(struct.unpack("<Q", data[8:16])[0]):
    r.string(); [r.number("Q") for _ in range(r.number("I"))]; r.number("I"); r.number("Q")
text = lambda s: struct.pack("<Q", len(s)) + s
more = text(b"tokenizer.chat_template") + struct.pack("<I", 8) + text(b"{% for m in messages %}{{ m.content }}{% endfor %}")
head = data[:16] + struct.pack("<Q", n + 1) + data[24:tensors] + more + data[tensors:r.at]
body = data[-(-r.at // 32) * 32:]
open(sys.argv[3], "wb").write(head + bytes(-len(head) % 32) + body)
END
"$real/gguf-make" random -q --act silu --context 256 --vocab 260 --seed 1 plain.gguf && python3 template.py "$here" plain.gguf m.gguf || exit 1
cp m.gguf copy.gguf

# ours ARGS...: exit status; text, talk, begun
ours() { : > begun; "$real/thermocline" "$@" > text 2> talk < /dev/null || { local r=$?; cat talk; return $r; }; }
did() { grep -q -e "$1" begun || { echo "not run: $1"; cat begun; return 1; }; }
did_not() { ! grep -e "$1" begun; }
said() { grep -q -e "$1" talk || { echo "not said: $1"; cat talk; return 1; }; }
json() { "$real/thermocline" "$@" --json > json && python3 -c "import json; d = json.load(open('json')); assert $(cat want), d"; }
want() { echo "$1" > want; shift; json "$@"; }

# ---- answers ----
check "a message, from nothing" ours m.gguf --memory 64MiB -p hello -n 5
check "what it will do, how long and how much disk is said first" said '^to do: hardware [0-9:]*, trace [0-9:]*, plan [0-9:]*, pack [0-9:]*: about .* of disk in .* free)'
check "all neurons fire: 16 tokens are traced" did 'thermo-profile trace .*--max-tokens 16'
check "it is planned for a conversation, and answered as a message" eval 'did "solve .*--for chat" && did "thermo-run generate .*--chat"'
check "again: nothing but the answer" eval 'ours m.gguf --memory 64MiB -p hello -n 5 && did_not " pack \|--out" && did "generate"'
check "a text to go on with" eval 'ours m.gguf --memory 64MiB -p hello --raw -n 5 && did generate && did_not "--chat" && grep -q ^hello text'
conversation() { printf 'hello\nagain\n' | "$real/thermocline" m.gguf --memory 64MiB -q -- -n 4 --temp 0 > text 2> talk || { cat talk; return 1; }; }
check "a conversation" eval ': > begun; conversation && did "thermo-run chat"'
no_template() { status 2 ours plain.gguf --memory 64MiB && said "no chat template" && did_not trace; }
check "a model without a template does not talk: said at once" no_template
memory() { ours m.gguf --tokens 0 && said '^memory: .* of the .* that are available' && did 'solve .*--memory [0-9]*[KMG]iB'; }
check "without a limit: what is sensible here" memory
check "and the next time the same" eval 'ours m.gguf --tokens 0 && did_not "solve --traces"'
serve()
{
    "$real/thermocline" serve m.gguf --memory 64MiB --port 0 > served 2> talk < /dev/null & local pid=$! n
    for ((n = 0; n < 1200; n++)); do
        ! grep -q '^listening on ' served || break
        kill -0 $pid 2> /dev/null || { cat talk; return 1; }
        sleep 0.05
    done
    python3 - "$(sed -n 's/^listening on //p' served)" << 'END'
import json, sys, urllib.request
r = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode())
assert json.load(urllib.request.urlopen(r, timeout=60))["usage"]["completion_tokens"] > 0
END
    local r=$?
    kill $pid; wait $pid
    return $r
}
check "serve answers by HTTP" serve

# ---- one folder a model, one measurement a machine ----
: > begun
check "a copy of the file, and one that was touched, are the same model" eval 'touch copy.gguf; mv copy.gguf m.gguf; ours m.gguf --memory 64MiB --tokens 0 && did_not "trace --model\|pack --model\|hardware"'
check "another model, and another folder: the machine is measured no more" eval 'ours plain.gguf --memory 64MiB --tokens 0 && did_not " hardware " && ours plain.gguf --out own --memory 64MiB --tokens 0 && did_not " hardware "'
check "two limits: two plans, one pack" eval 'ours m.gguf --memory 32MiB --tokens 0 && did_not "pack --model" && ours m.gguf --memory 64MiB --tokens 0 && did_not "solve --traces\|pack --model"'
marked() { local f=cache/thermocline/machines/*-*.json; echo "4 tokens/s, and the plan said 9" > "$(echo $f)".wrong; }
check "figures that a run found wrong are measured again" eval 'marked && ours m.gguf --memory 64MiB --tokens 0 && did "thermo-profile hardware" && said "because a run found it wrong: 4 tokens/s" && did "solve --traces" &&
    ours m.gguf --memory 64MiB --tokens 0 && did_not " hardware "'
check "and not again on the same day" eval 'marked && ours m.gguf --memory 64MiB --tokens 0 && did_not " hardware " && [ -z "$(ls cache/thermocline/machines | grep wrong)" ]'

# ---- how much is traced ----
(cd "$here" && phone_csv "$tmp/hw.csv") && "$real/thermo-profile" import -q --db hw.sqlite --csv hw.csv > /dev/null
"$real/gguf-make" random -q --act relu --context 128 --seed 1 relu.gguf
"$real/gguf-make" random -q --act silu --arch qwen3moe --context 128 --experts 8 --experts-used 2 --seed 1 moe.gguf
steps() # MODEL
{
    ours "$1" --out steps --fresh --hardware hw.sqlite --memory 64MiB --tokens 0 && did 'trace .*--max-tokens 2048' && did 'trace .*--max-tokens 4096' && said 'by half of them .*: enough'
}
check "ReLU: twice as many tokens until the plan promises the same" steps relu.gguf
check "and no more the next time" eval 'ours relu.gguf --out steps --hardware hw.sqlite --memory 64MiB --tokens 0 && did_not "trace --model"'
differs() # COMMAND...: a phone's figures count no time beside arithmetic: a tiny model is several times as slow
{
    rm -f differs
    THERMO_DIFFERS=$tmp/differs "$real/thermo-run" "$1" --model steps/model.thermo --plan steps/plan.json "${@:2}" -n 40 > text 2> talk &&
        grep -q '^[0-9.e+]* tokens/s, and the plan said [0-9.e+]*$' differs || { cat talk; return 1; }
}
echo '{{ messages[-1].content }}' > chat.jinja
check "a run says where a plan's speed is wrong" differs generate -p a --ignore-eos
check "so does a conversation" eval 'echo hello | differs chat --chat-template chat.jinja'
check "experts: likewise, without samples for predictors" eval 'steps moe.gguf && did "trace .*--samples 0" && did_not "trace .*--max-tokens 16 "'
printf 'text\nOnce there was a dog.\n' > short.csv
check "a text that is shorter: all of it, once" eval 'ours relu.gguf --out short --prompts short.csv --hardware hw.sqlite --memory 64MiB --tokens 0 && did_not "max-tokens 4096"'
rm -rf steps short

# ---- what is there ----
name=$(ls cache/thermocline/models | grep ^m-)
check "list" eval '"$real/thermocline" list > text && grep -q "^$name .* ready .*m.gguf$" text && [ "$(wc -l < text)" -eq 2 ]'
check "list --json" want "sorted(m['name'][:2] for m in d['models']) == ['m-', 'pl'] and all(m['packed'] and m['bytes'] > 500000 for m in d['models'])" list
check "show, by the beginning of a name" want "d['name'] == '$name' and sorted(l['memory_bytes'] >> 20 for p in d['plans'] for l in p['limits'])[:3] == [32, 64, 64] and all(l['tokens_per_s'] > 0 for p in d['plans'] for l in p['limits'])" show m-
check "show, by the file" eval '"$real/thermocline" show m.gguf > text && grep -q "^plan     plan-64MiB-chat.json" text'
check "du" want "d['bytes'] == sum(d['models'].values()) + d['machines_bytes'] and len(d['models']) == 2 and d['machines_bytes'] > 0" du
check "show what is not there: exit status 3" status 3 "$real/thermocline" show other
busy()
{
    exec 8<> "cache/thermocline/models/$name/.thermocline/lock" && flock 8 || return 1
    status 1 "$real/thermocline" remove "$name" 2> talk
    local r=$?
    exec 8>&-
    [ $r -eq 0 ] && grep -q 'being worked on' talk && [ -e "cache/thermocline/models/$name/model.thermo" ]
}
check "what is being worked on is not removed" busy
ln -s "$tmp/plain.gguf" "cache/thermocline/models/$name/link"
check "one of two names that is none: none is removed" eval 'status 3 "$real/thermocline" remove "$name" other 2> talk && [ -e "cache/thermocline/models/$name/model.thermo" ]'
check "remove" eval '"$real/thermocline" remove m.gguf && [ ! -e "cache/thermocline/models/$name" ] && [ -e m.gguf ] && [ -e plain.gguf ]'
check "and made again" ours m.gguf --memory 64MiB --tokens 0
check "remove without a name: usage" status 2 "$real/thermocline" remove
check "remove --all" eval '"$real/thermocline" remove --all && [ -z "$(ls cache/thermocline/models)" ] && [ ! -e cache/thermocline/machines ]'
check "an empty cache is listed" want "d['models'] == []" list

# ---- refusals ----
check "no model: usage" status 2 "$real/thermocline" run
check "two models: usage" eval 'status 2 ours m.gguf plain.gguf; said "one model at a time"'
check "serve with a prompt: usage" status 2 ours serve m.gguf -p x
check "a port without serve: usage" status 2 ours m.gguf --port 1
done_testing
