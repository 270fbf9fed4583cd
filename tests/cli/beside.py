#!/usr/bin/env python3
"""beside.py BIN SCRATCH HARDWARE PLAN TRACES TELEMETRY: what lies beside a hardware database is not believed.

SQLite plays a journal that it finds beside a database, removes the file that the journal's end names, and makes files where the header
asks for a write-ahead log. Each command that reads a database is given each of these, and the folder's files are compared: names, types,
sizes, times and bytes. Which commands there are is taken from their option tables: one that is not tried here is a failure. Prints TAP."""
import hashlib
import os
import shutil
import sqlite3
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from tap import done, point, table  # noqa: E402

BIN, SCRATCH, HARDWARE, PLAN, TRACES, TELEMETRY = map(os.path.abspath, sys.argv[1:])
MAGIC = bytes.fromhex('d9d505f920a163d7')
OUT = f'{SCRATCH}/out'

# One command line of each command that reads a hardware database, {db}.
FROM = ['--traces', TRACES, '--hardware', '{db}']
READERS = {
    ('thermo-profile', 'show'): ['{db}'],
    ('thermo-profile', 'export'): ['--db', '{db}', '--out', OUT],
    ('thermo-plan', 'solve'): ['-q', *FROM, '--memory', '64MiB', '--context', '256', '--form', 'split', '--packed', 'no', '--out', OUT],
    ('thermo-plan', 'check'): [PLAN, *FROM],
    ('thermo-plan', 'explain'): [PLAN, *FROM],
    ('thermo-plan', 'sweep'): [*FROM, '--memory', '60MiB..64MiB', '--steps', '2', '--context', '256', '--form', 'split', '--packed', 'no'],
    ('thermo-plan', 'report'): [PLAN, *FROM, '--out', OUT],
    ('thermo-plan', 'calibrate'): ['--plan', PLAN, '--telemetry', TELEMETRY, '--hardware', '{db}'],
}
CSV = f'{SCRATCH}/other.csv'
WRITERS = {
    ('thermo-profile', 'import'): ['-q', '--db', '{db}', '--csv', CSV],
    ('thermo-profile', 'hardware'): ['-q', '--db', '{db}', '--device', 'another', '--storage', SCRATCH, '--only', 'memory', '--quick',
                                     '--memory-range', '8MiB', '--seconds-per-point', '0.003', '--patience', '0'],
    ('thermo-plan', 'calibrate'): READERS['thermo-plan', 'calibrate'] + ['--store'],
}


def state(folder):
    """Every file there: what it is, when it was changed, what it holds."""
    def one(name):
        path = f'{folder}/{name}'
        s = os.lstat(path)
        held = ''
        if os.path.islink(path):
            held = os.readlink(path)
        elif os.path.isfile(path):
            held = hashlib.sha256(open(path, 'rb').read()).hexdigest()
        return name, oct(s.st_mode), s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns, held
    return [('.', os.stat(folder).st_mtime_ns)] + [one(n) for n in sorted(os.listdir(folder))]


# ---- what lies beside ----

def header(db, records, pages=None):
    data = open(db, 'rb').read()
    page = struct.unpack_from('>H', data, 16)[0] or 65536
    n = len(data) // page if pages is None else pages
    return page, (MAGIC + struct.pack('>IIIII', records, 0x12345678, n, 512, page)).ljust(512, b'\0')


def record(page, number):
    """A page of zeros."""
    return struct.pack('>I', number) + bytes(page) + struct.pack('>I', 0x12345678)


def super_record(page, victim):
    name = victim.encode()
    return struct.pack('>I', 0x40000000 // page + 1) + name + struct.pack('>II', len(name), sum(name)) + MAGIC


def journal(db, data):
    with open(db + '-journal', 'wb') as f:
        f.write(data)


def names_another(db):
    page, head = header(db, 0)
    journal(db, head + super_record(page, os.path.dirname(db) + '/victim'))


def pages_and_name(db):
    page, head = header(db, 1)
    journal(db, head + record(page, 2) + super_record(page, os.path.dirname(db) + '/victim'))


def names_nothing(db):
    """The file that it names is not there: SQLite takes such a journal for finished and removes it."""
    page, head = header(db, 1)
    journal(db, head + record(page, 2) + super_record(page, os.path.dirname(db) + '/absent'))


def pages(db):
    page, head = header(db, 1)
    journal(db, head + record(page, 2))


def shortens(db):
    page, head = header(db, 0, 1)
    journal(db, head)


def of_an_empty_one(db):
    pages(db)
    os.truncate(db, 0)


def wal_mode(db):
    c = sqlite3.connect(db)
    c.execute('PRAGMA journal_mode = WAL').fetchall()
    c.close()


def wal_and_log(db):
    c = sqlite3.connect(db, isolation_level=None)
    c.execute('PRAGMA journal_mode = WAL').fetchall()
    c.execute("UPDATE device SET description = 'another'")
    shutil.copy(db, db + '.new')
    shutil.copy(db + '-wal', db + '.wal')
    c.close()
    os.rename(db + '.new', db)
    os.rename(db + '.wal', db + '-wal')


def log_alone(db):
    wal_and_log(db)
    shutil.copy(HARDWARE, db)


def log_of_an_empty_one(db):
    wal_and_log(db)
    os.truncate(db, 0)


def journal_is_a_link(db):
    pages(db)
    os.rename(db + '-journal', os.path.dirname(db) + '/elsewhere')
    os.symlink('elsewhere', db + '-journal')


def journal_is_a_pipe(db):
    os.mkfifo(db + '-journal')


NAMED, PLAYED, LOGGED = 'names another file', 'a program died', 'write-ahead log'
KINDS = [(names_another, NAMED), (pages_and_name, NAMED), (names_nothing, NAMED), (pages, PLAYED), (shortens, PLAYED),
         (of_an_empty_one, ''), (wal_mode, LOGGED), (wal_and_log, LOGGED), (log_alone, LOGGED), (log_of_an_empty_one, ''),
         (journal_is_a_link, 'no regular file'), (journal_is_a_pipe, 'no regular file')]


# ---- trials ----

def fresh(kind=None):
    folder = f'{SCRATCH}/beside'
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    shutil.copy(HARDWARE, f'{folder}/hw.sqlite')
    for name in ('victim', 'victim-journal'):
        with open(f'{folder}/{name}', 'w') as f:
            f.write('precious\n')
    if kind:
        kind(f'{folder}/hw.sqlite')
    return folder


def call(command, words, db):
    line = [f'{BIN}/{command[0]}', command[1], *(w.format(db=db) for w in words)]
    try:
        got = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return -1, 'it does not end'
    return got.returncode, got.stderr.decode(errors='replace')


def why_changed(command, words, kind, wanted, said):
    """'' where the command ends with the status that is wanted, says so, and leaves the folder as it was."""
    folder = fresh(kind)
    before = state(folder)
    status, text = call(command, words, f'{folder}/hw.sqlite')
    after = state(folder)
    if before != after:
        return 'changed:\n' + '\n'.join(sorted(map(str, set(before) ^ set(after)))) + f'\nexit status {status}: {text}'
    return '' if status == wanted and said in text else f'exit status {status}, not {wanted} with "{said}": {text}'


def killed():
    """A database whose writer was killed in the middle: half of it is in the file, the rest in the journal."""
    folder = fresh()
    code = ('import os, sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\nc.execute("PRAGMA cache_size = 2")\n'
            'c.execute("BEGIN IMMEDIATE")\nc.execute("UPDATE sample SET value = value * 2")\n'
            'c.execute("UPDATE memory SET bytes_per_s_p50 = bytes_per_s_p50 * 2, bytes_per_s_p90 = NULL, bytes_per_s_p10 = NULL")\n'
            'os.kill(os.getpid(), 9)')
    subprocess.run([sys.executable, '-c', code, f'{folder}/hw.sqlite'])
    return f'{folder}/hw.sqlite'


def rows(db):
    return [sqlite3.connect(db).execute(f'SELECT {c} FROM {t} WHERE run_id = 1').fetchall() for t, c in
            (('sample', 'sum(value)'), ('memory', 'sum(bytes_per_s_p50), sum(bytes_per_s_p90)'))]


def main():
    with open(CSV, 'w') as f:
        f.write('device,table,key,field,value,unit,origin,source\nphone,core_class,class=big,n_cores,1,,published,a test\n'
                'phone,device,,memory_bytes,8,GB,published,a test\n')
    commands = {(p, r[1]) for p in ('thermo-profile', 'thermo-plan', 'thermo-pack', 'thermo-run') for r in table(f'{BIN}/{p}') if r[0] == 'command'}
    takes = {c for c in commands if any(r[0] == 'option' and r[5] in ('read-db', 'update-db') for r in table(f'{BIN}/{c[0]}', c[1]))}
    missing = takes - set(READERS) - set(WRITERS)
    point(not missing and len(takes) > 6, 'every command that takes a hardware database is tried here', str(missing))
    others = [state(os.path.dirname(f)) for f in (HARDWARE, PLAN, TRACES)]
    for command, words in READERS.items():
        whys = [why_changed(command, words, None, 0, '')]
        whys += [w and f'{kind.__name__}: {w}' for kind, said in KINDS for w in [why_changed(command, words, kind, 3, said)]]
        failed = [w for w in whys if w]
        point(not failed, f'{" ".join(command)} reads, and changes nothing beside {len(KINDS)} kinds of files', '\n'.join(failed))
    point(others == [state(os.path.dirname(f)) for f in (HARDWARE, PLAN, TRACES)], 'nor where traces and plans lie')
    for command, words in WRITERS.items():
        whys = [w and f'{kind.__name__}: {w}' for kind, said in KINDS if said in (NAMED, LOGGED, 'no regular file')
                for w in [why_changed(command, words, kind, 3, said)]]
        failed = [w for w in whys if w]
        point(not failed, f'{" ".join(command)} touches no other file', '\n'.join(failed))
        db = killed()
        half = os.path.getsize(db + '-journal') > 0 and open(db, 'rb').read() != open(HARDWARE, 'rb').read()
        refused, _ = call(('thermo-profile', 'show'), ['{db}'], db)
        status, text = call(command, words, db)
        point(half and refused == 3 and status == 0 and not os.path.exists(db + '-journal') and rows(db) == rows(HARDWARE),
              f'{" ".join(command)} takes back what a writer that died has left', f'{half} {refused} {status} {text}')
    return done()


if __name__ == '__main__':
    sys.exit(main())
