"""nomem.py LIBRARY DIR NAME STRICT COMMAND...: the command with allocations that fail, through tests/preload/nomem.c: one alone, or
one and all behind it, at places all over the run. Out of memory is exit status 1, or 0 where what failed was not needed; never
a verdict on an input or a command line (2 to 6). STRICT 0: libraries that do not survive it may take the program along."""
import os
import random
import subprocess
import sys

library, folder, name, strict, command = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == '1', sys.argv[5:]
PLACES = 8


def run(**env):
    for left in ('new.db', 'new.h5.partial'):
        if os.path.exists(f'{folder}/{left}'):
            os.unlink(f'{folder}/{left}')
    return subprocess.run(command, env=dict(os.environ, LD_PRELOAD=library, OPENBLAS_NUM_THREADS='1', **env),
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


whole = run(NOMEM_COUNT=f'{folder}/count')
assert whole.returncode == 0, whole.stderr.decode()
total = int(open(f'{folder}/count').read())
draw = random.Random(total)
places = {int(total ** (i / PLACES)) for i in range(PLACES)} | {draw.randint(1, total) for _ in range(PLACES)}
bad, failed = [], 0
for at in sorted(places):
    for mode in ({}, {'NOMEM_ALL': '1'}):
        got = run(NOMEM_AT=str(at), **mode)
        failed += got.returncode == 1
        if got.returncode not in (0, 1) and (strict or 1 < got.returncode < 7):
            bad.append(f'allocation {at} of {total}{" and all behind it" if mode else ""}: {got.returncode}: ' +
                       got.stderr.decode(errors='replace')[-300:])
for line in bad[:10]:
    print(line)
print(f'{name}: {len(places)} places of {total}, {failed} ended with 1, {len(bad)} otherwise')
sys.exit(bool(bad) or failed == 0)
