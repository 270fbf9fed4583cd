#!/bin/bash
# Tokens of made-up vocabularies are those of plain Python (tests/token_oracle.py; CASES=N and SEED=N make others): Kimi's words and ranks, and
# NFC. A file that does not say how its words are cut is read as its family's, with a warning, or as --pre says, and the pack remembers.
. tests/tap.sh
scratch
B=${B:-build/$(uname -m)}
P=$BIN/thermo-profile
tool=$B/tests/tools/tokens

oracle() { python3 -B tests/token_oracle.py "$1" "$tool" "${CASES:-$(of 20000 3000)}" "${SEED:-1}"; }

# vocabulary ARCH MODEL PRE [merges]: a model of random weights with it, m.gguf
vocabulary()
{
    python3 -B tests/token_oracle.py write "$tmp/v.gguf" "$@" &&
        "$BIN/gguf-make" random --arch "$1" --d-model 64 --ff 96 --heads 2 --vocab 382 --tokenizer-from "$tmp/v.gguf" "$tmp/m.gguf" > "$tmp/made"
}

text="the HelloWorld 12345 don't caf$(printf 'e\314\201 \344\275\240') 1,000.5"
printf 'text\n"%s"\n' "$text" > "$tmp/p.csv"
trace() { "$P" trace --model "$tmp/m.gguf" --prompts "$tmp/p.csv" --out "$tmp/t.h5" "$@"; }
quiet() { trace "$@" > "$tmp/said" 2>&1 && ! grep -q warning "$tmp/said"; }
n_tokens() { "$P" show --json "$tmp/t.h5" | python3 -c "import json,sys; print(json.load(sys.stdin)['n_tokens'])"; }
# packed: plan, pack and run; the pack makes as many tokens of the text as the trace has
packed()
{
    phone "$tmp/db" && "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/db" --memory 100M --out "$tmp/plan.json" &&
        "$BIN/thermo-pack" pack --plan "$tmp/plan.json" --traces "$tmp/t.h5" --model "$tmp/m.gguf" --out "$tmp/m.thermo" > "$tmp/said" &&
        "$BIN/thermo-run" generate --model "$tmp/m.thermo" --plan "$tmp/plan.json" --prompt "$text" -n 1 --json > "$tmp/run" &&
        grep -q "\"prompt\":{\"tokens\":$(n_tokens)," "$tmp/run"
}

if [ -x "$tool" ]; then
    check "Kimi's words and ranks, with merges and without" oracle kimi
    check "NFC, as Python has it" oracle nfc
else
    skip "tokens against Python" "$tool is not built"
fi

check "a falcon without tokenizer.ggml.pre is made" vocabulary falcon gpt2 - merges
check "it is read as falcon, with a warning" says 0 "'tokenizer.ggml.pre' is absent.*words are cut by 'falcon'" trace
family=$(n_tokens)
check "what is stated counts, and nothing is said" quiet --pre qwen2
check "words of single digits make more tokens" [ "$(n_tokens)" -gt "$family" ]
check "the trace knows, and so does the pack" packed
if command -v h5dump > /dev/null && [ -x "$B/tests/tools/hash128" ]; then
    check "it is as schemas/trace.md has it" python3 tests/cli/trace_check.py schemas/trace.md "$B/tests/tools/hash128" "$tmp/t.h5"
fi
check "a name that is none" says 2 "--pre 'qwen9' is none of the names that 'thermo-profile models' lists" trace --pre qwen9

check "an opt without it" vocabulary opt gpt2 - merges
check "is read as gpt-2" says 0 "'tokenizer.ggml.pre' is absent.*words are cut by 'gpt-2'" trace --ctx 200
check "a vocabulary without merges, of kimi-k2" vocabulary llama gpt2 kimi-k2
check "is traced" quiet
check "is packed and run" packed
check "but of others they are needed" eval 'vocabulary llama gpt2 gpt-2 && says 3 "tokenizer.ggml.merges. is absent or empty" trace'
check "a llama without the key is made" vocabulary llama gpt2 - merges
check "whose families are several: stated, it is read" quiet --pre gpt-2
check "not stated, it is refused" says 2 "'tokenizer.ggml.pre' is absent.*state the model's own with --pre NAME" trace
check "a llama that says gpt-2" vocabulary llama gpt2 gpt-2 merges
check "is read as it says" quiet
check "likewise where the same is stated" quiet --pre gpt-2
check "or as another, with a warning" says 0 "words are cut by 'qwen2', as --pre says, though key 'tokenizer.ggml.pre' is 'gpt-2'" trace --pre qwen2
check "SentencePiece has no such words" eval 'vocabulary llama llama - && says 2 "no BPE of bytes" trace --pre qwen2'
done_testing
