/* What the machine does beside a measurement: made-up /proc/stat contents, windows measured again within the patience that is
 * left, and busy programs that are seen, or not where the counters say nothing of them. */
#include "profiler/probe/probe.h"
#include "profiler/probe/watch.h"

#include "tests/test.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct err e;

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

static void parsing(void)
{
    static const char stat[] = "cpu  100 20 30 4000 50 6 7 80 9 10\ncpu0 50 10 15 2000 25 3 3 40 4 5\ncpu1 50 10 15 2000 25 3 4 40 5 5\n"
                               "intr 1 2 3\nctxt 9\n";
    struct watch_counts c = { .n_cpus = 9 };
    CHECK(watch_parse_stat(stat, 100, &c) == 0 && c.n_cpus == 2 && near(c.tick_s, 0.01));
    CHECK(near(c.user_s, 1.2) && near(c.system_s, 0.3) && near(c.stolen_s, 0.8)); /* interrupts, guests: nobody's */
    CHECK(watch_parse_stat("cpu  1 2 3 4\ncpu0 1 2 3 4\n", 50, &c) == 0 && c.n_cpus == 1 && c.stolen_s == 0 && near(c.user_s, 0.06));
    struct watch_counts before = c;
    static const char *const bad[] = { "", "cpu", "cpu  1 2 3 4\n", "cpu  1 2 3\ncpu0 1 2 3\n", "cpu  a b c d\ncpu0 1 2 3 4\n",
                                       "cpu  1 -2 3 4\ncpu0 1 2 3 4\n", "intr 1\ncpu  1 2 3 4\ncpu0 1 2 3 4\n" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(watch_parse_stat(bad[i], 100, &c) == -1 && memcmp(&c, &before, sizeof c) == 0, "text %zu", i);
    CHECK(near(watch_parse_pressure("some avg10=1.00 avg60=0.50 avg300=0.00 total=2500000\nfull avg10=0.00 total=7\n"), 2.5));
    CHECK(watch_parse_pressure("full avg10=0 total=7\n") == 0 && watch_parse_pressure("some\nfull total=7\n") == 0 &&
          watch_parse_pressure("") == 0);
}

/* A window of two seconds on four CPUs: each cause by itself, at both sides of its limit. */
static void windows(void)
{
    struct watch_counts a = { .now_ns = 1000, .n_cpus = 4, .tick_s = 0.01, .user_s = 50, .system_s = 9, .own_user_s = 1 }, b = a;
    b.now_ns += 2000000000;
    b.user_s += 5;
    b.own_user_s += 4;
    b.system_s += 2;
    b.own_system_s += 2.6; /* counted finer than in ticks */
    struct hw_conditions c = watch_between(&a, &b, 0);
    CHECK(c.watched && near(c.others, 0.4 / 8) && !c.marks && c.disturbed == 0);
    b.system_s += 0.2;
    c = watch_between(&a, &b, 0);
    CHECK(near(c.others, 0.6 / 8) && c.marks == 1u << HW_OTHERS && c.disturbed == 1);
    b.own_user_s += 9; /* never below nothing */
    c = watch_between(&a, &b, 0);
    CHECK(c.others == 0 && !c.marks);
    b.own_user_s -= 9;
    b.system_s += 90; /* the kernel works for us: only others' own time counts */
    c = watch_between(&a, &b, 1);
    CHECK(near(c.others, 1.0 / 8) && c.marks == 1u << HW_OTHERS);
    CHECK(near(watch_between(&a, &b, 0).others, 1));
    b = a;
    b.now_ns += 2000000000;
    b.stolen_s = 0.15;
    CHECK(!watch_between(&a, &b, 0).marks);
    b.stolen_s = 0.18;
    CHECK(watch_between(&a, &b, 0).marks == 1u << HW_STOLEN);
    b.stolen_s = 0;
    b.waited_s = 0.41;
    CHECK(watch_between(&a, &b, 0).marks == 1u << HW_WAITED && !watch_between(&a, &b, 1).marks);
    b.waited_s = 0.39;
    CHECK(!watch_between(&a, &b, 0).marks);
    b.short_of_memory_s = 0.11;
    CHECK(watch_between(&a, &b, 1).marks == 1u << HW_SHORT_OF_MEMORY);
    b.n_cpus = 0;
    c = watch_between(&a, &b, 0);
    CHECK(!c.watched && !c.marks);
    b = a;
    CHECK(!watch_between(&a, &b, 0).watched); /* no time between them */
}

static void merging(void)
{
    struct hw_conditions all = { 0 }, clean = { .watched = 1, .others = 0.01 };
    struct hw_conditions dirty = { .watched = 1, .others = 0.5, .stolen = 0.1, .marks = 1u << HW_OTHERS, .disturbed = 1, .repeated = 3,
                                   .paused_s = 2, .spread = 0.3 };
    watch_merge(&all, 0, &clean, 30);
    watch_merge(&all, 30, &dirty, 10);
    CHECK(all.watched && near(all.others, 0.5) && near(all.stolen, 0.1) && all.marks == 1u << HW_OTHERS && near(all.disturbed, 0.25));
    CHECK(all.repeated == 3 && near(all.paused_s, 2) && near(all.spread, 0.3));
    clean.watched = 0;
    watch_merge(&all, 40, &clean, 1);
    CHECK(!all.watched);
}

/* ---- a probe of which each sample lasts as long as the made-up clock says ---- */

enum { POINTS = 8, REPS = 2 };

static struct {
    struct watch_counts now;
    double busy_until_s; /* others take all CPUs until then */
    int haunts;          /* or whenever a sample is taken */
    double slow_s;       /* a sample takes beyond 0.1 s */
    int samples, pauses;
} world;

static void pass_time(double seconds)
{
    double busy = world.busy_until_s - (double)world.now.now_ns / 1e9;
    busy = busy < 0 ? 0 : busy < seconds ? busy : seconds;
    world.now.now_ns += (int64_t)(seconds * 1e9);
    world.now.user_s += 2 * busy;
}

static int64_t world_now(struct watch *w)
{
    (void)w;
    return world.now.now_ns;
}

static void world_read(struct watch *w, struct watch_counts *out)
{
    (void)w;
    *out = world.now;
}

static void world_pause(struct watch *w, double seconds)
{
    (void)w;
    world.pauses++;
    pass_time(seconds);
}

static int no_prepare(struct probe *p, struct err *err)
{
    (void)p;
    (void)err;
    return 0;
}

static int count_sample(struct probe *p, int point, int rep, double *value, struct err *err)
{
    (void)p;
    (void)point;
    (void)err;
    world.samples++;
    if (world.haunts)
        world.busy_until_s = (double)world.now.now_ns / 1e9 + 0.1;
    pass_time(0.1 + world.slow_s);
    *value = 100 + rep;
    return 0;
}

static void nothing(struct probe *p)
{
    (void)p;
}

static struct probe made_up(void)
{
    return (struct probe){ .table = "memory", .n_points = POINTS, .reps = REPS, .prepare = no_prepare, .sample = count_sample,
                           .release = nothing, .done = nothing };
}

/* Others are busy for so long (-1: while a sample is taken); so much patience: the conditions after. */
static struct hw_conditions measured(double busy_s, double patience_s)
{
    struct probe p = made_up();
    struct watch w;
    struct progress progress;
    memset(&world, 0, sizeof world);
    world.now = (struct watch_counts){ .now_ns = 1, .n_cpus = 2, .tick_s = 0.01 };
    world.busy_until_s = busy_s;
    world.haunts = busy_s < 0;
    watch_init(&w, patience_s);
    w.now_ns = world_now;
    w.read = world_read;
    w.pause = world_pause;
    w.warned = 1; /* the warning belongs to the command's test */
    progress_init(&progress, "measuring", "samples", POINTS * REPS);
    CHECK(probe_run(&p, progress_now_ns(), &w, &progress, &e) == 0 && p.reps_done == REPS && p.n_taken == POINTS * REPS);
    CHECK(progress.done == POINTS * REPS && !strcmp(progress.what, "measuring"));
    for (int i = 0; i < POINTS * REPS; i++)
        CHECK(near(p.samples[i].value, 100 + i % REPS));
    probe_free(&p);
    return p.conditions;
}

/* A sample lasts 0.1 s, so a pass of 8 is a window of 5 and one of 3. */
static void patience(void)
{
    struct hw_conditions c = measured(0, 100);
    CHECK(c.watched && !c.marks && c.repeated == 0 && world.samples == POINTS * REPS && world.pauses == 0);
    CHECK(near(c.spread, 0.8 / 100.5));
    c = measured(0.5, 100); /* over when the first window is: one look at a quiet machine, and that window again */
    CHECK(!c.marks && c.repeated == 5 && world.samples == POINTS * REPS + 5 && world.pauses == 1 && c.others == 0);
    c = measured(1.2, 100); /* to wait for: two steps, a third one that is disturbed yet, a quiet one */
    CHECK(!c.marks && c.repeated == 5 && world.pauses == 4 && near(c.paused_s, 4 * WATCH_STEP_S));
    c = measured(0.5, 0.6); /* enough to measure again, and nothing left */
    CHECK(!c.marks && c.repeated == 5 && world.pauses == 1);
    c = measured(1.2, 0.6); /* not that much patience: of the first window all is marked, the second is hit in part */
    CHECK(c.marks == 1u << HW_OTHERS && c.repeated == 0 && near(c.others, 1) && world.pauses == 2 && near(c.disturbed, 0.5));
    c = measured(1e9, 100);
    CHECK(c.marks == 1u << HW_OTHERS && near(c.disturbed, 1) && world.samples == POINTS * REPS && near(c.paused_s, 100));
    c = measured(1e9, 0);
    CHECK(c.marks == 1u << HW_OTHERS && world.pauses == 0);
    c = measured(-1, 100); /* each window is tried so often and no more */
    CHECK(c.marks == 1u << HW_OTHERS && world.samples == POINTS * REPS * WATCH_TRIES && near(c.others, 1));
    c = measured(-1, 2); /* of both, waiting and measuring again, patience is the bound */
    CHECK(world.samples < POINTS * REPS * 2 + 8 && c.paused_s + 0.1 * c.repeated < 2.6);
}

/* Levels of a low memory killer, of lmkd and of a kernel; texts that are none. */
static void kept_free(void)
{
    CHECK(probe_kept_free("18432:0,23040:100,27648:200,80640:950", NULL, 0, 4096) == 18432 * 4096u);
    CHECK(probe_kept_free("18432:0,23040:100,27648:200,80640:950", NULL, 900, 16384) == 27648 * 16384ull);
    CHECK(probe_kept_free("100,300,200", "0,58,117", 117, 1) == 300 && probe_kept_free("100,300,200", "1,58,117", 0, 1) == 0);
    static const char *const bad[] = { "", ":", "100", "100:", "100:0,", "100:0;200:1", "100:0,x:1", "99999999999:0", "-1:0" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(probe_kept_free(bad[i], NULL, 1000, 4096) == 0, "'%s'", bad[i]);
    CHECK(probe_kept_free("100,200", "0", 1000, 1) == 0 && probe_kept_free("100", "0,1", 1000, 1) == 0 &&
          probe_kept_free("100,200", "0,", 1000, 1) == 0);
}

/* A pass lasts far longer than samples should take: it is the only one. One that lasts for the patience that was spent is not. */
static void slowness(void)
{
    struct probe p = made_up();
    struct watch w;
    struct progress progress;
    memset(&world, 0, sizeof world);
    world.now = (struct watch_counts){ .now_ns = 1, .n_cpus = 2, .tick_s = 0.01 };
    world.slow_s = 4;
    watch_init(&w, 0);
    w.now_ns = world_now;
    w.read = world_read;
    w.pause = world_pause;
    progress_init(&progress, "measuring", "samples", POINTS * REPS);
    CHECK(probe_run(&p, progress_now_ns(), &w, &progress, &e) == 0 && p.reps_done == 1 && world.samples == POINTS);
    CHECK(progress.done == POINTS * REPS && near(probe_dist(&p, 3).p50, 100));
    probe_free(&p);
    struct hw_conditions c = measured(30, 100);
    CHECK(!c.marks && c.paused_s > 25);
}

/* ---- programs that are really busy ---- */

static void no_others(struct watch *w, struct watch_counts *out)
{
    (void)w;
    watch_counts_read(out);
    out->own_user_s = out->user_s;
    out->own_system_s = out->system_s;
    out->stolen_s = out->waited_s = out->short_of_memory_s = 0;
}

static int spin_sample(struct probe *p, int point, int rep, double *value, struct err *err)
{
    int64_t until = progress_now_ns() + 50000000;
    (void)p;
    (void)point;
    (void)rep;
    (void)err;
    for (*value = 1; progress_now_ns() < until; *value += 1)
        ;
    return 0;
}

static struct hw_conditions spun(int blind)
{
    struct probe p = made_up();
    struct watch w;
    struct progress progress;
    watch_init(&w, 0);
    if (blind)
        w.read = no_others;
    p.sample = spin_sample;
    progress_init(&progress, "measuring", "samples", 0);
    CHECK(probe_run(&p, progress_now_ns(), &w, &progress, &e) == 0);
    probe_free(&p);
    return p.conditions;
}

static void busy_programs(void)
{
    struct watch_counts now;
    struct probe_cpus cpus;
    pid_t pid[64];
    watch_counts_read(&now);
    if (now.n_cpus == 0) {
        printf("# /proc/stat tells nothing here\n");
        return;
    }
    probe_cpus_find(&cpus);
    fflush(stdout);
    int n = cpus.n < 64 ? cpus.n : 64;
    for (int i = 0; i < n; i++)
        if ((pid[i] = fork()) == 0) {
            alarm(120); /* should this test die */
            for (volatile unsigned k = 0;; k++)
                ;
        }
    struct hw_conditions c = spun(0);
    CHECK_MSG(c.watched && c.marks & 1u << HW_OTHERS && c.others > 0.1 && c.disturbed > 0, "others %g", c.others);
    c = spun(1);
    CHECK_MSG(c.watched && !(c.marks & ~(1u << HW_SPREAD)) && c.others == 0 && c.disturbed == 0, "marks %x", c.marks);
    for (int i = 0; i < n; i++)
        if (pid[i] > 0) {
            kill(pid[i], SIGKILL);
            waitpid(pid[i], NULL, 0);
        }
}

int main(void)
{
    parsing();
    windows();
    merging();
    patience();
    slowness();
    kept_free();
    busy_programs();
    return test_done();
}
