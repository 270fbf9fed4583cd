-- Thermocline hardware database, revision 1. SQLite 3.37 or later (STRICT tables).
--
-- What devices can do, for the planner. `thermo-profile hardware` measures the machine it runs on;
-- `thermo-profile import` enters figures of machines one has not got. The programs create a
-- database from this very text, so `sqlite3 HW.sqlite .schema` shows these definitions.
--
-- Rules
--   * Units stand in column names. bytes are bytes, ns are nanoseconds, hz are 1/s. NULL: not known.
--   * Times are UTC, ISO 8601. Names compare byte by byte.
--   * Every point belongs to one run. Points are never updated: a later run adds points of its own,
--     and a reader takes, table by table (compute, memory, storage, joint, accelerator), all points of the
--     newest run (largest id) of the device that has any in that table; of memory, of the newest that
--     has rows of engines 'cpu', and of the newest that has others. One exception: an import
--     replaces the device's former import, for its CSV file is the record.
--   * Accelerators that were measured: engine is what `thermo-run --engine` names ('opencl:0'); ops are
--     'matmul/TYPE' (one product), 'ffn/TYPE' (rows neurons of cols elements: Gate, Up, activation and
--     Down), 'launch', 'copy/in' and 'copy/out' (a product of one row, of few columns), each with its
--     launch and copies; 'own/TYPE', an FFN, 'cpu/TYPE', a product of the processor's threads, and
--     'both/TYPE', one of so many rows together with that FFN. memory has its bandwidth alone ('opencl:0', threads 0) and together with
--     threads of the CPU that sweep ('cpu+opencl:0'). Imports may name other engines ('npu').
--   * p10, p50, p90 are percentiles over the point's samples. What can be relied on is p10 of a rate
--     and p90 of a time; NULL there means that only the middle is known. Of a run that measured again
--     after minutes under load (its notes say so) p10 and p90 are of the later samples, at most and at
--     least p50, which is of the first; sample.seq goes on over both.
--   * run.notes, with a semicolon between them: how storage is read where that is not as usual, what the
--     system does not let be done, governor, battery, temperature, available memory, the load's outcome.
--   * origin says what a figure rests on: 'measured' here, 'published' elsewhere, or 'estimated';
--     source says by whom, and for estimates how.
--   * The programs read, write, compare, export and import by these very lines. A column's comment begins with [key NAME] where it is part
--     of a row's key, NAME being what a CSV calls it, with =VALUE where a CSV may leave it out, or with [field]; with [note], or note
--     behind the key, where it has no share in a device's hash. Other columns a reader passes over. Ranges are the CHECKs'.
--   * A reader refuses numbers that are negative or not finite, and a file whose tables are defined
--     otherwise than here. More views, indexes and tables of other names do no harm: what is added later
--     without a new revision is a table that a reader may ignore, or has a row in `feature`.
--
-- Revisions
--   1  the first that was released, with version 0.2.0. Files of versions before it have the application_id 0x74686877;
--      a reader refuses them by that, and `thermo-profile hardware` or `import` makes the database again.

PRAGMA application_id = 0x74636877; -- "tchw"
PRAGMA user_version = 1;

-- What a reader has to know of, by name, beyond the tables of this revision: it refuses a row that it does not know.
CREATE TABLE feature (
    name TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 63)
) STRICT, WITHOUT ROWID;

CREATE TABLE device (
    id                     INTEGER PRIMARY KEY,
    name                   TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 63), -- [key device]
    origin                 TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')), -- [note]
    description            TEXT, -- [note]
    soc                    TEXT, -- [note]
    cpu_model              TEXT, -- [note]
    os                     TEXT, -- [note]
    storage_description    TEXT, -- [note]
    filesystem             TEXT, -- [note]
    source                 TEXT, -- [note]
    memory_bytes           INTEGER CHECK (memory_bytes > 0), -- [field]
    app_memory_limit_bytes INTEGER CHECK (app_memory_limit_bytes > 0), -- [field] the most one program may hold
    available_bytes        INTEGER CHECK (available_bytes > 0), -- [note] of memory, when it was measured last: less what Android keeps free
    updated_at             TEXT NOT NULL
) STRICT;

-- Where single fields of `device` come from, when they do not share device.source.
CREATE TABLE fact_source (
    device_id INTEGER NOT NULL REFERENCES device (id) ON DELETE CASCADE,
    field     TEXT NOT NULL, -- a column of device
    origin    TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')),
    source    TEXT NOT NULL,
    PRIMARY KEY (device_id, field)
) STRICT;

CREATE TABLE core_class (
    id        INTEGER PRIMARY KEY,
    device_id INTEGER NOT NULL REFERENCES device (id) ON DELETE CASCADE,
    name      TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 63), -- [key class] 'big', 'mid', 'little', 'cpu'
    rank      INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 15),      -- 0 is the fastest
    n_cores   INTEGER NOT NULL CHECK (n_cores BETWEEN 1 AND 65536), -- [field]
    max_hz    INTEGER CHECK (max_hz > 0), -- [field]
    origin    TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')), -- [note]
    source    TEXT,
    UNIQUE (device_id, name)
) STRICT;

-- One measurement session, or one import, and its conditions.
CREATE TABLE run (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    device_id       INTEGER NOT NULL REFERENCES device (id) ON DELETE CASCADE,
    started_at      TEXT NOT NULL,
    tool_version    TEXT NOT NULL,
    command         TEXT,
    kernel          TEXT, -- uname -r
    governor        TEXT, -- cpufreq governor of the first CPU used
    temperature_c   REAL, -- at the start
    filesystem      TEXT, -- of the storage directory: 'ext4', 'f2fs', 'tmpfs'
    mount           TEXT,
    mount_options   TEXT,
    block_device    TEXT,
    direct_verified INTEGER CHECK (direct_verified IN (0, 1)), -- O_DIRECT returned the file's bytes
    content_hash    TEXT, -- of an import: XXH3-128 over its rows; NULL for measurements
    notes           TEXT
) STRICT;

-- Time of one weight row against `batch` tokens by one of the engine's kernels.
-- kernel: 'rows/TYPE/ACT', a row product, TYPE of the weights in lower case ('q4_0', 'q8_0', 'f16', 'bf16',
--         'f32'), ACT the activations' form ('f32', 'q8'); 'axpy/TYPE', adding rows times a factor;
--         'work/start', 'work/turn', 'work/lookup', 'work/admit', 'work/verify', 'work/norm', 'work/rope', 'work/attend',
--         'work/attend_many', 'work/act', 'work/sift', what the
--         engine does beside the products of weights: starting a job on all threads, a turn at the lock of a list of
--         jobs that they share, finding a unit in the cold cache, taking a missing one in; the checksum of a
--         unit in cache; residual addition, norm and
--         int8 activations of a token, rotation of a head, one position of a head's attention (f16 keys and values in
--         cache), the same where several tokens of a prompt are taken at a time; what a neuron's h of a token takes to be
--         made, and to be gathered and looked at for Down; there a "row" is one item and row_len 1, 1, the cache's units, the unit's bytes twice, elements of the
--         stream, elements of a head three times, neurons of an FFN twice;
--         'flops/fp32' and 'flops/int8', a rate without a kernel (published figures).
CREATE TABLE compute (
    id              INTEGER PRIMARY KEY,
    run_id          INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    kernel          TEXT NOT NULL CHECK (length(kernel) BETWEEN 1 AND 63), -- [key kernel]
    core_class_id   INTEGER REFERENCES core_class (id) ON DELETE CASCADE, -- [key class] NULL: threads over all classes
    tier            TEXT NOT NULL,                                        -- [key tier=unknown note] SIMD tier: 'avx2', 'neon'; '' unknown
    pattern         TEXT NOT NULL CHECK (pattern IN ('seq', 'random')),   -- [key pattern=seq] consecutive rows, or rows anywhere
    resident        TEXT NOT NULL CHECK (resident IN ('cache', 'dram')),  -- [key resident=cache] where the rows come from
    threads         INTEGER NOT NULL CHECK (threads BETWEEN 1 AND 65536), -- [key threads=1]
    row_len         INTEGER NOT NULL CHECK (row_len BETWEEN 0 AND 1048576), -- [key row_len=0] weights per row; 0 for flops/*
    batch           INTEGER NOT NULL CHECK (batch BETWEEN 1 AND 65536),   -- [key batch=1] tokens
    rows            INTEGER CHECK (rows BETWEEN 1 AND 2147483647),        -- [note] rows per call and thread
    ns_per_row_p10  REAL CHECK (ns_per_row_p10 > 0),                      -- [field] wall time / rows of all threads
    ns_per_row_p50  REAL CHECK (ns_per_row_p50 > 0),                      -- [field] NULL for flops/* alone
    ns_per_row_p90  REAL CHECK (ns_per_row_p90 > 0),                      -- [field]
    flops_per_s     REAL NOT NULL CHECK (flops_per_s > 0),                -- [field] 2 * row_len * batch per row
    origin          TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')), -- [note]
    source          TEXT,
    CHECK (ns_per_row_p50 IS NOT NULL OR kernel LIKE 'flops/%')
) STRICT;
CREATE UNIQUE INDEX compute_key ON compute
    (run_id, ifnull(core_class_id, 0), kernel, pattern, resident, threads, row_len, batch);

-- Reading memory: in one sweep (seq), or rows of row_bytes in random order.
CREATE TABLE memory (
    id              INTEGER PRIMARY KEY,
    run_id          INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    engines         TEXT NOT NULL CHECK (length(engines) BETWEEN 1 AND 63), -- [key engines=cpu] 'cpu', 'npu', 'cpu+npu'
    pattern         TEXT NOT NULL CHECK (pattern IN ('seq', 'random')), -- [key pattern=seq]
    row_bytes       INTEGER NOT NULL CHECK (row_bytes BETWEEN 1 AND 1099511627776), -- [key row=64KiB]
    threads         INTEGER NOT NULL CHECK (threads BETWEEN 0 AND 65536), -- [key threads=0] of the CPU
    bytes_per_s_p10 REAL CHECK (bytes_per_s_p10 > 0), -- [field]
    bytes_per_s_p50 REAL NOT NULL CHECK (bytes_per_s_p50 > 0), -- [field]
    bytes_per_s_p90 REAL CHECK (bytes_per_s_p90 > 0), -- [field]
    origin          TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')), -- [note]
    source          TEXT,
    UNIQUE (run_id, engines, pattern, row_bytes, threads)
) STRICT;

-- Reading a file of incompressible bytes, past the page cache.
CREATE TABLE storage (
    id              INTEGER PRIMARY KEY,
    run_id          INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    backend         TEXT NOT NULL CHECK (backend IN ('pread', 'io_uring')), -- [key backend=io_uring]
    direct          INTEGER NOT NULL CHECK (direct IN (0, 1)),            -- [key direct=1] O_DIRECT, verified
    pattern         TEXT NOT NULL CHECK (pattern IN ('seq', 'random')),   -- [key pattern]
    block_bytes     INTEGER NOT NULL CHECK (block_bytes BETWEEN 1 AND 1099511627776), -- [key block]
    queue_depth     INTEGER NOT NULL CHECK (queue_depth BETWEEN 1 AND 65536), -- [key depth] reads in flight per lane
    lanes           INTEGER NOT NULL CHECK (lanes BETWEEN 1 AND 65536),   -- [key lanes=1] threads that submit; with pread each
                                                                          -- lane is queue_depth threads
    range_bytes     INTEGER NOT NULL CHECK (range_bytes BETWEEN 1 AND 1152921504606846976), -- [key range] reads fall within this much
    core_class_id   INTEGER REFERENCES core_class (id) ON DELETE CASCADE, -- [key class] of the lanes; NULL: not pinned
    bytes_per_s_p10 REAL CHECK (bytes_per_s_p10 > 0),                     -- [field]
    bytes_per_s_p50 REAL NOT NULL CHECK (bytes_per_s_p50 > 0),            -- [field]
    bytes_per_s_p90 REAL CHECK (bytes_per_s_p90 > 0),                     -- [field]
    latency_ns_p50  REAL CHECK (latency_ns_p50 > 0),                      -- [field] of one read, queueing included
    latency_ns_p99  REAL CHECK (latency_ns_p99 > 0),                      -- [field]
    cpu_ns_per_read REAL CHECK (cpu_ns_per_read > 0),                     -- [field] user + system time of the lanes
    -- Of the reads in flight, the share that is found ended at one moment, in the mean over reads: 1 where all of a queue end
    -- together, as of drives whose interrupts wait until the queue is empty, 1 / queue_depth where each ends by itself.
    batch_completion_share REAL CHECK (batch_completion_share > 0 AND batch_completion_share <= 1), -- [field]
    -- The rate of these reads where each goes to another place of 64 MiB, as to a slot of the cold cache, by their rate into buffers that
    -- are used again: 1 where a drive writes to memory by itself, less where a processor copies (a paravirtual drive), for buffers
    -- are in its caches.
    uncached_destination_ratio REAL CHECK (uncached_destination_ratio > 0 AND uncached_destination_ratio <= 1), -- [field]
    -- Bytes of the pages that most of the memory was in which these reads arrived in: into pages of 4 KiB a paravirtual drive reads at
    -- a fraction of the rate. The engine's memory is mapped as the probe's is, so that it has what the probe had on the same system.
    page_bytes      INTEGER CHECK (page_bytes BETWEEN 1 AND 1099511627776), -- [field]
    origin          TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')), -- [note]
    source          TEXT
) STRICT;
CREATE UNIQUE INDEX storage_key ON storage
    (run_id, backend, pattern, block_bytes, queue_depth, lanes, range_bytes, ifnull(core_class_id, 0));

-- What reading and computing cost each other: threads that multiply rows of weights in memory, while a queue of reads is kept full, or
-- reads are asked for at a share of the rate that they have with idle cores. With io_uring the first of these threads submits and reaps
-- between its rows, with pread queue_depth threads more read. What was read is multiplied before its buffer is used again. Each ratio is
-- of phases that followed each other; more than 1 is noise, and stored as 1.
CREATE TABLE joint (
    id              INTEGER PRIMARY KEY,
    run_id          INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    backend         TEXT NOT NULL CHECK (backend IN ('pread', 'io_uring')), -- [key backend=io_uring]
    block_bytes     INTEGER NOT NULL CHECK (block_bytes BETWEEN 1 AND 1099511627776), -- [key block]
    queue_depth     INTEGER NOT NULL CHECK (queue_depth BETWEEN 1 AND 65536), -- [key depth] reads in flight, and buffers
    threads         INTEGER NOT NULL CHECK (threads BETWEEN 1 AND 65536), -- [key threads] that compute, on the fastest cores
    load_percent    INTEGER NOT NULL CHECK (load_percent BETWEEN 1 AND 100), -- [key load=100] of the rate with idle cores; 100: no pause
    bytes_per_s_p10 REAL CHECK (bytes_per_s_p10 > 0),                     -- [field] read beside the rows
    bytes_per_s_p50 REAL NOT NULL CHECK (bytes_per_s_p50 > 0),            -- [field]
    bytes_per_s_p90 REAL CHECK (bytes_per_s_p90 > 0),                     -- [field]
    read_rate_ratio REAL NOT NULL CHECK (read_rate_ratio > 0 AND read_rate_ratio <= 1), -- [field] reads beside the rows / with idle cores
    row_rate_ratio  REAL NOT NULL CHECK (row_rate_ratio > 0 AND row_rate_ratio <= 1), -- [field] rows beside the reads / without reads
    page_bytes      INTEGER CHECK (page_bytes BETWEEN 1 AND 1099511627776), -- [field] of the memory that reads arrived in
    origin          TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')), -- [note]
    source          TEXT,
    UNIQUE (run_id, backend, block_bytes, queue_depth, threads, load_percent)
) STRICT;

CREATE TABLE accelerator (
    id                INTEGER PRIMARY KEY,
    run_id            INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    engine            TEXT NOT NULL CHECK (length(engine) BETWEEN 1 AND 63), -- [key engine] 'opencl', 'npu'
    description       TEXT, -- [note]
    addressable_bytes INTEGER CHECK (addressable_bytes > 0), -- [field]
    launch_ns         REAL CHECK (launch_ns > 0),    -- [field] an empty launch, waited for
    shares_memory     INTEGER NOT NULL CHECK (shares_memory IN (0, 1)), -- [field] with the CPU
    driver_bytes      INTEGER CHECK (driver_bytes > 0), -- [field] of the process's memory, at most: opening it and building its programs
    origin            TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')), -- [note]
    source            TEXT,
    UNIQUE (run_id, engine)
) STRICT;

CREATE TABLE accelerator_point (
    id             INTEGER PRIMARY KEY,
    run_id         INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    accelerator_id INTEGER NOT NULL REFERENCES accelerator (id) ON DELETE CASCADE, -- [key engine]
    op             TEXT NOT NULL CHECK (length(op) BETWEEN 1 AND 63), -- [key op] 'matmul/q4_0'
    rows           INTEGER NOT NULL CHECK (rows BETWEEN 1 AND 16777216), -- [key rows]
    cols           INTEGER NOT NULL CHECK (cols BETWEEN 1 AND 16777216), -- [key cols]
    batch          INTEGER NOT NULL CHECK (batch BETWEEN 1 AND 65536), -- [key batch=1]
    ns_p10         REAL CHECK (ns_p10 > 0), -- [field]
    ns_p50         REAL NOT NULL CHECK (ns_p50 > 0), -- [field]
    ns_p90         REAL CHECK (ns_p90 > 0), -- [field]
    origin         TEXT NOT NULL CHECK (origin IN ('measured', 'published', 'estimated')), -- [note]
    source         TEXT,
    UNIQUE (accelerator_id, op, rows, cols, batch)
) STRICT;

-- Raw samples behind the points, in the order taken. Repetitions of one point are spread over the
-- whole run, so drift (heat, garbage collection of the flash) shows in t_s.
CREATE TABLE sample (
    run_id        INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    table_name    TEXT NOT NULL CHECK (table_name IN ('compute', 'memory', 'storage', 'joint', 'accelerator_point')),
    row_id        INTEGER NOT NULL, -- of that table
    seq           INTEGER NOT NULL CHECK (seq >= 0),
    value         REAL NOT NULL CHECK (value > 0),
    unit          TEXT NOT NULL CHECK (unit IN ('ns/row', 'B/s', 'ns')),
    t_s           REAL NOT NULL CHECK (t_s >= 0), -- since the run began
    temperature_c REAL,
    PRIMARY KEY (table_name, row_id, seq)
) STRICT, WITHOUT ROWID;

-- Views for people; programs read the tables.
CREATE VIEW v_compute AS
    SELECT d.name AS device, r.id AS run, c.name AS core_class, p.kernel, tier, pattern, resident, threads, row_len,
           batch, round(ns_per_row_p50, 1) AS ns_per_row, round(flops_per_s / 1e9, 2) AS gflop_per_s, p.origin
    FROM compute p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
         LEFT JOIN core_class c ON c.id = p.core_class_id
    ORDER BY 1, 2, c.rank, 4, 6, 7, 8, 9, 10;
CREATE VIEW v_memory AS
    SELECT d.name AS device, r.id AS run, engines, pattern, row_bytes, threads,
           round(bytes_per_s_p50 / 1e9, 2) AS gb_per_s, round(bytes_per_s_p10 / 1e9, 2) AS sustained_gb_per_s, p.origin
    FROM memory p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
    ORDER BY 1, 2, 3, 4, 5, 6;
CREATE VIEW v_storage AS
    SELECT d.name AS device, r.id AS run, backend, direct, pattern, block_bytes / 1024 AS block_kib, queue_depth,
           lanes, range_bytes / 1048576 AS range_mib, c.name AS core_class,
           round(bytes_per_s_p50 / 1e6, 1) AS mb_per_s, round(bytes_per_s_p10 / 1e6, 1) AS sustained_mb_per_s,
           round(latency_ns_p50 / 1e3, 1) AS latency_us, round(latency_ns_p99 / 1e3, 1) AS latency_p99_us,
           round(cpu_ns_per_read / 1e3, 2) AS cpu_us_per_read, p.origin
    FROM storage p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
         LEFT JOIN core_class c ON c.id = p.core_class_id
    ORDER BY 1, 2, 3, 5, 9, 8, 7, 6;
CREATE VIEW v_joint AS
    SELECT d.name AS device, r.id AS run, backend, block_bytes / 1024 AS block_kib, queue_depth, threads, load_percent,
           round(bytes_per_s_p50 / 1e6, 1) AS mb_per_s, round(100 * read_rate_ratio, 1) AS reads_percent,
           round(100 * row_rate_ratio, 1) AS rows_percent, p.origin
    FROM joint p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
    ORDER BY 1, 2, 3, 6, 4, 5, 7;
CREATE VIEW v_accelerator AS
    SELECT d.name AS device, r.id AS run, a.engine, p.op, p.rows, p.cols, p.batch, round(p.ns_p50 / 1e3, 1) AS us,
           round(2e0 * p.rows * p.cols * p.batch / p.ns_p50, 2) AS gflop_per_s, p.origin
    FROM accelerator_point p JOIN accelerator a ON a.id = p.accelerator_id
         JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
    ORDER BY 1, 2, 3, 4, 5, 6, 7;
CREATE VIEW v_origin AS -- what each figure of an imported device rests on
    SELECT d.name AS device, 'device.' || f.field AS figure, f.origin, f.source
    FROM fact_source f JOIN device d ON d.id = f.device_id
    UNION ALL SELECT d.name, 'core_class.' || c.name, c.origin, c.source
    FROM core_class c JOIN device d ON d.id = c.device_id
    UNION ALL SELECT d.name, 'compute.' || p.kernel || ifnull('.' || c.name, ''), p.origin, p.source
    FROM compute p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
         LEFT JOIN core_class c ON c.id = p.core_class_id
    UNION ALL SELECT d.name, 'memory.' || p.engines || '.' || p.pattern, p.origin, p.source
    FROM memory p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
    UNION ALL SELECT d.name, 'storage.' || p.pattern || '.' || p.block_bytes || '.' || p.range_bytes, p.origin, p.source
    FROM storage p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
    UNION ALL SELECT d.name, 'joint.' || p.backend || '.' || p.block_bytes || '.' || p.threads, p.origin, p.source
    FROM joint p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id
    UNION ALL SELECT d.name, 'accelerator.' || p.engine, p.origin, p.source
    FROM accelerator p JOIN run r ON r.id = p.run_id JOIN device d ON d.id = r.device_id;

-- What running plans taught, in rows of its own, never over what was measured.

-- One `thermo-plan calibrate --store`. `thermo-plan solve --corrections` takes the newest (largest id) of the device
-- whose hardware_hash is that of the figures as they are now: figures measured since want a calibration of their own.
CREATE TABLE calibration (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    device_id     INTEGER NOT NULL REFERENCES device (id) ON DELETE CASCADE,
    created_at    TEXT NOT NULL,
    tool_version  TEXT NOT NULL,
    hardware_hash TEXT NOT NULL CHECK (length(hardware_hash) = 32), -- of the figures that predicted, uncorrected
    plan_hash     TEXT NOT NULL CHECK (length(plan_hash) = 32),     -- XXH3-128 of the plan's canonical text
    model         TEXT NOT NULL,                                    -- its name
    runs          INTEGER NOT NULL CHECK (runs > 0)                 -- that were compared
) STRICT;

-- Time measured over time predicted, of one term of the cost model (docs/cost-model.md, Calibration). Terms without a
-- row stay as predicted.
CREATE TABLE calibration_term (
    calibration_id INTEGER NOT NULL REFERENCES calibration (id) ON DELETE CASCADE,
    term           TEXT NOT NULL CHECK (term IN ('attention', 'predict', 'ffn', 'io', 'head')),
    factor_p10     REAL NOT NULL CHECK (factor_p10 > 0),
    factor_p50     REAL NOT NULL CHECK (factor_p50 > 0), -- the one that is applied
    factor_p90     REAL NOT NULL CHECK (factor_p90 > 0),
    runs           INTEGER NOT NULL CHECK (runs > 0),    -- that tell this term
    PRIMARY KEY (calibration_id, term)
) STRICT, WITHOUT ROWID;

CREATE VIEW v_calibration AS
    SELECT d.name AS device, c.id AS calibration, c.created_at, c.model, t.term, round(t.factor_p50, 3) AS factor,
           round(t.factor_p10, 3) AS p10, round(t.factor_p90, 3) AS p90, t.runs
    FROM calibration_term t JOIN calibration c ON c.id = t.calibration_id JOIN device d ON d.id = c.device_id
    ORDER BY 1, 2, 5;

-- What ran beside a measurement: one row for each table that a run measured. An import brings the rows of the device that was exported.
-- marks: 'clean', or what was not kept below its limit (profiler/probe/watch.h), separated by spaces: 'others',
--        'stolen', 'waited', 'memory', 'spread'. NULL: nobody watched.
-- The shares are the largest of any window of samples that was kept; NULL: nothing, or nobody watched.
CREATE TABLE conditions (
    run_id          INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    table_name      TEXT NOT NULL CHECK (table_name IN ('compute', 'memory', 'storage', 'joint', 'accelerator')), -- [key table]
    measured_at     TEXT NOT NULL CHECK (length(measured_at) BETWEEN 1 AND 63), -- [note] when its run began
    marks           TEXT CHECK (length(marks) BETWEEN 1 AND 63), -- [note]
    others          REAL CHECK (others > 0),          -- [note] CPU time of other programs / time of all CPUs
    stolen          REAL CHECK (stolen > 0),          -- [note] time that the hypervisor gave others / time of all CPUs
    waited_for_cpu  REAL CHECK (waited_for_cpu > 0),  -- [note] share of time in which something waited for a CPU
    short_of_memory REAL CHECK (short_of_memory > 0), -- [note] share of time in which something waited for memory
    spread          REAL CHECK (spread > 0),          -- [note] (p90 - p10) / p50 of a point's samples, in the middle of all points
    disturbed       REAL CHECK (disturbed > 0 AND disturbed <= 1), -- [note] share of samples in windows that are not clean
    repeated        INTEGER CHECK (repeated BETWEEN 1 AND 2147483647), -- [note] samples that were taken again
    paused_s        REAL CHECK (paused_s > 0),        -- [note] waiting for the machine to become quiet
    PRIMARY KEY (run_id, table_name)
) STRICT, WITHOUT ROWID;

CREATE VIEW v_conditions AS
    SELECT d.name AS device, c.run_id AS run, c.table_name, c.measured_at, c.marks, round(100 * c.others, 1) AS others_percent,
           round(100 * c.stolen, 1) AS stolen_percent, round(100 * c.spread, 1) AS spread_percent,
           round(100 * c.disturbed, 1) AS disturbed_percent
    FROM conditions c JOIN run r ON r.id = c.run_id JOIN device d ON d.id = r.device_id
    ORDER BY 1, 2, 3;
