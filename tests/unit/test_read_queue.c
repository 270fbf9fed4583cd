/* The read queue without an engine: what is cached, which units one read brings, where their bytes end up, what is verified, and
 * what happens when the storage fails. */
#include "runtime/pipeline/read_queue.h"

#include "tests/pipeline_sample.h"

#include <errno.h>
#include <fcntl.h>

struct queue {
    struct pipeline_sample s;
    struct block b;
    struct entry entries[PS_FF];
    struct read_queue *q;
    struct list *l;
};

static struct queue t;

/* A list of units of the part that holds Down, of layer 1, block 1. */
static void begin(struct pipeline_sample wanted)
{
    t = (struct queue){ .s = wanted };
    t.s.threads = 1, t.s.tokens = 1;
    ps_open(&t.s);
    t.q = read_queue_new(&t.s.c, &t.s.e);
    t.b = (struct block){ .c = &t.s.c, .layer = 1, .block = 1, .shape = &t.s.c.shapes->kind[0] };
    t.l = &t.b.list[LIST_NEURON];
    *t.l = (struct list){ .of = &t.b, .part = t.s.c.shapes->kind[0].n_parts - 1, .e = t.entries, .cap = PS_FF,
                          .known_to = UINT32_MAX };
    read_queue_rule(t.q, t.l);
}

static void end(void)
{
    ps_close(&t.s);
    read_queue_free(t.q);
}

static const struct layout_part *part(void)
{
    return &t.s.c.shapes->kind[0].part[t.l->part];
}

/* Appends a unit; 1: it is cached. */
static int want(uint32_t unit)
{
    struct entry *e = &t.l->e[t.l->n++];
    *e = (struct entry){ .pos0 = unit * part()->neurons_per_unit, .unit = unit,
                         .n = (uint16_t)layout_unit_neurons(&t.s.c.shapes->kind[0], part(), unit) };
    return read_queue_lookup(t.q, t.l, e);
}

static int issue(uint32_t most, int *pressure)
{
    struct list *lists[] = { t.l };
    return read_queue_issue(t.q, lists, 1, most, pressure, &t.s.e);
}

/* Entries that have arrived, until none is in flight; -1 on an error. */
static int collect_all(void)
{
    struct read_arrival came[READ_QUEUE_BATCH];
    int n = 0, r, more, before;
    while ((before = read_queue_in_flight(t.q)) > 0) {
        if ((r = read_queue_collect(t.q, 1, came, &more, &t.s.e)) < 0)
            return -1;
        int taken = before - read_queue_in_flight(t.q);
        uint64_t most = READ_QUEUE_BATCH * (uint64_t)part()->read_bytes; /* of single units */
        CHECK(taken >= 1 && taken <= READ_QUEUE_BATCH && (!more || taken == READ_QUEUE_BATCH || most > READ_QUEUE_BATCH_BYTES));
        for (int i = 0; i < r; i++)
            for (uint32_t k = came[i].first; k < came[i].first + came[i].n; k++)
                n += t.l->e[k].kind == KIND_ADMITTED || t.l->e[k].kind == KIND_STAGED;
    }
    return n;
}

static int right(const struct entry *e)
{
    return e->base && !memcmp(e->base, ps_record(&t.s, t.b.layer, t.b.block, t.l->part, e->pos0),
                              (size_t)e->n * part()->record_bytes);
}

static int all_right(enum kind kind)
{
    int ok = 1;
    for (uint32_t i = 0; i < t.l->n; i++)
        ok &= t.l->e[i].kind == kind && right(&t.l->e[i]);
    return ok;
}

static void release_all(void)
{
    for (uint32_t i = 0; i < t.l->n; i++)
        read_queue_release(t.q, t.l, &t.l->e[i]);
    t.l->n = t.l->issue = 0;
}

/* Without a cache an entry keeps its buffer; with none free reads wait, in list order, until one is released. */
static void test_buffers(enum layout_form form)
{
    begin((struct pipeline_sample){ .form = form, .depth = 2 });
    int pressure = 0;
    for (uint32_t u = 0; u + 1 < part()->n_units && u < 20; u += 5)
        CHECK(want(u) == 0);
    uint32_t n = t.l->n;
    CHECK(n == 4 && issue(UINT32_MAX, &pressure) == 0 && pressure && t.s.c.io->reads == 2);
    CHECK(t.l->issue == 2 && t.l->e[1].kind == KIND_READING && t.l->e[2].kind == KIND_MISSING);
    CHECK(collect_all() == 2 && right(&t.l->e[0]) && right(&t.l->e[1]) && t.l->e[0].kind == KIND_STAGED);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && pressure && t.s.c.io->reads == 2);
    read_queue_release(t.q, t.l, &t.l->e[0]);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && pressure && collect_all() == 1 && right(&t.l->e[2]) && right(&t.l->e[1]));
    read_queue_release(t.q, t.l, &t.l->e[1]);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && !pressure && collect_all() == 1 && right(&t.l->e[3]));
    CHECK(t.s.c.io->reads == 4);
    end();
}

/* Neighbours come in one read, and a staged buffer is free again only with its last entry. */
static void test_neighbours(void)
{
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 1 });
    int pressure;
    for (uint32_t u = 7; u < 12; u++)
        want(u);
    want(30);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && pressure && t.s.c.io->reads == 1 && t.l->issue == 5);
    CHECK(collect_all() == 5 && right(&t.l->e[0]) && right(&t.l->e[4]));
    for (int i = 0; i < 4; i++)
        read_queue_release(t.q, t.l, &t.l->e[i]);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && pressure && t.s.c.io->reads == 1);
    read_queue_release(t.q, t.l, &t.l->e[4]);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && !pressure && collect_all() == 1 && right(&t.l->e[5]));
    end();
}

/* `most` bounds reads in flight. */
static void test_most(void)
{
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 8 });
    int pressure;
    for (uint32_t u = 0; u < 60; u += 10)
        want(u);
    CHECK(issue(3, &pressure) == 0 && !pressure && read_queue_in_flight(t.q) == 3 && read_queue_reads(t.q) == 3);
    CHECK(issue(3, &pressure) == 0 && read_queue_in_flight(t.q) == 3);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && read_queue_in_flight(t.q) == 6 && read_queue_reads(t.q) == 6);
    CHECK(collect_all() == 6 && all_right(KIND_STAGED));
    end();
}

/* Read once, copied to a slot, the buffer free at once; pinned until released, and there in the next pass. */
static void test_cache(void)
{
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 1, .slots = 4 });
    uint64_t lookups, hits;
    int pressure;
    for (uint32_t u = 0; u < 30; u += 10) {
        want(u);
        CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 1);
    }
    CHECK(all_right(KIND_ADMITTED) && t.s.c.io->reads == 3);
    want(40);
    want(50); /* one slot is left, for the four others are pinned */
    CHECK(issue(UINT32_MAX, &pressure) == 0 && pressure && collect_all() == 1);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && !pressure && collect_all() == 1);
    CHECK(t.l->e[3].kind == KIND_ADMITTED && t.l->e[4].kind == KIND_STAGED && right(&t.l->e[3]) && right(&t.l->e[4]));
    release_all();
    CHECK(want(0) && want(10) && want(20) && want(40) && !want(50));
    CHECK(t.l->e[0].kind == KIND_CACHED && right(&t.l->e[0]) && t.s.c.io->reads == 5);
    release_all();
    read_queue_gates(t.q, &lookups, &hits);
    CHECK(lookups == 10 && hits == 4);
    /* another layer and another block have other units */
    t.b.layer = 0;
    CHECK(!want(0));
    t.b.layer = 1, t.b.block = 0;
    CHECK(!want(10));
    end();
}

static int calls;

static int hurt(void *ctx, const struct io_request *r, int result)
{
    (void)ctx, (void)r;
    return ++calls % 3 == 1 ? -EINTR : calls % 3 == 2 && result > 512 ? 512 : result;
}

/* Where slots and units are whole blocks, what is read alone is admitted when it is asked for, and read into its slot; what shares a
 * read, and what finds every slot pinned, comes by a buffer. */
static void test_direct(void)
{
    begin((struct pipeline_sample){ .form = LAYOUT_SPLIT, .depth = 2, .slots = 3, .padded = 1 });
    const struct cache *cache = t.s.caches[1 * 2 + 1];
    int pressure;
    CHECK(budget_reads_into_slots(&t.s.c.shapes->kind[0], 1) && part()->unit_bytes == PS_BLOCK_BYTES && t.l->direct);
    want(10), want(20), want(30), want(40);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && pressure && read_queue_in_flight(t.q) == 2);
    CHECK(cache_unit(cache, 0) == part()->n_units + 10 && cache_unit(cache, 1) == part()->n_units + 20 && cache_stats(cache).hits == 0);
    CHECK(collect_all() == 2 && all_right(KIND_ADMITTED) == 0 && t.l->e[0].kind == KIND_ADMITTED && right(&t.l->e[0]) && right(&t.l->e[1]));
    CHECK(t.l->e[0].base == t.s.c.cold + t.s.cold_at[3] && t.l->e[1].base == t.l->e[0].base + PS_BLOCK_BYTES);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && !pressure && collect_all() == 2); /* buffers were free at once */
    CHECK(t.l->e[2].kind == KIND_ADMITTED && right(&t.l->e[2]) && t.l->e[3].kind == KIND_STAGED && right(&t.l->e[3]));
    CHECK(cache_stats(cache).refused == 1 && t.s.c.io->reads == 4);
    release_all();
    want(50), want(51);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && t.s.c.io->reads == 5 && collect_all() == 2 && all_right(KIND_ADMITTED)); /* by one read */
    CHECK(cache_stats(cache).evictions == 2 && cache_stats(cache).refused == 1);
    release_all();
    CHECK(want(50) && want(30) && !want(10) && right(&t.l->e[0]) && right(&t.l->e[1]));
    end();
    begin((struct pipeline_sample){ .form = LAYOUT_SPLIT, .depth = 2, .slots = 3, .padded = 1, .fault = hurt });
    want(10), want(20);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 2 && all_right(KIND_ADMITTED));
    end();
}

/* What is not wanted again soon drives nothing out, and is the first to go where it was found. */
static void test_passing(void)
{
    begin((struct pipeline_sample){ .form = LAYOUT_SPLIT, .depth = 4, .slots = 2, .padded = 1 });
    const struct cache *cache = t.s.caches[1 * 2 + 1];
    int pressure;
    t.b.passing = 1; /* into free slots */
    want(10), want(20);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 2 && all_right(KIND_ADMITTED));
    release_all(); /* the last one that is released is the first to go */
    want(30);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 1 && all_right(KIND_STAGED) && cache_stats(cache).evictions == 0);
    release_all();
    CHECK(want(10) && all_right(KIND_CACHED));
    release_all();
    t.b.passing = 0;
    want(30);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 1 && all_right(KIND_ADMITTED) && cache_stats(cache).evictions == 1);
    release_all();
    CHECK(want(20) && !want(10));
    end();
}

/* Where a plan has joins, one read goes through gaps; what arrives unasked is dropped; and what the list may still get is
 * waited for. */
static void test_gaps(void)
{
    begin((struct pipeline_sample){ .form = LAYOUT_TWO_PHASE, .depth = 4, .slots = 1, .n_coalesce = 1 });
    uint32_t most = t.l->rule.most;
    int pressure;
    CHECK(most >= 4);
    want(0), want(2), want(3);
    t.l->known_to = most - 1;
    CHECK(issue(UINT32_MAX, &pressure) == 0 && !pressure && t.s.c.io->reads == 0);
    t.l->known_to = most;
    CHECK(issue(UINT32_MAX, &pressure) == 0 && t.s.c.io->reads == 1 && collect_all() == 3);
    CHECK(right(&t.l->e[0]) && right(&t.l->e[1]) && right(&t.l->e[2]) && t.l->e[0].kind == KIND_ADMITTED);
    CHECK(t.l->e[1].kind == KIND_STAGED && t.l->e[2].kind == KIND_STAGED);
    release_all();
    /* a cached unit in a gap stays what it is */
    t.l->known_to = UINT32_MAX;
    CHECK(!want(1) && issue(UINT32_MAX, &pressure) == 0 && collect_all() == 1);
    enum kind of = (enum kind)t.l->e[0].kind;
    release_all();
    CHECK(of == KIND_ADMITTED && !want(0) && want(1) && !want(2));
    uint8_t *before = t.l->e[1].base;
    uint64_t reads = t.s.c.io->reads;
    CHECK(issue(UINT32_MAX, &pressure) == 0 && t.s.c.io->reads == reads + 1 && collect_all() == 2);
    CHECK(t.l->e[1].kind == KIND_CACHED && t.l->e[1].base == before && right(&t.l->e[1]));
    end();
}

/* Damage on the way is repaired where it lies; damage in the file is an error that names the unit. */
static void test_verify(void)
{
    begin((struct pipeline_sample){ .form = LAYOUT_SPLIT, .depth = 4, .slots = 8, .hot_neurons = { 16, 32 } });
    struct verify_counts c = { 0 };
    const uint32_t all[] = { 0, 1 }, second = 1;
    int pressure, fd;
    want(40), want(60);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 2);
    CHECK(read_queue_verify(t.l, all, 2, &c, &t.s.e) == 0 && c.repaired == 0 &&
          c.bytes == 2ull * part()->neurons_per_unit * part()->record_bytes);
    t.l->e[1].base[5] ^= 4;
    CHECK(read_queue_verify(t.l, all, 2, &c, &t.s.e) == 0 && c.repaired == 1 && right(&t.l->e[1]));
    t.l->e[1].base[5] ^= 4;
    fd = open(t.s.path, O_WRONLY);
    CHECK(pwrite(fd, t.l->e[1].base, 16, ps_record(&t.s, 1, 1, 1, t.l->e[1].pos0) - t.s.image) == 16);
    close(fd);
    CHECK(read_queue_verify(t.l, &second, 1, &c, &t.s.e) == ERR_IO && strstr(t.s.e.msg, "layer 1, expert 1, part 1, unit 60"));
    /* what was cached before is not looked at again */
    release_all();
    CHECK(want(40) && want(60) && read_queue_verify(t.l, all, 2, &c, &t.s.e) == 0);
    end();
}

static int broken(void *ctx, const struct io_request *r, int result)
{
    (void)ctx;
    return r->offset >= 8192 ? -EIO : result;
}

static void test_faults(void)
{
    int pressure;
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 3, .fault = hurt });
    want(3), want(50), want(90);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 3 && all_right(KIND_STAGED) && calls > 6);
    end();
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 3, .fault = broken });
    want(3);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == -1 && t.s.e.code == ERR_IO);
    CHECK(t.l->e[0].kind == KIND_READING);
    end();
}

/* The list of another block of the layer. */
static void next_block(int block)
{
    release_all();
    t.b.block = block;
    read_queue_begin(t.q, t.b.layer);
}

/* Units of the block that follows are read into buffers that are free, all but one, when the list lacks nothing; its list takes them,
 * or they go. */
static void test_follow(void)
{
    const uint16_t block[] = { 0, 1 };
    int pressure;
    begin((struct pipeline_sample){ .form = LAYOUT_BUNDLE, .depth = 3, .hot_neurons = { 16 } });
    uint32_t first = 16 / part()->neurons_per_unit;
    read_queue_follow(t.q, 1, block, 1);
    CHECK(!read_queue_follows(t.q) && !read_queue_can_follow(t.q)); /* not in exact mode */
    t.s.c.dense_mode = 1;
    read_queue_follow(t.q, 1, block, 1);
    want(30), want(40), want(50), want(60);
    CHECK(read_queue_follows(t.q) && issue(UINT32_MAX, &pressure) == 0 && pressure && read_queue_in_flight(t.q) == 3 && collect_all() == 3);
    read_queue_release(t.q, t.l, &t.l->e[0]);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && !pressure && collect_all() == 1 && t.s.c.io->reads == 4); /* no buffer to spare */
    for (int i = 1; i < 4; i++)
        read_queue_release(t.q, t.l, &t.l->e[i]);
    t.l->n = t.l->issue = 0;
    CHECK(issue(UINT32_MAX, &pressure) == 0 && t.s.c.io->reads == 6 && collect_all() == 0 && read_queue_in_flight(t.q) == 0);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && t.s.c.io->reads == 6); /* one buffer is left */
    t.b.block = 0;
    read_queue_begin(t.q, 1);
    read_queue_follow(t.q, 0, NULL, 0);
    CHECK(want(first) && want(first + 1) && !want(first + 2) && all_right(KIND_STAGED) == 0);
    CHECK(right(&t.l->e[0]) && right(&t.l->e[1]) && t.l->e[0].kind == KIND_STAGED);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 1 && all_right(KIND_STAGED) && t.s.c.io->reads == 7);
    /* on their way when they are asked for */
    release_all();
    read_queue_follow(t.q, 1, block + 1, 1);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && read_queue_in_flight(t.q) == 2);
    next_block(1);
    CHECK(!want(first) && !want(first + 1) && t.l->e[0].kind == KIND_READING);
    read_queue_follow(t.q, 0, NULL, 0);
    CHECK(issue(UINT32_MAX, &pressure) == 0 && !pressure && collect_all() == 2 && all_right(KIND_STAGED) && t.s.c.io->reads == 9);
    /* not asked for: arrived, or on their way */
    for (int arrived = 0; arrived < 2; arrived++) {
        release_all();
        read_queue_follow(t.q, 1, block, 1);
        CHECK(issue(UINT32_MAX, &pressure) == 0 && read_queue_in_flight(t.q) == 2 && (!arrived || collect_all() == 0));
        next_block(1);
        read_queue_follow(t.q, 0, NULL, 0);
        want(90);
        CHECK(issue(UINT32_MAX, &pressure) == 0 && collect_all() == 1 && all_right(KIND_STAGED) && !read_queue_follows(t.q));
        release_all();
        want(30), want(40), want(50);
        CHECK(issue(UINT32_MAX, &pressure) == 0 && !pressure && collect_all() == 3 && all_right(KIND_STAGED));
    }
    end();
}

int main(void)
{
    test_follow();
    for (int f = 0; f < LAYOUT_FORMS; f++)
        test_buffers((enum layout_form)f);
    test_neighbours();
    test_most();
    test_cache();
    test_direct();
    test_passing();
    test_gaps();
    test_verify();
    test_faults();
    return test_done();
}
