#!/bin/bash
# A sample of what `make faults` tries: one fault at a time, in commands that start quickly. FAULTS_SEED chooses others.
BIN=${BIN:-build/bin} B=${B:-build/$(uname -m)}
seed=${FAULTS_SEED:-1}
echo "# seed $seed"
if [ -n "$SANITIZE" ]; then # slow starts, and no allocations
    exec "$B/tests/faults/faults" -S -m 1 -s "$seed" -c verify,check,logits,import,pack "$BIN" "$B/tests/faults/shim.so"
fi
exec "$B/tests/faults/faults" -m 2 -s "$seed" -c verify,logits,generate,prompts,merge,import,pack "$BIN" "$B/tests/faults/shim.so"
