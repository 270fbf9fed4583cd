#!/bin/sh
# thermo-run bench, interrupted: it prints what it has measured, in every form, and exits with 130.
. tests/tap.sh
. tests/chain.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
cat > "$tmp/interrupt.py" << 'END'
# interrupt.py WANT FORM COMMAND...: SIGINT at moments later and later, until one finds what is wanted (something, or part of a
# repetition) measured; each must end with 130 and print a whole document.
import csv, io, json, signal, subprocess, sys, time

want, form, command = sys.argv[1], sys.argv[2], sys.argv[3:] + (['--json'] if sys.argv[2] == 'json' else ['--output', sys.argv[2]])
delay, found = 0.05, False
while not found and delay < 100:
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    time.sleep(delay)
    p.send_signal(signal.SIGINT)
    out, said = p.communicate()
    if p.returncode == -signal.SIGINT or 'interrupted' not in said and not out:
        pass # before signals are caught
    else:
        assert p.returncode == 130, (p.returncode, said)
        assert 'interrupted' in said, said
        if form == 'json' and out:
            d = json.loads(out)
            assert d['interrupted'] is True
            assert all(t['samples'] and t['tokens'] > 0 and t['tokens_per_s'] > 0 and t['test'][2:] == str(t['tokens'])
                       for t in d['tests']), d
            found = any(t['tokens'] < 250 and len(t['samples']) == 1 for t in d['tests']) if want == 'part' else d['tests']
        elif form == 'csv' and out:
            found = [float(r['avg_ts']) for r in csv.DictReader(io.StringIO(out))]
        elif out:
            found = [line for line in out.splitlines() if '±' in line]
            assert 'nan' not in out, out
    delay *= 1.5
assert found, said
END
b="$BIN/thermo-run bench --model $packed --plan $plan"
for form in json md csv; do
    # shellcheck disable=SC2086
    check "$form: repetitions that were finished" python3 "$tmp/interrupt.py" some $form $b -p 0 -n 20 -r 1000 --no-warmup
done
# shellcheck disable=SC2086
check "json: of a first repetition the tokens that were made" python3 "$tmp/interrupt.py" part json $b -p 0 -n 250 -r 1000 --no-warmup
# shellcheck disable=SC2086
check "calibrate reads it" eval "python3 - > '$tmp/run.json' << 'END'
import signal, subprocess, time
for delay in (0.5, 1, 2, 4, 8, 16, 32):
    p = subprocess.Popen('$b -p 0 -n 20 -r 1000 --no-warmup --json'.split(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    time.sleep(delay)
    p.send_signal(signal.SIGINT)
    out = p.communicate()[0].decode()
    if 'samples' in out:
        break
print(out)
END
\"\$BIN/thermo-plan\" calibrate --plan '$plan' --hardware '$hardware' --telemetry '$tmp/run.json' > /dev/null"
check "uninterrupted, it says so" eval "$b -p 0 -n 4 -r 2 --json 2> /dev/null | grep -q '\"interrupted\":false'"
done_testing
