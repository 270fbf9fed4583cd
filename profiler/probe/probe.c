/* What the probes share: CPUs in classes, the shuffled passes over a grid, and what the machine tells about itself.
 * Everything from /proc and /sys is optional: containers and phones hide much of it. */
#include "profiler/probe/probe.h"

#include "common/base/cpu.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/machine.h"
#include "common/base/pages.h"

#include <assert.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- CPUs ---- */

static const char *class_name(int i, int n)
{
    static const char *const three[] = { "big", "mid", "little" };
    static const char *const many[HW_MAX_CLASSES] = { "class0", "class1", "class2", "class3",
                                                      "class4", "class5", "class6", "class7",
                                                      "class8", "class9", "class10", "class11",
                                                      "class12", "class13", "class14", "class15" };
    if (n == 1)
        return "cpu";
    if (n == 2)
        return three[2 * i];
    return n == 3 ? three[i] : many[i];
}

_Static_assert(CPU_MAX_CLASSES <= HW_MAX_CLASSES, "classes of a device");

/* Does a thread get the CPU it asks for, and stay there? pool_refused. */
static int try_cpu(int cpu)
{
    struct pool *p = NULL;
    struct err e;
    int r = pool_new(1, &cpu, &p, &e) < 0 ? 0 : pool_refused(p);
    pool_free(p);
    return r;
}

void probe_cpus_find(struct probe_cpus *c)
{
    uint64_t hz[CPU_MAX_CLASSES];
    memset(c, 0, sizeof *c);
    c->n = cpu_allowed(c->cpu, POOL_MAX_THREADS);
    c->n_classes = cpu_classes(c->cpu, c->n, c->class_of, hz);
    for (int i = 0; i < c->n && !c->refused; i++)
        if ((c->refused = try_cpu(c->cpu[i])) != 0) {
            char why[32];
            snprintf(why, sizeof why, "%s", c->refused < 0 ? "it moves them" : strerror(c->refused));
            snprintf(c->note, sizeof c->note, "threads cannot be pinned to CPU %d (%s): all cores are one class", c->cpu[i], why);
            log_warn("%s, and are measured wherever the system puts threads", c->note);
            c->n_classes = 1;
            memset(c->class_of, 0, sizeof c->class_of);
        }
    for (int k = 0; k < c->n_classes; k++)
        c->classes[k].max_hz = hz[k];
    for (int i = 0; i < c->n; i++)
        c->classes[c->class_of[i]].n_cores++;
    for (int k = 0; k < c->n_classes; k++)
        snprintf(c->classes[k].name, sizeof c->classes[k].name, "%s", class_name(k, c->n_classes));
}

int probe_cpus_pick(const struct probe_cpus *c, int core_class, int threads, int *cpus)
{
    int n = 0;
    for (int k = 0; k < c->n_classes; k++)
        for (int i = 0; i < c->n && n < threads; i++)
            if (c->class_of[i] == k && (core_class < 0 || core_class == k))
                cpus[n++] = c->refused ? -1 : c->cpu[i];
    return n;
}

int probe_threads(int n, const int *cpus, pool_fn *fn, void *ctx, struct err *e)
{
    struct pool *pool = NULL;
    int r = pool_new(n, cpus, &pool, e);
    if (r < 0)
        return r;
    pool_run(pool, fn, ctx);
    pool_free(pool);
    return 0;
}

/* ---- passes ---- */

#define MOST_REPS 64
/* A table whose pass over the points ends after so many times what all passes should take, and so many seconds, gets no other pass: on a
 * machine that is emulated, or one that does much else, measuring ends, too. */
#define SLOW_TIMES 10
#define SLOW_S     20

double probe_expected_seconds(const struct probe *p)
{
    /* A sample costs a little more than its time: threads, warming up, draining the queue. */
    double write = (double)p->disk_bytes / 500e6;
    return write + p->n_points * p->reps * (p->seconds * 1.15 + 0.002);
}

void probe_free(struct probe *p)
{
    if (!p)
        return;
    free(p->samples);
    free(p->late);
    p->samples = p->late = NULL;
    p->release(p);
    p->done(p);
}

/* Fisher-Yates with a stream of its own per pass: the same machine sees the same order. */
static void shuffle(int *order, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(splitmix_at(seed + (uint64_t)i) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* One pass over all points, window by window. */
struct pass {
    struct probe *p;
    const int *order;
    struct watch *watch;
    struct progress *progress;
    int64_t start_ns;
    int again; /* samples are taken a second time */
};

static int take_sample(const struct pass *a, int i, struct err *e)
{
    struct probe *p = a->p;
    int point = a->order[i];
    struct hwdb_sample *s = &p->samples[point * p->reps + p->reps_done];
    if (file_interrupted())
        return err_set(e, ERR_INTR, "interrupted while measuring %s", p->table);
    s->t_s = (double)(progress_now_ns() - a->start_ns) / 1e9;
    s->temperature_c = probe_temperature_c();
    int r = p->sample(p, point, p->reps_done, &s->value, e);
    progress_add(a->progress, !a->again);
    return r;
}

/* Samples from *next on: as many as a window takes or, again, those up to *next. What was seen meanwhile into *seen. */
static int take_window(const struct pass *a, int from, int *next, struct hw_conditions *seen, struct err *e)
{
    struct watch_counts begin, end;
    int i = from, r = 0;
    a->watch->read(a->watch, &begin);
    int64_t until = begin.now_ns + (int64_t)(WATCH_WINDOW_S * 1e9);
    while (r == 0 && (a->again ? i < *next : i < a->p->n_points && (i == from || a->watch->now_ns(a->watch) < until)))
        r = take_sample(a, i++, e);
    a->watch->read(a->watch, &end);
    *next = i;
    *seen = watch_between(&begin, &end, a->p->kernel_helps);
    if (a->again)
        a->watch->left_s -= (double)(end.now_ns - begin.now_ns) / 1e9;
    return r;
}

static int take_pass(struct pass *a, struct err *e)
{
    struct probe *p = a->p;
    for (int from = 0, next = 0; from < p->n_points; from = next) {
        struct hw_conditions seen;
        double paused_s = 0;
        int repeated = 0;
        for (a->again = 0;; a->again++) {
            int r = take_window(a, from, &next, &seen, e);
            if (r < 0)
                return r;
            if (!seen.marks || a->again + 1 == WATCH_TRIES ||
                !watch_wait(a->watch, &seen, p->kernel_helps, a->progress, &paused_s))
                break;
            repeated += next - from;
        }
        seen.paused_s = paused_s;
        seen.repeated = repeated;
        watch_merge(&p->conditions, p->n_taken, &seen, (uint64_t)(next - from));
        p->n_taken += (uint64_t)(next - from);
    }
    return 0;
}

/* How much samples of one point differ: of all points the middle one. */
static double spread_of(const struct probe *p)
{
    double *of = malloc((size_t)p->n_points * sizeof *of), middle = 0;
    for (int i = 0; of && i < p->n_points; i++) {
        struct hw_dist d = probe_dist(p, i);
        of[i] = d.p50 > 0 ? (d.p90 - d.p10) / d.p50 : 0;
    }
    if (of)
        middle = hw_dist_of(of, p->n_points).p50;
    free(of);
    return middle;
}

int probe_run(struct probe *p, int64_t start_ns, struct watch *w, struct progress *progress, struct err *e)
{
    int r = 0;
    int64_t begun = progress_now_ns(), from = 0;
    double patience = w->left_s;
    int *order = malloc((size_t)p->n_points * sizeof *order);
    struct pass a = { .p = p, .order = order, .watch = w, .progress = progress, .start_ns = start_ns };
    assert(p->reps <= MOST_REPS);
    p->samples = calloc((size_t)p->n_points * (size_t)p->reps, sizeof *p->samples);
    if (!order || !p->samples)
        r = err_set(e, ERR_NOMEM, "measuring %s: out of memory", p->table);
    if (r == 0)
        r = p->prepare(p, e);
    from = w->now_ns(w);
    for (p->reps_done = 0; r == 0 && p->reps_done < p->reps; p->reps_done += r == 0) {
        double taken_s = (double)(w->now_ns(w) - from) / 1e9 - (patience - w->left_s);
        if (p->reps_done && taken_s > SLOW_TIMES * probe_expected_seconds(p) + SLOW_S) {
            log_warn("%s: %d of %d samples of each point, for this machine is slow: they took %.0f s", p->table, p->reps_done, p->reps,
                     taken_s);
            progress_add(progress, (uint64_t)p->n_points * (uint64_t)(p->reps - p->reps_done));
            break;
        }
        shuffle(order, p->n_points, (uint64_t)p->reps_done << 32);
        r = take_pass(&a, e);
    }
    p->release(p);
    free(order);
    log_debug("%s: %d points, %d samples of each, in %.1f s", p->table, p->n_points, p->reps_done,
              (double)(progress_now_ns() - begun) / 1e9);
    if (p->samples && p->reps_done > 1 && p->conditions.watched) {
        p->conditions.spread = spread_of(p);
        p->conditions.marks |= (unsigned)(p->conditions.spread > WATCH_SPREAD) << HW_SPREAD;
    }
    return r;
}

void probe_add_late(struct probe *p, struct probe *late)
{
    if (late->reps_done == 0 || late->n_points != p->n_points || late->reps != p->reps || p->late)
        return;
    p->late = late->samples;
    p->late_done = late->reps_done;
    late->samples = NULL;
    watch_merge(&p->conditions, p->n_taken, &late->conditions, late->n_taken);
    p->n_taken += late->n_taken;
}

static struct hw_dist dist_of(const struct hwdb_sample *s, int n)
{
    double v[MOST_REPS];
    for (int i = 0; i < n; i++)
        v[i] = s[i].value;
    return hw_dist_of(v, n);
}

struct hw_dist probe_dist(const struct probe *p, int point)
{
    struct hw_dist d = dist_of(&p->samples[point * p->reps], p->reps_done);
    if (p->late_done) {
        struct hw_dist late = dist_of(&p->late[point * p->reps], p->late_done);
        d.p10 = fmin(late.p10, d.p50);
        d.p90 = fmax(late.p90, d.p50);
    }
    return d;
}

int probe_record(const struct probe *p, int point, enum hwdb_kind k, const void *item, struct hwdb_record *to, struct err *e)
{
    struct hwdb_sample all[2 * MOST_REPS];
    memcpy(all, &p->samples[point * p->reps], (size_t)p->reps_done * sizeof *all);
    if (p->late_done)
        memcpy(all + p->reps_done, &p->late[point * p->reps], (size_t)p->late_done * sizeof *all);
    return hwdb_record_add(to, k, item, all, p->reps_done + p->late_done, e);
}

/* ---- environment ---- */

/* First line of a file, without its newline; "" when there is none. */
static void read_line(const char *path, char *out, size_t len)
{
    FILE *f = fopen(path, "re");
    out[0] = 0;
    if (!f)
        return;
    if (!fgets(out, (int)len, f))
        out[0] = 0;
    out[strcspn(out, "\n")] = 0;
    fclose(f);
}

double probe_temperature_c(void)
{
    double hottest = NAN;
    for (int i = 0; i < 32; i++) {
        char path[64], text[32];
        snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/temp", i);
        read_line(path, text, sizeof text);
        if (!text[0] && access(path, F_OK) != 0)
            break; /* some sensors are there and say nothing */
        double c = strtod(text, NULL) / 1000;
        if (c > 0 && c < 150 && !(hottest >= c))
            hottest = c;
    }
    return hottest;
}

static void read_os(char *out, size_t len)
{
    char line[512];
    FILE *f = fopen("/etc/os-release", "re");
    out[0] = 0;
    if (!f)
        return;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "PRETTY_NAME=", 12) == 0) {
            char *v = line + 12;
            v += *v == '"';
            v[strcspn(v, "\"\n")] = 0;
            snprintf(out, len, "%s", v);
        }
    fclose(f);
}

/* "83 %, Discharging", where there is one and its files may be read. */
static void read_battery(char *out, size_t len)
{
    char path[128], type[16], percent[8], status[32];
    DIR *d = opendir("/sys/class/power_supply");
    out[0] = 0;
    for (struct dirent *x; d && !out[0] && (x = readdir(d));) {
        snprintf(path, sizeof path, "/sys/class/power_supply/%.60s/type", x->d_name);
        read_line(path, type, sizeof type);
        if (x->d_name[0] == '.' || strcmp(type, "Battery") != 0)
            continue;
        snprintf(path, sizeof path, "/sys/class/power_supply/%.60s/capacity", x->d_name);
        read_line(path, percent, sizeof percent);
        snprintf(path, sizeof path, "/sys/class/power_supply/%.60s/status", x->d_name);
        read_line(path, status, sizeof status);
        if (percent[0])
            snprintf(out, len, "%s %%%s%s", percent, status[0] ? ", " : "", status);
    }
    if (d)
        closedir(d);
}

uint64_t probe_kept_free(const char *pages, const char *adj, int own_adj, uint64_t page_bytes)
{
    for (uint64_t most = 0;; pages++, adj += adj != NULL) {
        char *end, *rest;
        uint64_t n = strtoull(pages, &end, 10);
        if (end == pages || (!adj && *end != ':') || n > UINT32_MAX)
            return 0;
        const char *at = adj ? adj : end + 1;
        long level = strtol(at, &rest, 10);
        if (rest == at)
            return 0;
        if (level <= own_adj && n > most)
            most = n;
        pages = adj ? end : rest;
        adj = adj ? rest : NULL;
        if (*pages != ',' || (adj && *adj != ','))
            return *pages || (adj && *adj) ? 0 : most * page_bytes;
    }
}

/* lmkd's levels, else those of a kernel of before. A shell's processes are ended by none; they are taken as the application in front is. */
static uint64_t read_kept_free(void)
{
    static const char levels[] = "/system/bin/getprop sys.lmk.minfree_levels", kernels[] = "/sys/module/lowmemorykiller/parameters";
    char path[96], pages[256] = "", adj[256] = "", own[16];
    FILE *f = access("/system/bin/getprop", X_OK) == 0 ? popen(levels, "re") : NULL;
    if (f) {
        if (!fgets(pages, sizeof pages, f))
            pages[0] = 0;
        pages[strcspn(pages, "\n")] = 0;
        pclose(f);
    }
    if (!pages[0]) {
        snprintf(path, sizeof path, "%s/minfree", kernels);
        read_line(path, pages, sizeof pages);
        snprintf(path, sizeof path, "%s/adj", kernels);
        read_line(path, adj, sizeof adj);
    }
    read_line("/proc/self/oom_score_adj", own, sizeof own);
    int own_adj = (int)strtol(own, NULL, 10);
    return probe_kept_free(pages, adj[0] ? adj : NULL, own_adj > 0 ? own_adj : 0, pages_small_size());
}

static uint64_t read_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

/* The mount that holds dir: the entry of /proc/self/mountinfo with its device, the last one wins. */
static void read_mount(struct probe_env *env, const char *dir)
{
    char line[4096];
    struct stat st;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f || stat(dir, &st) != 0) {
        if (f)
            fclose(f);
        return;
    }
    while (fgets(line, sizeof line, f)) {
        /* id, parent, MAJOR:MINOR, root, mount, options, further ones, -, file system, source */
        enum { DEVICE = 2, MOUNT = 4, OPTIONS, N_BEFORE };
        char *rest = strstr(line, " - "), *word[N_BEFORE + 2], *at = line;
        int n = 0;
        line[strcspn(line, "\n")] = 0;
        while (rest && n < N_BEFORE + 2 && (word[n] = strsep(n < N_BEFORE ? &at : &rest, " ")) != NULL)
            if (++n == N_BEFORE)
                rest += 3;
        char *minor_n = n == N_BEFORE + 2 ? strchr(word[DEVICE], ':') : NULL;
        if (minor_n && makedev(strtoul(word[DEVICE], NULL, 10), strtoul(minor_n + 1, NULL, 10)) == st.st_dev) {
            snprintf(env->filesystem, sizeof env->filesystem, "%.63s", word[N_BEFORE]);
            snprintf(env->mount, sizeof env->mount, "%.255s", word[MOUNT]);
            snprintf(env->mount_options, sizeof env->mount_options, "%.255s", word[OPTIONS]);
            snprintf(env->block_device, sizeof env->block_device, "%.255s", word[N_BEFORE + 1]);
        }
    }
    fclose(f);
    /* A partition's model stands with its disk, one level up. */
    static const char *const where[] = { "device/model", "../device/model" };
    for (int i = 0; i < 2 && !env->storage[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s", major(st.st_dev), minor(st.st_dev), where[i]);
        read_line(path, env->storage, sizeof env->storage);
        for (size_t n = strlen(env->storage); n > 0 && env->storage[n - 1] == ' '; n--)
            env->storage[n - 1] = 0;
    }
}

void probe_env_read(struct probe_env *env, const char *storage_dir, int first_cpu)
{
    char path[96];
    struct utsname u;
    memset(env, 0, sizeof *env);
    read_os(env->os, sizeof env->os);
    if (uname(&u) == 0)
        snprintf(env->kernel, sizeof env->kernel, "%s %s", u.sysname, u.release);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", first_cpu);
    read_line(path, env->governor, sizeof env->governor);
    cpu_model_name(env->cpu_model, sizeof env->cpu_model);
    read_battery(env->battery, sizeof env->battery);
    env->memory_bytes = read_memory_bytes();
    env->available_bytes = machine_free_bytes();
    env->kept_free_bytes = read_kept_free();
    uint64_t limit = machine_group_bytes();
    env->app_memory_limit_bytes = limit < env->memory_bytes ? limit : 0;
    if (storage_dir)
        read_mount(env, storage_dir);
}
