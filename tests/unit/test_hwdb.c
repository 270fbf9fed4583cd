/* The hardware database: what is written is read back, the newest run counts table by table, files that lie are
 * refused with the place, and interpolation is exact at points and monotone between them. */
#include "common/hwdb/hwdb_parts.h"
#include "common/offline/hwdb/hwdb.h"

#include "common/base/file.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[256], path[300];
static struct err e;

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void remove_file(const char *name)
{
    if (unlink(name) != 0 && access(name, F_OK) == 0)
        printf("# cannot remove %s\n", name);
}

/* A statement through the sqlite3 program, as a stranger would edit the file. */
static int edit(const char *file, const char *sql)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("sqlite3", "sqlite3", file, sql, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static struct hw device(const char *name, enum hw_origin origin)
{
    struct hw h = { .soc = "test", .memory_bytes = 8ull << 30, .origin = origin };
    snprintf(h.name, sizeof h.name, "%s", name);
    return h;
}

static int add_conditions(struct hwdb *d, enum hw_table t, struct hw_conditions c)
{
    c.table = t;
    return hwdb_add(d, HWDB_CONDITIONS, &c, NULL, NULL, 0, &e);
}

static struct hwdb_run run(const char *hash)
{
    return (struct hwdb_run){ .started_at = "2024-11-21T10:00:00Z",
                              .tool_version = "t",
                              .temperature_c = NAN,
                              .direct_verified = -1,
                              .content_hash = hash };
}

static struct hw_storage read_point(enum hw_pattern pattern, uint64_t block, int depth, int lanes,
                                    uint64_t range, int core_class, double rate)
{
    return (struct hw_storage){ .backend = HW_URING,
                                .direct = 1,
                                .pattern = pattern,
                                .block_bytes = block,
                                .queue_depth = depth,
                                .lanes = lanes,
                                .range_bytes = range,
                                .core_class = core_class,
                                .bytes_per_s = { rate * 0.8, rate, rate * 1.1 },
                                .latency_ns_p50 = 1e9 * (double)block * depth / rate,
                                .cpu_ns_per_read = 2000 };
}

static struct hw_compute row_point(const char *kernel, int core_class, int threads, int row_len, int batch,
                                   double ns)
{
    struct hw_compute c = { .core_class = core_class,
                            .threads = threads,
                            .row_len = row_len,
                            .rows = 64,
                            .batch = batch,
                            .ns_per_row = { ns * 0.9, ns, ns * 1.25 },
                            .flops_per_s = 2e9 * row_len * batch / ns };
    snprintf(c.kernel, sizeof c.kernel, "%s", kernel);
    snprintf(c.tier, sizeof c.tier, "avx2");
    return c;
}

static int write_first(struct hwdb *d)
{
    static const struct hw_class classes[] = { { .name = "big", .n_cores = 2, .max_hz = 3000000000u },
                                               { .name = "little", .n_cores = 4 } };
    struct hw dev = device("box", HW_MEASURED);
    struct hwdb_run r = run(NULL);
    int bad = hwdb_begin(d, &dev, &r, NULL, &e);
    for (int i = 0; i < 2 && !bad; i++)
        bad = hwdb_add(d, HWDB_CORE_CLASS, &classes[i], NULL, NULL, 0, &e);
    struct hw_compute c[] = {
        row_point("rows/q4_0/q8", 0, 1, 1024, 1, 100),
        row_point("rows/q4_0/q8", 0, 1, 4096, 1, 400),
        row_point("rows/q4_0/q8", 0, 1, 4096, 8, 800),
        row_point("rows/q4_0/q8", 1, 1, 4096, 1, 800),
    };
    for (int i = 0; i < 4 && !bad; i++)
        bad = hwdb_add(d, HWDB_COMPUTE, &c[i], NULL, &(struct hwdb_sample){ 1 + i, 0.5, NAN }, 1, &e);
    struct hw_memory m = { .engines = "cpu",
                           .pattern = HW_SEQ,
                           .row_bytes = 4096,
                           .threads = 1,
                           .bytes_per_s = { 9e9, 1e10, 1.1e10 } };
    if (!bad)
        bad = hwdb_add(d, HWDB_MEMORY, &m, NULL, NULL, 0, &e);
    m.threads = 4;
    m.bytes_per_s = (struct hw_dist){ 0, 2e10, 0 };
    if (!bad)
        bad = hwdb_add(d, HWDB_MEMORY, &m, NULL, NULL, 0, &e);
    struct hw_storage s[] = {
        read_point(HW_RANDOM, 4096, 1, 1, 1 << 27, -1, 1e8),
        read_point(HW_RANDOM, 65536, 1, 1, 1 << 27, -1, 8e8),
        read_point(HW_RANDOM, 4096, 16, 1, 1 << 27, -1, 4e8),
        read_point(HW_RANDOM, 65536, 16, 1, 1 << 27, -1, 2e9),
        read_point(HW_RANDOM, 4096, 16, 1, 1 << 29, -1, 2e8),
        read_point(HW_RANDOM, 65536, 16, 1, 1 << 29, -1, 1e9),
        read_point(HW_RANDOM, 65536, 16, 2, 1 << 29, -1, 3e9),
        read_point(HW_RANDOM, 4096, 16, 1, 1 << 29, 1, 1e8),
    };
    for (int i = 0; i < 8 && !bad; i++)
        bad = hwdb_add(d, HWDB_STORAGE, &s[i], NULL, NULL, 0, &e);
    struct hw_accel a = {
        .engine = "npu", .addressable_bytes = 1 << 30, .launch_ns = 5e4, .shares_memory = 1
    };
    struct hw_accel_point ap = {
        .op = "matmul/q4_0", .rows = 1024, .cols = 1024, .batch = 1, .ns = { 0, 1e5, 0 }
    };
    if (!bad && (bad = hwdb_add(d, HWDB_ACCELERATOR, &a, NULL, NULL, 0, &e)) == 0)
        bad = hwdb_add(d, HWDB_ACCELERATOR_POINT, &ap, NULL, NULL, 0, &e);
    struct hw_conditions seen = { .measured_at = "2024-11-21T10:00:00Z", .watched = 1, .marks = 1u << HW_OTHERS | 1u << HW_SPREAD,
                                  .others = 0.45, .stolen = 0.01, .waited_for_cpu = 0.2, .short_of_memory = 0.02, .spread = 0.5,
                                  .disturbed = 0.75, .repeated = 7, .paused_s = 1.5 };
    if (!bad)
        bad = add_conditions(d, HW_MEMORY, seen);
    seen.watched = 0; /* only when is known */
    if (!bad)
        bad = add_conditions(d, HW_STORAGE, seen);
    seen.watched = 1;
    seen.others = 0.3;
    if (!bad)
        bad = add_conditions(d, HW_ACCELERATOR, seen);
    return bad ? bad : hwdb_commit(d, &e);
}

/* Of each table those of the run that it is from. */
static void conditions(const struct hw *h)
{
    const struct hw_conditions *m = &h->conditions[HW_MEMORY], *s = &h->conditions[HW_STORAGE], *c = &h->conditions[HW_COMPUTE];
    char text[400], two[HW_NAME];
    unsigned marks = 9;
    CHECK(m->watched && m->marks == (1u << HW_OTHERS | 1u << HW_SPREAD) && near(m->others, 0.45) && near(m->stolen, 0.01) &&
          near(m->waited_for_cpu, 0.2) && near(m->short_of_memory, 0.02) && near(m->spread, 0.5) && near(m->disturbed, 0.75) &&
          m->repeated == 7 && near(m->paused_s, 1.5));
    CHECK(!s->watched && !s->marks && !strcmp(s->measured_at, "2024-11-21T10:00:00Z"));
    CHECK(!c->watched && !c->measured_at[0]); /* no row */
    CHECK(near(h->conditions[HW_ACCELERATOR].others, 0.3) && h->conditions[HW_ACCELERATOR].marks == m->marks);
    hw_marks_words(m, text, sizeof text);
    CHECK(!strcmp(text, "other programs took up to 45 % of the processors, samples of a point differ by 50 %"));
    hw_marks_words(s, text, sizeof text);
    CHECK(!*text);
    for (unsigned all = 0; all < 1u << HW_MARKS; all++) {
        hw_marks_text(all, two);
        CHECK(hw_marks_of(two, &marks) == 0 && marks == all);
    }
    CHECK(hw_marks_of("", &marks) < 0 && hw_marks_of("others ", &marks) < 0 && hw_marks_of("other", &marks) < 0);
}

static void questions(const struct hw *h)
{
    struct hw_read q = { HW_URING, HW_RANDOM, 4096, 1 << 27, 1, 1, -1 };
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 1e8));
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_SUSTAINED), 0.8e8));
    CHECK(near(hw_storage_cpu_ns_per_read(h, &q), 2000));
    q.block_bytes = 512;
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 1e8)); /* held below the ends */
    q.block_bytes = 1 << 20;
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 8e8));
    q.block_bytes = 16384; /* the middle of 4..64 KiB in log scale: geometric mean */
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), sqrt(1e8 * 8e8)));
    q.queue_depth = 4;
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), sqrt(sqrt(1e8 * 8e8) * sqrt(4e8 * 2e9))));
    q = (struct hw_read){ HW_URING, HW_RANDOM, 4096, 1 << 28, 16, 1, -1 };
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), sqrt(4e8 * 2e8)));
    q.range_bytes = 0;
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 2e8));
    q.core_class = 1; /* measured there at one point: half the base; the ratio carries to other points */
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 1e8));
    q.block_bytes = 65536;
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 5e8));
    q.core_class = -1;
    q.lanes = 8;
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 3e9));
    q.pattern = HW_SEQ;
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 3e9));
    q.backend = HW_PREAD;
    CHECK(hw_storage_bytes_per_s(h, &q, HW_TYPICAL) == 0);
    q.backend = HW_ANY_BACKEND;
    CHECK(near(hw_storage_bytes_per_s(h, &q, HW_TYPICAL), 3e9));
    q.block_bytes = 0;
    CHECK(hw_storage_bytes_per_s(h, &q, HW_TYPICAL) == 0);

    CHECK(near(hw_memory_bytes_per_s(h, "cpu", HW_SEQ, 4096, 2, HW_TYPICAL), sqrt(2e20)));
    CHECK(near(hw_memory_bytes_per_s(h, "cpu", HW_RANDOM, 4096, 1, HW_SUSTAINED), 9e9));
    CHECK(hw_memory_bytes_per_s(h, "npu", HW_SEQ, 4096, 1, HW_TYPICAL) == 0);
    CHECK(near(hw_mem_bytes_per_s(h, HW_SUSTAINED), 2e10)); /* no p10 there: the middle */

    struct hw_rows w = { "rows/q4_0/q8", 0, HW_SEQ, 0, 1, 4096, 1 };
    CHECK(near(hw_row_ns(h, &w, HW_TYPICAL), 400) && near(hw_row_ns(h, &w, HW_SUSTAINED), 500));
    w.row_len = 2048;
    CHECK(near(hw_row_ns(h, &w, HW_TYPICAL), 200));
    w.row_len = 16384; /* beyond the largest: in proportion */
    CHECK(near(hw_row_ns(h, &w, HW_TYPICAL), 1600));
    w.row_len = 4096;
    w.batch = 32;
    CHECK(near(hw_row_ns(h, &w, HW_TYPICAL), 3200));
    w.batch = 1;
    w.pattern = HW_RANDOM;
    w.dram = 1; /* neither was measured so */
    CHECK(near(hw_row_ns(h, &w, HW_TYPICAL), 400));
    w.threads = 16; /* scales to the two cores of the class */
    CHECK(near(hw_row_ns(h, &w, HW_TYPICAL), 200));
    w.core_class = -1;
    w.threads = 3; /* two big at 1/400, one little at 1/800 */
    CHECK(near(hw_row_ns(h, &w, HW_TYPICAL), 160));
    w.kernel = "rows/f16/f32";
    CHECK(hw_row_ns(h, &w, HW_TYPICAL) == 0);
    CHECK(near(hw_class_flops_per_s(h, 0, "rows/q4_0/q8", HW_TYPICAL), 2e9 * 4096 / 400));
    CHECK(near(hw_class_flops_per_s(h, 1, "rows/q4_0/q8", HW_SUSTAINED), 2e9 * 4096 / 1000));
    CHECK(near(hw_accel_ns(h, 0, "matmul/q4_0", 2048, 1024, 4, HW_TYPICAL), 8e5));
    /* Below what was measured: a launch, and the rest in proportion. */
    CHECK(near(hw_accel_ns(h, 0, "matmul/q4_0", 256, 1024, 1, HW_TYPICAL), 5e4 + 5e4 / 4));
    CHECK(near(hw_accel_ns(h, 0, "matmul/q4_0", 256, 512, 1, HW_TYPICAL), 5e4 + 5e4 / 8));
    CHECK(near(hw_accel_ns(h, 0, "matmul/q4_0", 2048, 512, 4, HW_TYPICAL), 5e4 + 7.5e5 / 2));
    CHECK(hw_accel_ns(h, 0, "matmul/f16", 1, 1, 1, HW_TYPICAL) == 0);
    /* Beyond it: what any size takes once, and the rest in proportion; where no size is known to take less all is. */
    struct hw_accel_point p[4];
    struct hw gpu = *h;
    for (int i = 0; i < 4; i++)
        p[i] = (struct hw_accel_point){ .op = "ffn/q8_0", .rows = i & 1 ? 2048 : 256, .cols = i & 2 ? 2048 : 256, .batch = 1,
                                        .ns = { 0, i == 3 ? 8.5e4 : 7e4, 0 } };
    gpu.accel_points = p, gpu.n_accel_points = 4;
    CHECK(near(hw_accel_ns(&gpu, 0, "ffn/q8_0", 2048, 2048, 1, HW_TYPICAL), 8.5e4));
    CHECK(near(hw_accel_ns(&gpu, 0, "ffn/q8_0", 8192, 2048, 1, HW_TYPICAL), 7e4 + 4 * 1.5e4));
    CHECK(near(hw_accel_ns(&gpu, 0, "ffn/q8_0", 8192, 4096, 1, HW_TYPICAL), 7e4 + 8 * 1.5e4));
    p[0].ns.p50 = 9e4, p[1].ns.p50 = 9e4, p[2].ns.p50 = 9e4; /* noise: the largest is the fastest */
    CHECK(near(hw_accel_ns(&gpu, 0, "ffn/q8_0", 8192, 2048, 1, HW_TYPICAL), 4 * 8.5e4));
}

/* Between two points no value leaves their span, and more block never means less throughput here. */
static void monotone(const struct hw *h)
{
    double last = 0;
    int ok = 1;
    for (uint64_t b = 2048; b <= 1 << 17; b += 512) {
        struct hw_read q = { HW_URING, HW_RANDOM, b, 200 << 20, 7, 1, -1 };
        double v = hw_storage_bytes_per_s(h, &q, HW_TYPICAL);
        ok &= v >= last * (1 - 1e-12) && v >= 1e8 * (1 - 1e-12) && v <= 2e9 * (1 + 1e-12);
        last = v;
    }
    CHECK(ok);
}

static void second_run(struct hash128 before)
{
    struct hwdb *d = NULL;
    struct hw h = { 0 };
    CHECK(hwdb_open(path, &d, &e) == 0);
    struct hw dev = device("box", HW_MEASURED);
    struct hwdb_run r = run(NULL);
    struct hw_memory m = {
        .engines = "cpu", .pattern = HW_SEQ, .row_bytes = 4096, .threads = 1, .bytes_per_s = { 0, 5e9, 0 }
    };
    CHECK(hwdb_begin(d, &dev, &r, NULL, &e) == 0 && hwdb_add(d, HWDB_MEMORY, &m, NULL, NULL, 0, &e) == 0);
    CHECK(hwdb_add(d, HWDB_MEMORY, &m, NULL, NULL, 0, &e) == ERR_FORMAT && strstr(e.msg, "memory"));
    hwdb_close(d); /* not committed: as if it had not been */
    CHECK(hwdb_load(path, "box", &h, &e) == 0 && hash_equal(h.hash, before));
    hw_free(&h);
    CHECK(hwdb_open(path, &d, &e) == 0 && hwdb_begin(d, &dev, &r, NULL, &e) == 0);
    CHECK(hwdb_add(d, HWDB_MEMORY, &m, NULL, NULL, 0, &e) == 0 && hwdb_commit(d, &e) == 0);
    hwdb_close(d);
    CHECK(hwdb_load(path, "box", &h, &e) == 0 && !hash_equal(h.hash, before));
    CHECK(h.n_memory == 1 && h.memory[0].bytes_per_s.p50 == 5e9 && h.n_storage == 8 && h.n_compute == 4);
    hw_free(&h);
}

static void imports(void)
{
    struct hwdb *d = NULL;
    struct hw h = { 0 };
    char **names = NULL;
    int n = 0, unchanged = -1;
    struct hw dev = device("box", HW_PUBLISHED);
    struct hwdb_run r = run("aa");
    CHECK(hwdb_open(path, &d, &e) == 0);
    CHECK(hwdb_begin(d, &dev, &r, &unchanged, &e) == ERR_MISMATCH && strstr(e.msg, "'box' was measured"));
    hwdb_close(d);
    snprintf(dev.name, sizeof dev.name, "a phone");
    for (int i = 0; i < 3; i++) {
        struct hw_memory m = { .engines = "cpu",
                               .pattern = HW_SEQ,
                               .row_bytes = 4096,
                               .threads = 6,
                               .bytes_per_s = { 0, 4e10 + i / 2, 0 },
                               .origin = HW_PUBLISHED };
        struct hw_class c = { .name = "big", .n_cores = 1, .origin = HW_PUBLISHED };
        if (i == 2)
            memcpy(c.name, "huge", 5);
        r.content_hash = i < 2 ? "aa" : "bb";
        CHECK(hwdb_open(path, &d, &e) == 0 && hwdb_begin(d, &dev, &r, &unchanged, &e) == 0 &&
              unchanged == (i == 1));
        if (!unchanged)
            CHECK(hwdb_add(d, HWDB_CORE_CLASS, &c, "src", NULL, 0, &e) == 0 && hwdb_add(d, HWDB_MEMORY, &m, "src", NULL, 0, &e) == 0 &&
                  hwdb_add_fact_source(d, "memory_bytes", HW_PUBLISHED, "src", &e) == 0 &&
                  hwdb_commit(d, &e) == 0);
        hwdb_close(d);
    }
    CHECK(hwdb_load(path, "a phone", &h, &e) == 0 && h.n_classes == 1 && !strcmp(h.classes[0].name, "huge") &&
          h.n_memory == 1 && h.memory[0].origin == HW_PUBLISHED);
    CHECK(!h.conditions[HW_MEMORY].measured_at[0]); /* entered at some time, measured at none that is known */
    hw_free(&h);
    CHECK(hwdb_list(path, &names, &n, &e) == 0 && n == 2 && !strcmp(names[0], "a phone") &&
          !strcmp(names[1], "box"));
    free(names);
    CHECK(hwdb_load(path, NULL, &h, &e) == ERR_USAGE && strstr(e.msg, "name one of: a phone, box"));
    CHECK(hwdb_load(path, "bix", &h, &e) == ERR_USAGE &&
          strstr(e.msg, "no device 'bix'; there are: a phone, box"));
}

static void stated_rates(void)
{
    struct hw h = { .n_classes = 2, .classes = { { .n_cores = 1 }, { .n_cores = 5 } } };
    struct hw_compute c[] = {
        { .core_class = 0, .kernel = "flops/int8", .threads = 1, .batch = 1, .flops_per_s = 4e10 },
        { .core_class = -1, .kernel = "flops/fp32", .threads = 6, .batch = 1, .flops_per_s = 6e10 }
    };
    h.compute = c;
    h.n_compute = 2;
    struct hw_rows w = { "rows/q4_0/q8", 0, HW_SEQ, 0, 1, 4096, 1 };
    CHECK(near(hw_row_ns(&h, &w, HW_TYPICAL), 2e9 * 4096 / 4e10));
    CHECK(near(hw_class_flops_per_s(&h, 0, "rows/f16/f32", HW_TYPICAL), 1e10));
    CHECK(near(hw_class_flops_per_s(&h, 1, "rows/q4_0/q8", HW_TYPICAL), 1e10));
    CHECK(near(hw_class_flops_per_s(&h, 0, NULL, HW_TYPICAL), 1e10));
}

/* A power law over a grid of 2 x 2 x n points, among as many of another kernel: between them it is met however many they are. */
static void crowds(void)
{
    static struct hw_compute c[2000];
    int ok = 1;
    for (int n = 2; n <= 250; n = n * 2 - n / 2) {
        struct hw h = { .compute = c };
        for (int i = 4 * n - 1; i >= 0; i--) {
            int threads = i & 1 ? 4 : 1, batch = i & 2 ? 8 : 1, len = 64 * (i / 4 + 1);
            c[h.n_compute] = (struct hw_compute){ .kernel = "rows/q8_0/q8", .threads = threads, .batch = batch, .row_len = len,
                                                  .ns_per_row = { .p50 = (double)len * batch / threads } };
            c[h.n_compute + 1] = c[h.n_compute];
            snprintf(c[h.n_compute].kernel, sizeof c[0].kernel, "rows/f16/f32");
            c[h.n_compute++].ns_per_row.p50 = 1;
            h.n_compute++;
        }
        struct hw_rows w = { "rows/q8_0/q8", 0, HW_SEQ, 0, 2, 100, 3 };
        ok &= near(hw_row_ns(&h, &w, HW_TYPICAL), 150);
    }
    CHECK(ok);
}

static int copy_to(const char *to, const char *data, size_t len)
{
    FILE *f = fopen(to, "wb");
    int ok = f && fwrite(data, 1, len, f) == len;
    return f && fclose(f) == 0 && ok;
}

/* One edit a stranger might make, and the words of the answer. */
static void strangers(const char *data, size_t len)
{
    static const struct {
        const char *sql, *words;
        int code;
    } cases[] = {
        { "PRAGMA ignore_check_constraints = 1; UPDATE storage SET bytes_per_s_p50 = -1 WHERE id = 3",
          "storage", ERR_FORMAT },
        { "UPDATE storage SET bytes_per_s_p10 = 9e999 WHERE id = 3",
          "table 'storage' row 3, column 'bytes_per_s_p10'", ERR_FORMAT },
        { "PRAGMA ignore_check_constraints = 1; UPDATE compute SET ns_per_row_p50 = NULL WHERE id = 2", "compute", ERR_FORMAT },
        { "UPDATE compute SET kernel = 'a' || char(10) WHERE id = 2",
          "table 'compute' row 2, column 'kernel'", ERR_FORMAT },
        { "UPDATE device SET description = printf('%.300c', 'x')",
          "table 'device' row 1, column 'description'", ERR_FORMAT },
        { "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'block_bytes BETWEEN 1', "
          "'block_bytes BETWEEN 0') "
          "WHERE name = 'storage'",
          "table 'storage' is not defined", ERR_FORMAT },
        { "UPDATE conditions SET marks = 'clean others'", "table 'conditions' row 1, column 'marks'", ERR_FORMAT },
        { "UPDATE conditions SET marks = ' '", "' ' is not a list of marks", ERR_FORMAT },
        { "UPDATE conditions SET others = 9e999", "column 'others'", ERR_FORMAT },
        { "UPDATE conditions SET measured_at = char(10)", "column 'measured_at'", ERR_FORMAT },
        { "DROP TABLE conditions", "table 'conditions' is missing", ERR_FORMAT },
        { "DROP TABLE calibration_term", "table 'calibration_term' is missing", ERR_FORMAT },
        { "DROP TABLE sample; CREATE VIEW sample AS SELECT 1", "table 'sample' is missing", ERR_FORMAT },
        { "PRAGMA user_version = 2", "has revision 2", ERR_UNSUPPORTED },
        { "PRAGMA user_version = -1", "revision -1", ERR_UNSUPPORTED },
        { "INSERT INTO feature VALUES ('wings')", "needs 1 features that this build lacks", ERR_UNSUPPORTED },
        { "PRAGMA application_id = 0x74686877; PRAGMA user_version = 7",
          "made by a version before 0.2.0; make it again with 'thermo-profile hardware'", ERR_UNSUPPORTED },
        { "PRAGMA application_id = 7", "is not a hardware database", ERR_FORMAT },
        { "PRAGMA foreign_keys = 0; DELETE FROM core_class WHERE name = 'little'", "is no core class",
          ERR_FORMAT },
    };
    char copy[300];
    snprintf(copy, sizeof copy, "%s/s.sqlite", dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hw h = { 0 };
        memset(&e, 0, sizeof e);
        CHECK_MSG(copy_to(copy, data, len) && edit(copy, cases[i].sql), "case %zu", i);
        int r = hwdb_load(copy, "box", &h, &e);
        CHECK_MSG(r == cases[i].code && strstr(e.msg, cases[i].words), "case %zu: %d %s", i, r, e.msg);
        hw_free(&h);
    }
    struct hw h = { 0 }; /* what does no harm */
    CHECK(copy_to(copy, data, len) &&
          edit(copy, "CREATE VIEW mine AS SELECT 1; CREATE INDEX i ON storage (direct); "
                     "CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM run; END"));
    CHECK(hwdb_load(copy, "box", &h, &e) == 0 && h.n_storage == 8);
    hw_free(&h);
    remove_file(copy);
}

/* Truncation, and a changed byte in every part: an answer or an error, never a crash. */
static void damage(const char *data, size_t len)
{
    char copy[300], *bent = malloc(len);
    int refused = 0, read = 0, named = 1;
    snprintf(copy, sizeof copy, "%s/d.sqlite", dir);
    if (!bent)
        return;
    for (size_t i = 0; i < 120; i++) {
        struct hw h = { 0 };
        size_t cut = i < 40 ? len * i / 40 : len;
        memcpy(bent, data, len);
        if (i >= 40)
            for (size_t k = (i - 40) * 97; k < len; k += 8111)
                bent[k] = (char)~bent[k];
        memset(&e, 0, sizeof e);
        if (!copy_to(copy, bent, cut))
            break;
        int r = hwdb_load(copy, "box", &h, &e);
        refused += r < 0;
        read += r == 0;
        named &=
            r == 0 ||
            (strstr(e.msg, "d.sqlite") && r == e.code &&
             (r == ERR_FORMAT || r == ERR_UNSUPPORTED || r == ERR_LIMIT || r == ERR_USAGE || r == ERR_INPUT));
        if (r < 0 && !named)
            printf("# %zu: %d %s\n", i, r, e.msg);
        hw_free(&h);
    }
    CHECK(refused + read == 120 && refused > 100 && named);
    printf("# %d refused, %d read\n", refused, read);
    free(bent);
    remove_file(copy);
}

static void not_databases(void)
{
    char other[300];
    struct hwdb *d = NULL;
    struct hw h = { 0 };
    snprintf(other, sizeof other, "%s/o.sqlite", dir);
    CHECK(hwdb_load(other, NULL, &h, &e) == ERR_INPUT && strstr(e.msg, "o.sqlite"));
    CHECK(hwdb_load(dir, NULL, &h, &e) == ERR_INPUT);
    CHECK(copy_to(other, "hello, hello, hello", 19) && hwdb_load(other, NULL, &h, &e) == ERR_FORMAT);
    CHECK(hwdb_open(other, &d, &e) == ERR_FORMAT && strstr(e.msg, "not a SQLite database"));
    CHECK(copy_to(other, "", 0) && hwdb_load(other, NULL, &h, &e) == ERR_FORMAT);
    struct hw dev = device("new", HW_MEASURED);
    struct hwdb_run r = run(NULL);
    CHECK(hwdb_open(other, &d, &e) == 0 && hwdb_begin(d, &dev, &r, NULL, &e) == 0 && hwdb_commit(d, &e) == 0);
    hwdb_close(d);
    CHECK(hwdb_load(other, "new", &h, &e) == 0); /* an empty file becomes one */
    hw_free(&h);
    remove_file(other);
    CHECK(edit(other, "CREATE TABLE mine (x)") && hwdb_open(other, &d, &e) == ERR_FORMAT);
    remove_file(other);
    CHECK(hwdb_open(other, &d, &e) == 0);
    hwdb_close(d);
    CHECK(access(other, F_OK) != 0); /* nothing begun, nothing made */
    snprintf(other, sizeof other, "%s/no/o.sqlite", dir);
    CHECK(hwdb_open(other, &d, &e) == ERR_SYS);
}

/* While one handle is ready to write, as during a long measurement, another program enters a device; what the first
 * does then, giving up or writing, takes nothing away. */
static void two_writers(void)
{
    char other[300];
    struct hwdb *waiting = NULL, *quick = NULL;
    struct hw phone = device("a phone", HW_PUBLISHED), box = device("box", HW_MEASURED);
    struct hwdb_run r = run("aa"), r2 = run(NULL);
    struct hw h = { 0 };
    char **names = NULL;
    int n = 0;
    snprintf(other, sizeof other, "%s/two.sqlite", dir);
    for (int writes = 0; writes < 2; writes++) {
        CHECK(hwdb_open(other, &waiting, &e) == 0 && hwdb_open(other, &quick, &e) == 0);
        CHECK(hwdb_begin(quick, &phone, &r, NULL, &e) == 0);
        hwdb_wait(waiting, 0.01);
        CHECK(hwdb_begin(waiting, &box, &r2, NULL, &e) == ERR_SYS && strstr(e.msg, "two.sqlite") && strstr(e.msg, "locked"));
        struct hwdb_calibration c = { .device = "a phone", .created_at = "2024-11-22T10:00:00Z", .tool_version = "t", .model = "m",
                                      .runs = 1, .term_runs = { 1 }, .factor = { { 1, 1, 1 } } };
        CHECK(hwdb_add_calibration(waiting, &c, &e) == ERR_SYS && strstr(e.msg, "locked"));
        CHECK(hwdb_commit(quick, &e) == 0);
        if (writes)
            CHECK_MSG(hwdb_begin(waiting, &box, &r2, NULL, &e) == 0 && hwdb_commit(waiting, &e) == 0, "%s", e.msg);
        hwdb_close(waiting);
        hwdb_close(quick);
        CHECK(hwdb_load(other, "a phone", &h, &e) == 0);
        hw_free(&h);
        CHECK(hwdb_list(other, &names, &n, &e) == 0 && n == 1 + writes);
        free(names);
        remove_file(other);
    }
    CHECK(hwdb_open(other, &quick, &e) == 0 && hwdb_begin(quick, &phone, &r, NULL, &e) == 0 && hwdb_commit(quick, &e) == 0);
    hwdb_close(quick);
    CHECK(hwdb_check_device(other, "a phone", 0, &e) == ERR_MISMATCH && strstr(e.msg, "imported figures"));
    CHECK(hwdb_check_device(other, "a phone", 1, &e) == 0 && hwdb_check_device(other, "box", 0, &e) == 0);
    remove_file(other);
}

/* Two devices between one begin and one commit: both or none. */
static void one_transaction(void)
{
    char other[300];
    struct hwdb *d = NULL;
    struct hw a = device("a", HW_PUBLISHED), b = device("b", HW_PUBLISHED);
    struct hwdb_run r = run("aa");
    char **names = NULL;
    int n = 0, unchanged = 0;
    snprintf(other, sizeof other, "%s/one.sqlite", dir);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(hwdb_open(other, &d, &e) == 0 && hwdb_begin(d, &a, &r, &unchanged, &e) == 0 && !unchanged);
        CHECK(hwdb_begin(d, &b, &r, &unchanged, &e) == 0 && !unchanged && (!commits || hwdb_commit(d, &e) == 0));
        hwdb_close(d);
        CHECK((hwdb_list(other, &names, &n, &e) == 0) == commits && (!commits || n == 2));
        free(names);
        names = NULL;
    }
    CHECK(hwdb_open(other, &d, &e) == 0 && hwdb_begin(d, &a, &r, &unchanged, &e) == 0 && unchanged);
    CHECK(hwdb_commit(d, &e) == 0); /* nothing to do */
    hwdb_close(d);
    remove_file(other);
}

/* A reader sees one moment, while another process replaces the device again and again. */
static void replaced_while_read(void)
{
    enum { POINTS = 300 };
    char other[300];
    struct hw dev = device("a phone", HW_PUBLISHED);
    int whole = 1;
    snprintf(other, sizeof other, "%s/r.sqlite", dir);
    pid_t pid = fork();
    for (int i = 0; i < 60 && pid == 0; i++) {
        struct hwdb *d = NULL;
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        struct hwdb_run r = run(text);
        struct hw_memory m = { .engines = "cpu", .pattern = HW_SEQ, .threads = 6, .bytes_per_s = { 0, 1e9 + i, 0 },
                               .origin = HW_PUBLISHED };
        struct hw_storage p = read_point(HW_SEQ, 4096, 1, 1, 1 << 20, -1, 1e9 + i);
        int bad = hwdb_open(other, &d, &e) != 0 || hwdb_begin(d, &dev, &r, NULL, &e) != 0;
        for (m.row_bytes = 1; m.row_bytes <= POINTS && !bad; m.row_bytes++)
            bad = hwdb_add(d, HWDB_MEMORY, &m, "src", NULL, 0, &e) != 0;
        if (bad || hwdb_add(d, HWDB_STORAGE, &p, "src", NULL, 0, &e) != 0 || hwdb_commit(d, &e) != 0)
            _exit(1);
        hwdb_close(d);
    }
    if (pid == 0)
        _exit(0);
    int status = -1, loads = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct hw h = { 0 };
        struct stat st;
        if (stat(other, &st) != 0 || st.st_size == 0)
            continue;
        int r = hwdb_load(other, "a phone", &h, &e);
        whole &= (r == 0 && h.n_memory == POINTS && h.n_storage == 1 &&
                  h.memory[POINTS - 1].bytes_per_s.p50 == h.storage_points[0].bytes_per_s.p50) ||
                 (r < 0 && loads == 0); /* before the first commit there is no table */
        loads += r == 0;
        if (!whole)
            printf("# %s\n", r < 0 ? e.msg : "rows of two moments");
        hw_free(&h);
        if (!whole)
            break;
    }
    if (!whole)
        waitpid(pid, &status, 0);
    CHECK(whole && status == 0);
    remove_file(other);
}

static void summaries(void)
{
    double v[] = { 5, 1, 4, 2, 3 }, one[] = { 7 };
    struct hw_dist a = hw_dist_of(v, 5), b = hw_dist_of(one, 1);
    CHECK(near(a.p10, 1.4) && near(a.p50, 3) && near(a.p90, 4.6) && b.p10 == 7 && b.p90 == 7);
}

static struct hwdb_calibration taught(const struct hw *h, double attention, double io)
{
    struct hwdb_calibration c = { .device = "box", .created_at = "2024-11-22T10:00:00Z", .tool_version = "t",
                                  .model = "m", .hardware_hash = h->hash, .plan_hash = hash_128("p", 1), .runs = 3 };
    c.term_runs[HW_ATTENTION] = attention > 0 ? 3 : 0;
    c.factor[HW_ATTENTION] = (struct hw_dist){ attention, attention, attention * 1.5 };
    c.term_runs[HW_IO] = 2;
    c.factor[HW_IO] = (struct hw_dist){ io / 2, io, io };
    return c;
}

static int store(const struct hwdb_calibration *c)
{
    struct hwdb *d;
    int r = hwdb_open(path, &d, &e);
    if (r < 0)
        return r;
    r = hwdb_add_calibration(d, c, &e);
    hwdb_close(d);
    return r;
}

/* Corrections: the newest of these very figures, or the one that a hash names; nothing else in the file changes. */
static void corrections(void)
{
    struct hw raw = { 0 }, h = { 0 }, first;
    CHECK(hwdb_load(path, "box", &raw, &e) == 0);
    h = raw;
    CHECK(hwdb_correct(path, NULL, &h, &e) == 0 && h.calibration == 0 && hash_equal(h.hash, raw.hash));
    CHECK(hw_correction(&h, HW_IO) == 1);
    struct hwdb_calibration c = taught(&raw, 1.25, 2);
    CHECK_MSG(store(&c) == 0, "%s", e.msg);
    CHECK(hwdb_correct(path, NULL, &h, &e) == 1 && h.calibration == 1 && !hash_equal(h.hash, raw.hash));
    CHECK(h.correction[HW_ATTENTION] == 1.25 && h.correction[HW_IO] == 2 && h.correction[HW_FFN] == 0);
    first = h;
    c = taught(&raw, 0, 3);
    CHECK(store(&c) == 0);
    c.hardware_hash = hash_128("other figures", 13);
    CHECK(store(&c) == 0);
    h = raw;
    CHECK(hwdb_correct(path, NULL, &h, &e) == 1 && h.calibration == 2 && h.correction[HW_IO] == 3 &&
          hw_correction(&h, HW_ATTENTION) == 1);
    h = raw;
    CHECK(hwdb_correct(path, &first.hash, &h, &e) == 1 && h.calibration == 1 && hash_equal(h.hash, first.hash));
    h = raw;
    c.plan_hash = hash_128("none", 4);
    CHECK(hwdb_correct(path, &c.plan_hash, &h, &e) == 0 && h.calibration == 0);
    c = taught(&raw, 1, 1);
    c.device = "nobody";
    CHECK(store(&c) == ERR_USAGE && strstr(e.msg, "no device 'nobody'"));
    c = taught(&raw, 1, -1);
    CHECK(store(&c) == ERR_FORMAT);
    CHECK(edit(path, "PRAGMA ignore_check_constraints = 1; UPDATE calibration_term SET factor_p50 = -2"));
    h = raw;
    CHECK(hwdb_correct(path, NULL, &h, &e) == ERR_FORMAT && strstr(e.msg, "calibration_term"));
    CHECK(hwdb_load(path, "box", &h, &e) == 0 && hash_equal(h.hash, raw.hash));
    hw_free(&h);
    hw_free(&raw);
}

/* What may be unknown of a read and of an accelerator: nothing then, else the figure; each its own share of the identity, so that two
 * figures never stand for each other. */
static void optional(const struct hash128 *want)
{
    static const char *const sets[] = { "storage SET batch_completion_share = 0.75", "storage SET uncached_destination_ratio = 0.75",
                                        "storage SET page_bytes = 4096 << (id % 2)", "accelerator SET driver_bytes = 4096" };
    static const char *const nulls[] = { "storage SET batch_completion_share = NULL", "storage SET uncached_destination_ratio = NULL",
                                         "storage SET page_bytes = NULL", "accelerator SET driver_bytes = NULL" };
    static const char *const bad[] = { "storage SET batch_completion_share = 1.5", "storage SET uncached_destination_ratio = 5",
                                       "storage SET page_bytes = 0", "accelerator SET driver_bytes = 0" };
    const struct hw_read q = { .backend = HW_URING, .pattern = HW_RANDOM, .block_bytes = 4096, .queue_depth = 32, .lanes = 1,
                               .core_class = -1 };
    struct hash128 hashes[5] = { *want };
    struct hw h = { 0 };
    char sql[100];
    int twice = 0;
    CHECK(edit(path, "DELETE FROM calibration_term"));
    for (int i = 0; i < 4; i++) {
        snprintf(sql, sizeof sql, "UPDATE %s", sets[i]);
        CHECK(edit(path, sql));
        CHECK_MSG(hwdb_load(path, "box", &h, &e) == 0, "%s", e.msg);
        hashes[i + 1] = h.hash;
        CHECK(fabs(hw_storage_together(&h, &q) - (i == 0 ? 0.75 : 0)) < 1e-9 &&
              fabs(hw_storage_slots(&h, &q) - (i == 1 ? 0.75 : 1)) < 1e-9 &&
              hw_storage_page_bytes(&h) == (i == 2 ? 4096 : 0) && h.accels[0].driver_bytes == (i == 3 ? 4096 : 0) &&
              hw_storage_bytes_per_s(&h, &q, HW_TYPICAL) > 0);
        hw_free(&h);
        snprintf(sql, sizeof sql, "UPDATE %s", bad[i]);
        CHECK(!edit(path, sql));
        snprintf(sql, sizeof sql, "UPDATE %s", nulls[i]);
        CHECK(edit(path, sql));
    }
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            twice += hash_equal(hashes[i], hashes[k]);
    CHECK(twice == 0);
    CHECK(hwdb_load(path, "box", &h, &e) == 0 && hash_equal(h.hash, *want));
    hw_free(&h);
}

/* One item of every table, each field with a value of its own; the n-th field of all has another one, or nothing where that may be. */
static int fill(const struct hwdb_table *t, void *item, int n)
{
    char text[HW_NAME];
    for (int i = 0; i < t->n; i++, n--) {
        const struct hwdb_field *f = &t->fields[i];
        int other = n == 0, none = other && !(f->flags & HWDB_NEED) && strcmp(f->column, "ns_per_row_p50"), last = 0;
        while (f->names && *hwdb_choice(f, last + 1, text))
            last++;
        if (f->type == HWDB_TEXT)
            snprintf(hwdb_at(f, item), f->size, "%s", none ? "" : other ? "x" : f->column);
        else if (f->type == HWDB_REAL)
            *(double *)hwdb_at(f, item) = none ? 0 : other ? 0.875 : (i + 1) / 64.;
        else if (f->type == HWDB_MARKS)
            ((struct hw_conditions *)item)->watched = 1, ((struct hw_conditions *)item)->marks = other ? 2 : 5;
        else if (f->type == HWDB_CHOICE)
            hwdb_set(f, item, other ? 0 : last);
        else if (f->type == HWDB_CLASS)
            hwdb_set(f, item, other ? -1 : 0);
        else if (f->type == HWDB_INTEGER)
            hwdb_set(f, item, none ? 0 : f->max == 1 ? !other : f->min + i + 2 * other);
    }
    return n;
}

static int same_item(const struct hwdb_table *t, const void *a, const void *b)
{
    int same = 1;
    for (int i = 0; i < t->n; i++) {
        const struct hwdb_field *f = &t->fields[i];
        same &= f->type == HWDB_TEXT ? !strcmp(hwdb_at(f, a), hwdb_at(f, b)) : !memcmp(hwdb_at(f, a), hwdb_at(f, b), f->size);
    }
    return same;
}

static int store_all(const char *to, const struct hw *h)
{
    struct hwdb *d = NULL;
    struct hwdb_run r = run("aa");
    int bad = hwdb_open(to, &d, &e) < 0 || hwdb_begin(d, h, &r, NULL, &e) < 0, n;
    for (int k = HWDB_CORE_CLASS; k < HWDB_KINDS && !bad; k++)
        bad = hwdb_add(d, (enum hwdb_kind)k, hwdb_items(h, (enum hwdb_kind)k, &n), "src", NULL, 0, &e) < 0;
    bad = bad || hwdb_commit(d, &e) < 0;
    hwdb_close(d);
    return bad;
}

/* The names that programs use are those of the file. */
static void names(void)
{
    static const enum hwdb_kind kinds[] = { HWDB_STORAGE, HWDB_STORAGE, HWDB_CORE_CLASS, HWDB_CONDITIONS };
    static const char *const columns[] = { "backend", "pattern", "origin", "table_name" };
    for (int c = 0; c < 4; c++) {
        const struct hwdb_table *t = hwdb_table(kinds[c]);
        const struct hwdb_field *f = t->fields;
        char text[HW_NAME];
        int n = 0;
        while (strcmp(f->column, columns[c]))
            f++;
        for (; *hwdb_choice(f, n, text); n++)
            CHECK(!strcmp(text, c == 0 ? hw_backend_name((enum hw_backend)n) : c == 1 ? hw_pattern_name((enum hw_pattern)n) :
                                c == 2 ? hw_origin_name((enum hw_origin)n) : hw_table_name((enum hw_table)n)) &&
                  hwdb_choice_of(f, text) == n);
        CHECK(n == (c == 2 ? 3 : c == 3 ? HW_TABLES : 2) && hwdb_choice_of(f, "neither") < 0);
    }
}

/* Of every field: what is written is read back, and a device with another value there is another one, but for notes. */
static void every_field(void)
{
    char other[300];
    struct hash128 first = { 0, 0 };
    int total = 0, n, kinds = 0;
    snprintf(other, sizeof other, "%s/f.sqlite", dir);
    for (int k = 0; k < HWDB_KINDS; k++)
        total += hwdb_table((enum hwdb_kind)k)->n;
    for (int v = -1; v < total; v++) {
        struct hw h = { .n_classes = 1, .n_compute = 1, .n_memory = 1, .n_storage = 1, .n_accels = 1, .n_accel_points = 1, .n_joint = 1 },
                  got = { 0 };
        struct hw_compute compute = { .core_class = 0 };
        struct hw_memory memory = { .threads = 0 };
        struct hw_storage storage = { .core_class = 0 };
        struct hw_accel accel = { .launch_ns = 0 };
        struct hw_accel_point point = { .accel = 0 };
        struct hw_joint joint = { .threads = 0 };
        const struct hwdb_field *f = NULL;
        h.compute = &compute, h.memory = &memory, h.storage_points = &storage, h.accels = &accel, h.accel_points = &point, h.joint = &joint;
        for (int k = 0, left = v; k < HWDB_KINDS; k++) {
            const struct hwdb_table *t = hwdb_table((enum hwdb_kind)k);
            f = left >= 0 && left < t->n ? &t->fields[left] : f;
            fill(t, (void *)hwdb_items(&h, (enum hwdb_kind)k, &n), left);
            left = left < 0 ? -1 : left - t->n;
        }
        h.conditions[0].table = HW_STORAGE;
        memset(&e, 0, sizeof e);
        CHECK_MSG(store_all(other, &h) == 0 && hwdb_load(other, NULL, &got, &e) == 0, "%s: %s", f ? f->column : "all", e.msg);
        h.conditions[HW_STORAGE] = h.conditions[0];
        for (int k = 0; k < HWDB_KINDS && e.code == 0; k++) {
            const struct hwdb_table *t = hwdb_table((enum hwdb_kind)k);
            size_t at = k == HWDB_CONDITIONS ? HW_STORAGE * sizeof h.conditions[0] : 0;
            const char *a = hwdb_items(&h, (enum hwdb_kind)k, &n), *b = hwdb_items(&got, (enum hwdb_kind)k, &n);
            kinds += same_item(t, a + at, b + at);
        }
        if (v < 0)
            first = got.hash;
        else
            CHECK_MSG(f && hash_equal(first, got.hash) == (f->flags & HWDB_NOTE || f->type == HWDB_ACCEL ||
                                                           !strcmp(f->column, "table_name")), "%s", f ? f->column : "?");
        hw_free(&got);
        remove_file(other);
    }
    CHECK_MSG(kinds == (total + 1) * HWDB_KINDS, "%d of %d", kinds, (total + 1) * HWDB_KINDS);
}

/* Points that lie by kernel give the same answers as where all are looked at: kernels that are measured, names before, between and behind
 * them, which a stated rate answers for. */
static void by_kernel(void)
{
    static const char *const names[] = { "axpy/f16", "flops/fp32", "rows/f16/f32", "rows/q4_0/q8", "work/start" };
    static const char *const asked[] = { "a", "axpy/f16", "axpy/f32", "rows/f16/f32", "rows/q4_0", "rows/q4_0/q8", "rows/q8_0/q8",
                                         "work/start", "work/turn", "zzz" };
    struct hw_compute c[60];
    struct hw h = { .compute = c, .n_compute = 60, .n_classes = 1, .classes = { { .n_cores = 4 } } };
    int other = 0, some = 0;
    for (int i = 0; i < 60; i++) {
        c[i] = (struct hw_compute){ .core_class = i % 3 - 1, .pattern = (enum hw_pattern)(i / 3 % 2), .dram = i / 6 % 2, .threads = 1,
                                    .row_len = 256, .batch = 1, .ns_per_row = { 90 + i, 100 + i, 110 + i }, .flops_per_s = 1e9 + i };
        snprintf(c[i].kernel, sizeof c[i].kernel, "%s", names[i / 12]);
    }
    for (int i = 0; i < (int)(sizeof asked / sizeof asked[0]); i++)
        for (int k = 0; k < 12; k++) {
            struct hw_rows q = { .kernel = asked[i], .core_class = k % 3 - 1, .pattern = (enum hw_pattern)(k / 3 % 2), .dram = k / 6,
                                 .threads = 1, .batch = 1, .row_len = 300 };
            double all[4], near[4];
            for (h.by_kernel = 0; h.by_kernel < 2; h.by_kernel++) {
                double *v = h.by_kernel ? near : all;
                v[0] = hw_row_ns(&h, &q, HW_TYPICAL);
                v[1] = hw_work_ns(&h, asked[i], q.core_class, 1, 256, HW_TYPICAL);
                v[2] = hw_fetched_tokens(&h, asked[i], q.pattern, 256, 4);
                v[3] = hw_class_flops_per_s(&h, q.core_class, asked[i], HW_TYPICAL);
            }
            other += memcmp(all, near, sizeof all) != 0;
            some += all[0] > 0;
        }
    CHECK_MSG(other == 0 && some == 12 * 10, "%d differ, %d known", other, some);
}

/* A loaded device's reads are looked for among those of their backend and pattern: the answers are those of all points. */
static void by_reads(const struct hw *h)
{
    struct hw all = *h;
    int other = 0, some = 0;
    memset(all.reads_first, 0, sizeof all.reads_first);
    memset(all.reads_end, 0, sizeof all.reads_end);
    for (int backend = HW_ANY_BACKEND; backend <= HW_URING; backend++)
        for (int pattern = HW_SEQ; pattern <= HW_RANDOM; pattern++)
            for (int k = 0; k < 24; k++) {
                struct hw_read q = { .backend = (enum hw_backend)backend, .pattern = (enum hw_pattern)pattern,
                                     .block_bytes = 4096u << k % 4, .queue_depth = 1 << k / 4 % 2, .lanes = 1 + k / 8,
                                     .core_class = k / 8 - 1 };
                double a = hw_storage_bytes_per_s(&all, &q, HW_TYPICAL), b = hw_storage_bytes_per_s(h, &q, HW_TYPICAL);
                other += memcmp(&a, &b, sizeof a) != 0;
                some += a > 0;
            }
    CHECK_MSG(other == 0 && some > 0, "%d differ, %d known", other, some);
}

/* Times as texts, in both directions: days of common and leap years, the first and the last second of each. */
static void times(void)
{
    char text[HW_TIME];
    int bad = 0;
    for (int64_t t = 0; t < 4102444800; t += 86399)
        hw_time_text(t, text), bad += hw_time_of(text) != t;
    CHECK(bad == 0);
    hw_time_text(1709164800, text);
    CHECK_MSG(strcmp(text, "2024-02-29T00:00:00Z") == 0, "%s", text);
}

int main(void)
{
    struct hwdb *d = NULL;
    struct hw h = { 0 }, again = { 0 };
    char *data = NULL;
    size_t len = 0;
    times();
    test_path(dir, sizeof dir, "hwdbXXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/hw.sqlite", dir);
    CHECK(hwdb_open(path, &d, &e) == 0);
    CHECK_MSG(write_first(d) == 0, "%s", e.msg);
    hwdb_close(d);
    CHECK_MSG(hwdb_load(path, NULL, &h, &e) == 0, "%s", e.msg);
    CHECK(!strcmp(h.name, "box") && h.memory_bytes == 8ull << 30 && h.n_classes == 2 &&
          h.classes[1].n_cores == 4);
    CHECK(h.n_compute == 4 && h.n_memory == 2 && h.n_storage == 8 && h.n_accels == 1 &&
          h.n_accel_points == 1);
    CHECK(!strcmp(h.compute[0].kernel, "rows/q4_0/q8") && h.compute[3].core_class == 1 &&
          h.accels[0].shares_memory);
    CHECK(hwdb_load(path, "box", &again, &e) == 0 && hash_equal(h.hash, again.hash));
    hw_free(&again);
    questions(&h);
    by_reads(&h);
    conditions(&h);
    monotone(&h);
    CHECK(file_slurp(path, 1 << 24, &data, &len, &e) == 0);
    if (data) {
        strangers(data, len);
        damage(data, len);
    }
    free(data);
    corrections();
    optional(&h.hash);
    second_run(h.hash);
    hw_free(&h);
    imports();
    stated_rates();
    names();
    every_field();
    by_kernel();
    crowds();
    not_databases();
    two_writers();
    one_transaction();
    replaced_while_read();
    summaries();
    remove_file(path);
    CHECK(rmdir(dir) == 0);
    return test_done();
}
