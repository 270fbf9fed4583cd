#!/bin/bash
# bench_serve.sh turns|clients [OPTIONS OF bench_serve.py]: thermo-serve beside llama-server, if LLAMA_SERVER is the path of one.
# Settings are environment variables:
#   GGUF=FILE          the model; needed
#   WORK=DIR           where trace, figures of this machine, plan and pack lie, and stay (build/bench-serve)
#   TRACES, HARDWARE   files of these, if there are
#   MEMORY=SIZE        of both servers under clients (2500MB), each in a memory cgroup; of thermo-serve under turns (enough for all of it)
#   CONTEXT=N          positions of each text (turns 4096, clients 256)
#   SEQUENCES=N        texts at once (turns 1, clients 8)
#   TEMPLATE=FILE      chat template of both (the model's; where it has none: one of tests, [ROLE] TEXT)
#   LLAMA_FLAGS=...    more flags of llama-server (clients: --no-repack --cache-ram 0, for copies of weights or prompts have no room)
# A trace takes as long as the model reads TRACE_TOKENS (1024) tokens, figures half a minute in which nothing else should run.
set -e
what=$1
case $what in turns | clients) shift ;; *) sed -n '2,12s/^# //p' "$0" >&2; exit 2 ;; esac
BIN=${BIN:-build/bin} work=${WORK:-build/bench-serve} here=$(dirname "$0")
[ -r "$GGUF" ] || { echo "bench_serve.sh: GGUF='$GGUF': no such file" >&2; exit 3; }
mkdir -p "$work"
traces=${TRACES:-$work/traces.h5} hardware=${HARDWARE:-$work/hardware.sqlite}
if [ "$what" = turns ]; then
    context=${CONTEXT:-4096} sequences=${SEQUENCES:-1} memory=${MEMORY:-}
else
    context=${CONTEXT:-256} sequences=${SEQUENCES:-8} memory=${MEMORY:-2500MB} LLAMA_FLAGS=${LLAMA_FLAGS---no-repack --cache-ram 0}
fi
[ -e "$traces" ] || "$BIN/thermo-profile" trace -q --model "$GGUF" --prompts datasets/prompts/stories-profile.csv \
    --max-tokens "${TRACE_TOKENS:-1024}" --ctx 256 --samples 0 --out "$traces" >&2
[ -e "$hardware" ] || "$BIN/thermo-profile" hardware -q --db "$hardware" --device this --quick --range 1GiB --storage "$work" >&2
plan=$work/$what.json pack=$work/model.thermo
if [ ! -e "$plan" ] || [ "$hardware" -nt "$plan" ]; then
    enough=$(($(stat -Lc %s "$GGUF") * 3 / 2 + (2 << 30)))B
    # shellcheck disable=SC2046
    "$BIN/thermo-plan" solve -q --traces "$traces" --hardware "$hardware" --for serve --context "$context" --max-batch "$sequences" \
        --no-verify --memory "${memory:-$enough}" $([ ! -e "$pack" ] || echo "--for-pack $pack") --out "$plan" >&2
fi
[ -e "$pack" ] || "$BIN/thermo-pack" pack -q --model "$GGUF" --traces "$traces" --plan "$plan" --out "$pack" >&2
template=${TEMPLATE:-}
if [ -z "$template" ] && ! grep -qaF tokenizer.chat_template <(head -c 16M "$GGUF"); then
    template=$work/template
    cat > "$template" << 'END'
{%- for m in messages %}{{- '[' ~ m.role ~ '] ' ~ m.content | trim ~ '\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '[assistant]' }}{% endif %}
END
fi
set -- "$what" --server "thermo-serve=$BIN/thermo-serve -q --model $pack --plan $plan --port {port} --sequences $sequences \
    ${memory:+--memory $memory} -- ${template:+--chat-template $template}" "$@"
[ -z "$LLAMA_SERVER" ] || set -- "$@" --server "llama-server=$LLAMA_SERVER -m $GGUF --host 127.0.0.1 --port {port} \
    -c $((context * sequences)) -np $sequences -t $(nproc) -tb $(nproc) --no-webui --jinja \
    ${template:+--chat-template-file $template} ${LLAMA_FLAGS:-}"
[ "$what" = turns ] || set -- "$@" --memory "$memory" --clients "$sequences" --drop "$GGUF" --drop "$pack"
exec python3 -B "$here/bench_serve.py" "$@"
