#!/bin/sh
# soak.sh: a few seconds of scripts/soak.py (make soak): the same text and bounded memory under random limits and interrupts.
. tests/tap.sh
[ -z "$SANITIZE" ] || { echo "1..0 # SKIP a sanitizer's memory is not in the account"; exit 77; }
. tests/chain.sh
scratch
soak() { python3 -B scripts/soak.py --model "$packed" --plan "$plan" --minutes 0.15 --watch-seconds 3 --seed "$1" > "$tmp/summary"; }
ran() { soak 7 && python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); sys.exit(not (j["runs"] > 0 and j["watched"] == 1))' "$tmp/summary"; }
check "nothing drifts, grows or hangs" ran
# It notices another text: here runs with a limit are given another temperature.
cat > "$tmp/thermo-run" << END
#!/bin/sh
case "\$*" in *--memory*generate*|*generate*--memory*) exec "$BIN/thermo-run" "\$@" --temp 0.1 ;; esac
exec "$BIN/thermo-run" "\$@"
END
chmod +x "$tmp/thermo-run"
drifts() { python3 -B scripts/soak.py --bin "$tmp" --model "$packed" --plan "$plan" --minutes 0.1 --watch-seconds 2 --seed 1 > "$tmp/summary" 2> "$tmp/err"; [ $? -eq 1 ] && grep -q 'another text' "$tmp/err"; }
check "another text is noticed" drifts
done_testing
