#!/bin/bash
# --order together: planned, packed and run by one order, with fewer and shorter reads, the same bits as in memory, and known again.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan
check "figures of a board" "$BIN/thermo-profile" import -q --db "$tmp/board.sqlite" --csv datasets/devices/raspberry-pi-5-nvme.csv
in=(--traces "$traces" --hardware "$tmp/board.sqlite")
solve() { "$P" solve -q "${in[@]}" --context 256 "$@"; }
for order in heat together; do
    check "$order: plan" solve --memory 14MiB,64MiB --order $order --out "$tmp/$order.json"
    check "$order: pack" "$BIN/thermo-pack" pack -q --model "$model" --traces "$traces" --plan "$tmp/$order.json" --out "$tmp/$order.thermo"
done
check "auto is by heat" eval 'solve --memory 14MiB,64MiB --out "$tmp/auto.json" && cmp "$tmp/auto.json" "$tmp/heat.json"'
fewer() { python3 - "$tmp" << 'END'
import json, sys
of = {n: json.load(open(f"{sys.argv[1]}/{n}.json")) for n in ("heat", "together")}
assert "order" not in of["heat"]["model"] or of["heat"]["model"]["order"] == "heat"
assert of["together"]["model"]["order"] == "together" and of["heat"]["model"]["order_hash"] != of["together"]["model"]["order_hash"]
a, b = (of[n]["predictions"]["limits"][0]["batches"][0] for n in ("heat", "together"))
assert b["tokens_per_s"] > 1.01 * a["tokens_per_s"], (a["tokens_per_s"], b["tokens_per_s"])
END
}
check "together is planned faster" fewer
check "every figure follows" "$P" check "$tmp/together.json" "${in[@]}"
plainly check "solved again, it is the same" "$P" check "$tmp/together.json" "${in[@]}" --context 256 --solve
check "explained" "$P" explain -q --no-gains "$tmp/together.json" "${in[@]}"
check "verified, with the source's logits" eval '"$BIN/thermo-pack" verify -q --json --model "$model" --traces "$traces" "$tmp/together.thermo" > "$tmp/v" &&
    python3 -c "import json, sys; d = json.load(open(sys.argv[1]))[\"against_source\"]; assert d[\"max_logit_difference\"] < 1e-3, d" "$tmp/v"'
logits() { "$BIN/thermo-run" logits -q --model "$tmp/together.thermo" --plan "$tmp/together.json" --tokens 1,40,17,300,97,411,260,32 "$@"; }
check "the same bits from storage as from memory" eval 'logits --memory 64MiB > "$tmp/a" && logits --memory 14MiB > "$tmp/b" && cmp "$tmp/a" "$tmp/b"'

check "a pack's order is known again" solve --memory 15MiB --for-pack "$tmp/together.thermo" --out "$tmp/for.json"
check "by the plan" grep -q '"order": "together"' "$tmp/for.json"
check "and by thermo-run" "$BIN/thermo-run" generate -q --model "$tmp/together.thermo" --plan "$tmp/for.json" --prompt Once -n 2
refused() { check "$1" says "${@:2}"; }
refused "another order than the pack's" 5 "neuron orders" solve --memory 15MiB --for-pack "$tmp/together.thermo" --order heat --out "$tmp/no.json"
refused "a plan of another order than the pack's" 5 "neuron order" "$BIN/thermo-run" generate -q --model "$tmp/heat.thermo" \
    --plan "$tmp/together.json" --prompt Once -n 2
sed 's/"order": "together"/"order": "heat"/' "$tmp/together.json" > "$tmp/other.json"
refused "a plan that says another order" 5 "neuron order" "$P" check "$tmp/other.json" "${in[@]}"
refused "which is not packed either" 5 "neuron order" "$BIN/thermo-pack" pack -q --model "$model" --traces "$traces" --plan "$tmp/other.json" \
    --out "$tmp/no.thermo"
refused "a description, which has no order" 2 "order together needs --traces" "$P" solve -q \
    --description datasets/descriptions/bamboo-7b.json --hardware "$tmp/board.sqlite" --memory 3GiB --order together --out "$tmp/no.json"
done_testing
