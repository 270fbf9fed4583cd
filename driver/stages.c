/* Four stages, each with a record of what its result was made from. First it is found out which have to be done, which says how long it
 * takes and what it needs on the disk; then they are done in order. The machine is measured once for a drive, in the cache. */
#include "driver/stages.h"

#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/machine.h"
#include "common/base/size.h"
#include "common/base/version.h"
#include "driver/store.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define DENSE_TOKENS 16     /* of a model all of whose neurons fire: which ones do is known, and no figure follows from them */
#define FIRST_TOKENS 2048   /* of others, as many as the maps of a trace have; then twice as many, until the plan is as fast as before */
#define SAME_SPEED   0.02
#define PACK_BYTES_PER_S 1.5e8
#define READ_BYTES_PER_S 1e9
#define PLAN_SECONDS 5
#define DAY 86400
#define WHY 1024
enum { HARDWARE, TRACE, PLAN, PACK, STAGES };
static const struct {
    const char *name, *about;
} stages[STAGES] = {
    { "1 hardware", "what this machine can do" },
    { "2 trace", "which neurons fire" },
    { "3 plan", "what goes where" },
    { "4 pack", "neurons from hot to cold" },
};

/* What has to be done, and why; "" for what has not. */
struct needs {
    char why[STAGES][WHY];
    double seconds[STAGES];
    uint64_t disk_bytes;
};

static double number(const struct js *j, const char *key)
{
    double v = 0;
    return js_num(js_get(j, key), &v) ? v : 0;
}

static int exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void gone(const char *path, char why[WHY])
{
    snprintf(why, WHY, exists(path) ? "'%.500s' is not what was made" : "'%.500s' is gone", path);
}

static int version_of(const struct drive *d, const char *program, char out[256], struct err *e)
{
    struct words w = { 0 };
    char *text = NULL;
    size_t len;
    int status = 1;
    drive_program(d, &w, program);
    words_add(&w, "--version");
    int r = child_read(&w, &text, &len, NULL, 0, &status, e);
    words_done(&w);
    if (r < 0)
        return r;
    snprintf(out, 256, "%s", text);
    free(text);
    return status ? err_set(e, ERR_SYS, "'%s/%s --version' failed (exit status %d)", d->programs, program, status) : 0;
}

/* Announce a stage; 1 where it has to be done. */
static int begin(struct drive *d, const struct needs *t, int stage)
{
    const char *why = t->why[stage];
    double later = 0;
    if (!*why) {
        drive_say(d, "== %s: up to date", stages[stage].name);
        return 0;
    }
    if (!strcmp(why, "it was not made yet"))
        drive_say(d, "== %s: %s", stages[stage].name, stages[stage].about);
    else
        drive_say(d, "== %s: %s; again, because %s", stages[stage].name, stages[stage].about, why);
    for (int i = stage + 1; i < STAGES; i++)
        later += t->why[i][0] ? t->seconds[i] : 0;
    bar_begin(&d->bar, t->seconds[stage], later);
    return 1;
}

/* The program of a stage. 0; a positive exit status. */
static int run(struct drive *d, struct words *w, struct err *e)
{
    int status = 0, r = child_run(w, &d->bar, &status, e);
    return r < 0 ? r : status == 130 ? err_set(e, ERR_INTR, "interrupted") : status;
}

static int ended(struct drive *d, int stage, int r, struct err *e)
{
    bar_end(&d->bar);
    const char *name = stages[stage].name + 2;
    if (r == ERR_INTR)
        return err_set(e, ERR_INTR, "'%s' was interrupted; the same command goes on from there", name);
    if (r > 0)
        log_error("'%s' failed (exit status %d)", name, r);
    return r;
}

/* A model that is replaced while it is read belongs to nothing. */
static int unchanged_model(struct drive *d, int stage, struct err *e)
{
    char *now = store_stats(d->shards.w, d->shards.n, e);
    int same = now && !strcmp(now, d->stats);
    free(now);
    return same ? 0 : err_set(e, ERR_INPUT, "'%s' changed during '%s'; run the same command again", d->model, stages[stage].name + 2);
}

/* ---- 1 hardware ---- */

/* What the folder's drive is called, from the table of mounts; its numbers where that does not say. */
static void drive_of(const char *dir, char *out, size_t cap)
{
    char line[4096], source[256], id[32];
    struct stat st;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (stat(dir, &st) < 0)
        st.st_dev = 0;
    snprintf(id, sizeof id, "%u:%u", major(st.st_dev), minor(st.st_dev));
    snprintf(out, cap, "%s", id);
    while (f && fgets(line, sizeof line, f)) {
        char at[32] = "", *dash = strstr(line, " - ");
        if (dash && sscanf(line, "%*d %*d %31s", at) == 1 && !strcmp(at, id) && sscanf(dash, " - %*s %255s", source) == 1)
            snprintf(out, cap, "%s", source);
    }
    if (f)
        fclose(f);
}

static void machine_of(char *out, size_t cap, char id[HASH_TEXT])
{
    char model[256] = "", line[4096], own[128] = "";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && !*model && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) && strchr(line, ':'))
            snprintf(model, sizeof model, "%.*s", (int)strcspn(strchr(line, ':') + 1, "\n"), strchr(line, ':') + 1);
    if (f)
        fclose(f);
    if ((f = fopen("/etc/machine-id", "re"))) {
        if (!fgets(own, sizeof own, f))
            own[0] = '\0';
        fclose(f);
    }
    snprintf(out, cap, "%s, %d processors, %s", model, machine_cpus(), own);
    hash_text(hash_128(out, strlen(out)), id);
}

/* The device's hash in the database: of its figures. ERR_USAGE where it has none of that name, or several and no name. */
static int hardware_of(struct drive *d, const char *name, struct err *e)
{
    struct js *j;
    int r = drive_asks(d, "thermo-profile", "show", d->database, &j, NULL, e);
    if (r < 0)
        return r;
    const struct js *all = js_get(j, "devices"), *found = NULL;
    for (size_t i = 0; i < js_len(all); i++) {
        const char *s = js_str(js_get(js_at(all, i), "name"));
        if (!name ? js_len(all) == 1 : s && !strcmp(s, name))
            found = js_at(all, i);
    }
    if (found)
        snprintf(d->hardware_id, sizeof d->hardware_id, "%s", store_field(found, "hash"));
    else if (name)
        r = err_set(e, ERR_USAGE, "--device: '%s' holds no device '%s' (thermo-profile show lists those it holds)", d->database, name);
    else
        r = err_set(e, ERR_USAGE, "'%s' holds no device or several; name one with --device (thermo-profile show lists them)", d->database);
    js_free(j);
    return r;
}

static struct js *hardware_key(const struct drive *d, const struct js *old)
{
    struct js *key = js_object();
    js_set_str(key, "the device's name", d->device_name);
    js_set_str(key, "--full", d->full || !strcmp(store_field(old, "--full"), "1") ? "1" : ""); /* as good, where it was not asked for */
    return key;
}

/* What a run said beside the record (THERMO_DIFFERS). Measured again at once the first time, and then once a day: there may be
 * another cause. */
static int found_wrong(struct drive *d, const struct js *old, char out[96])
{
    char path[DRIVE_PATH], *text = NULL;
    struct err ignored = { 0 };
    size_t len;
    long long last = strtoll(store_field(old, "measured again"), NULL, 10);
    if (drive_path(path, &ignored, "%s.wrong", d->hardware_record) < 0 || file_slurp(path, 4096, &text, &len, &ignored) < 0)
        return 0;
    snprintf(out, 96, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
    if ((long long)time(NULL) - last >= DAY)
        return 1;
    unlink(path);
    return 0;
}

static int find_hardware(struct drive *d, struct needs *t, struct err *e)
{
    char machine[600], id[HASH_TEXT], device[HASH_TEXT], folder[DRIVE_PATH], on[256], wrong[96];
    int r;
    if (d->hardware) {
        snprintf(d->device_name, sizeof d->device_name, "%s", d->device ? d->device : "");
        return (r = drive_path(d->database, e, "%s", d->hardware)) < 0 ? r : hardware_of(d, d->device, e);
    }
    drive_of(d->dir, on, sizeof on);
    snprintf(d->device_name, sizeof d->device_name, "%.90s, %.60s", d->device ? d->device : "this machine", on);
    machine_of(machine, sizeof machine, id);
    hash_text(hash_128(d->device_name, strlen(d->device_name)), device);
    if ((r = drive_path(folder, e, "%s/machines", d->root)) < 0 || (r = store_mkdir(folder, e)) < 0 ||
        (r = drive_path(d->database, e, "%s/%.12s.sqlite", folder, id)) < 0 ||
        (r = drive_path(d->hardware_record, e, "%s%s/%.12s-%.12s.json", *folder == '/' ? "" : "./", folder, id, device)) < 0)
        return r;
    struct js *old = store_read(d, d->hardware_record), *key = hardware_key(d, old);
    struct err why = { 0 };
    store_differs(old, key, t->why[HARDWARE], WHY);
    if (!t->why[HARDWARE][0] && !exists(d->database))
        gone(d->database, t->why[HARDWARE]);
    else if (!t->why[HARDWARE][0] && hardware_of(d, d->device_name, &why) < 0)
        gone(d->database, t->why[HARDWARE]);
    else if (!t->why[HARDWARE][0] && found_wrong(d, old, wrong))
        snprintf(t->why[HARDWARE], WHY, "a run found it wrong: %s", wrong);
    js_free(old);
    js_free(key);
    return 0;
}

static void words_hardware(const struct drive *d, struct words *w)
{
    drive_program(d, w, "thermo-profile");
    words_add(w, "hardware");
    words_add2(w, "--db", d->database);
    words_add2(w, "--device", d->device_name);
    words_add2(w, "--storage", d->dir);
    if (!d->full)
        words_add(w, "--quick");
}

static int make_hardware(struct drive *d, struct needs *t, struct err *e)
{
    struct words w = { 0 };
    char moved[DRIVE_PATH], wrong[96];
    struct js *readable = NULL, *old, *key;
    struct err why = { 0 };
    int r = 0;
    if (d->hardware) {
        drive_say(d, "== %s: from '%s'", stages[HARDWARE].name, d->hardware);
        return 0;
    }
    if (!begin(d, t, HARDWARE))
        return 0;
    old = store_read(d, d->hardware_record);
    key = hardware_key(d, old);
    store_forget(d, d->hardware_record);
    if (exists(d->database) && drive_asks(d, "thermo-profile", "show", d->database, &readable, NULL, &why) < 0) {
        if (why.code == ERR_INTR)
            r = err_set(e, ERR_INTR, "%s", why.msg);
        else if ((r = drive_path(moved, e, "%s.unreadable", d->database)) == 0 && rename(d->database, moved) < 0)
            r = err_sys(e, ERR_SYS, "cannot rename '%s'", d->database);
        else if (r == 0)
            drive_say(d, "   '%s' cannot be read and is now '%s'", d->database, moved);
    }
    js_free(readable);
    words_hardware(d, &w);
    if (r == 0)
        r = run(d, &w, e);
    words_done(&w);
    if ((r = ended(d, HARDWARE, r, e)) == 0 && (r = hardware_of(d, d->device_name, e)) == 0) {
        js_set_str(key, "result", d->hardware_id);
        if (found_wrong(d, old, wrong)) {
            snprintf(wrong, sizeof wrong, "%lld", (long long)time(NULL));
            js_set_str(key, "measured again", wrong);
        } else if (*store_field(old, "measured again")) {
            js_set_str(key, "measured again", store_field(old, "measured again"));
        }
        r = store_write(d, d->hardware_record, key, e);
        if (drive_path(moved, &why, "%s.wrong", d->hardware_record) == 0)
            unlink(moved);
    }
    js_free(old);
    js_free(key);
    return r;
}

/* ---- a plan, by what is there ---- */

void stages_words_plan(const struct drive *d, struct words *w)
{
    char context[24];
    snprintf(context, sizeof context, "%llu", (unsigned long long)d->context);
    words_add2(w, "--memory", d->memory_text);
    if (*drive_purpose(d))
        words_add2(w, "--for", drive_purpose(d));
    words_add_split(w, d->plan_flags);
    if (d->context)
        words_add2(w, "--context", context);
}

static int solve(struct drive *d, const char *for_pack, const char *out, struct err *e)
{
    struct words w = { 0 };
    drive_program(d, &w, "thermo-plan");
    words_add(&w, "solve");
    words_add2(&w, "--traces", d->traces);
    words_add2(&w, "--hardware", d->database);
    if (*d->device_name)
        words_add2(&w, "--device", d->device_name);
    stages_words_plan(d, &w);
    words_add2(&w, "--for-pack", for_pack);
    words_add2(&w, "--out", out);
    int r = run(d, &w, e);
    words_done(&w);
    return r;
}

/* ---- 2 trace ---- */

/* Where no neuron is ever silent and none is chosen by a router, a trace says what the model is, and no more. */
static int says_little(const struct drive *d)
{
    return !d->zeros && !d->experts && !d->max_tokens;
}

static struct js *trace_key(const struct drive *d)
{
    struct js *key = js_object();
    char tokens[24] = "";
    if (d->max_tokens)
        snprintf(tokens, sizeof tokens, "%llu", (unsigned long long)d->max_tokens);
    js_put(key, JS_STR("the model", d->model_id), JS_STR("the prompts", d->prompts_id), JS_STR("--max-tokens", tokens),
           JS_STR("--trace-flags", d->trace_flags ? d->trace_flags : ""), JS_STR("the format of traces", VERSION_TEXT(TRACE_REVISION)));
    return key;
}

/* A trace of so many tokens that began, 0: of all; its model is not known yet by its whole content, which the program compares itself.
 * With speed: what a plan by it promised. */
static struct js *begun_key(const struct drive *d, uint64_t tokens, double speed)
{
    struct js *key = trace_key(d);
    char text[40];
    hash_text(d->quick, text);
    js_set_str(key, "the model", text);
    snprintf(text, sizeof text, "%llu", (unsigned long long)tokens);
    js_set_str(key, "tokens", text);
    snprintf(text, sizeof text, "%.9g", speed);
    if (speed > 0)
        js_set_str(key, "tokens a second", text);
    return key;
}

/* What a trace is known by, from `show`; predictors that were added since are no reason to trace again, but are one to plan again. */
static int look_at_trace(struct drive *d, char result[2 * HASH_TEXT], char model[HASH_TEXT], uint64_t *tokens, struct err *e)
{
    struct js *j;
    int r = drive_asks(d, "thermo-profile", "show", d->traces, &j, d->trace_id, e);
    if (r < 0)
        return r;
    snprintf(model, HASH_TEXT, "%s", store_field(js_get(j, "model"), "hash"));
    snprintf(result, 2 * HASH_TEXT, "%s %s", model, store_field(j, "content_hash"));
    *tokens = (uint64_t)number(j, "n_tokens");
    js_free(j);
    return 0;
}

static int trace_made(struct drive *d, const char *result, struct err *e)
{
    struct js *key = trace_key(d);
    char *one[] = { d->traces }, *stats = store_stats(one, 1, e);
    int r = stats ? 0 : e->code;
    js_put(key, JS_STR("result", result), JS_STR("identity", d->trace_id), JS_STR("stats", stats));
    if (r == 0)
        r = store_write(d, "trace", key, e);
    free(stats);
    js_free(key);
    return r;
}

static int find_trace(struct drive *d, struct needs *t, struct err *e)
{
    char result[2 * HASH_TEXT], model[HASH_TEXT], *one[] = { d->traces }, *stats;
    uint64_t tokens;
    struct err ignored = { 0 };
    struct js *old = store_read(d, "trace"), *key;
    int r = store_same_model(d, e);
    if (r >= 0) {
        key = trace_key(d);
        store_differs(old, key, t->why[TRACE], WHY);
        js_free(key);
    }
    if (r >= 0 && !t->why[TRACE][0]) {
        if ((stats = store_stats(one, 1, &ignored)) && !strcmp(stats, store_field(old, "stats")))
            snprintf(d->trace_id, sizeof d->trace_id, "%s", store_field(old, "identity"));
        else if (!stats || look_at_trace(d, result, model, &tokens, &ignored) < 0 || strcmp(result, store_field(old, "result")))
            gone(d->traces, t->why[TRACE]);
        else
            r = trace_made(d, result, e);
        free(stats);
    }
    js_free(old);
    return r < 0 ? r : 0;
}

static void words_trace(const struct drive *d, struct words *w, uint64_t n_tokens, const char *more)
{
    char tokens[24];
    snprintf(tokens, sizeof tokens, "%llu", (unsigned long long)n_tokens);
    drive_program(d, w, "thermo-profile");
    words_add(w, "trace");
    words_add2(w, "--model", d->model);
    words_add2(w, "--prompts", d->prompts_file);
    words_add2(w, "--out", d->traces);
    words_add2(w, "--max-tokens", tokens);
    if (!d->zeros) /* there is nothing to predict, and no predictor to train */
        words_add2(w, "--samples", "0");
    words_add_split(w, d->trace_flags);
    if (more)
        words_add(w, more);
}

static int run_trace(struct drive *d, uint64_t tokens, const char *more, struct err *e)
{
    struct words w = { 0 };
    words_trace(d, &w, tokens, more);
    int r = run(d, &w, e);
    words_done(&w);
    return r;
}

/* A trace of so many tokens, from where it was interrupted. */
static int trace_tokens(struct drive *d, uint64_t tokens, struct err *e)
{
    char partial[DRIVE_PATH], differs[WHY];
    int r = drive_path(partial, e, "%s.partial", d->traces), resumed = 0;
    struct js *old = store_read(d, "trace.begun"), *key = begun_key(d, tokens, 0);
    if (r == 0 && !*store_differs(old, key, differs, sizeof differs) && (exists(partial) || exists(d->traces))) {
        drive_say(d, "   going on where it was interrupted");
        r = run_trace(d, tokens, "--resume", e);
        resumed = r != 2 && r != 3 && r != 5;
        if (!resumed)
            drive_say(d, "   what was left of it is of no use: from the beginning");
    }
    if (r >= 0 && !resumed) {
        unlink(partial);
        unlink(d->traces);
        if ((r = store_write(d, "trace.begun", key, e)) == 0)
            r = run_trace(d, tokens, NULL, e);
    }
    js_free(old);
    js_free(key);
    return r;
}

/* What a plan by the trace that is there promises, in tokens a second; 0 where there is none. */
static int speed_of_plan(struct drive *d, double *speed, struct err *e)
{
    char out[DRIVE_PATH];
    struct err ignored = { 0 };
    int r = drive_path(out, e, "%s/asked-plan.json", d->state);
    *speed = 0;
    if (r < 0 || (r = solve(d, NULL, out, e)) != 0)
        return r < 0 ? r : 0;
    struct js *j = js_read(out, 1u << 30, (size_t)2 << 30, &ignored);
    const struct js *limits = js_get(js_get(j, "predictions"), "limits");
    *speed = number(js_at(js_get(js_at(limits, js_len(limits) - 1), "batches"), 0), "tokens_per_s");
    js_free(j);
    unlink(out);
    return 0;
}

/* So many tokens that twice as many give a plan that promises the same, within SAME_SPEED: half of them had said what all say. Where it
 * was interrupted it goes on, for each step is kept with what its plan promised. */
static int trace_enough(struct drive *d, struct err *e)
{
    char result[2 * HASH_TEXT], differs[WHY];
    uint64_t tokens = d->max_tokens ? d->max_tokens : says_little(d) ? DENSE_TOKENS : FIRST_TOKENS, traced;
    double before = 0, now;
    struct js *step = store_read(d, "trace.step"), *key;
    const int fixed = d->max_tokens || says_little(d);
    if (!fixed && step) {
        uint64_t had = strtoull(store_field(step, "tokens"), NULL, 10);
        key = begun_key(d, had, before = strtod(store_field(step, "tokens a second"), NULL));
        if (had && had < (uint64_t)1 << 40 && before > 0 && !*store_differs(step, key, differs, sizeof differs))
            tokens = 2 * had;
        else
            before = 0;
        js_free(key);
    }
    js_free(step);
    for (int r;; tokens *= 2, before = now) {
        if ((r = trace_tokens(d, tokens, e)) != 0 || (r = unchanged_model(d, TRACE, e)) < 0 ||
            (r = look_at_trace(d, result, d->model_id, &traced, e)) < 0)
            return r;
        if (fixed || traced + 1 < tokens) /* that is all the text there is */
            break;
        if ((r = speed_of_plan(d, &now, e)) < 0)
            return r;
        if (before > 0 && now > 0)
            drive_say(d, "   %llu tokens: a plan by them promises %.3g tokens/s, by half of them %.3g%s", (unsigned long long)tokens, now,
                      before, fabs(now / before - 1) < SAME_SPEED ? ": enough" : "");
        if (now <= 0 || (before > 0 && fabs(now / before - 1) < SAME_SPEED))
            break;
        key = begun_key(d, tokens, now);
        r = store_write(d, "trace.step", key, e);
        js_free(key);
        if (r < 0)
            return r;
    }
    return trace_made(d, result, e);
}

static int make_trace(struct drive *d, struct needs *t, struct err *e)
{
    int r;
    if (!begin(d, t, TRACE))
        return 0;
    store_forget(d, "trace");
    if ((r = ended(d, TRACE, trace_enough(d, e), e)) == 0 && (r = store_keep_model(d, e)) == 0) {
        store_forget(d, "trace.begun");
        store_forget(d, "trace.step");
    }
    return r;
}

/* ---- 4 pack: before the plan, which is made for a pack that is there ---- */

/* A pack outlives its plan: for another limit or device a new plan for the same pack will do, as long as model and neuron order are those
 * that it was made from. */
static struct js *pack_key(const struct drive *d)
{
    struct js *key = js_object();
    js_put(key, JS_STR("the model", d->model_id), JS_STR("the trace", d->trace_id), JS_STR("the program", d->pack_version));
    return key;
}

static void find_pack(struct drive *d, struct needs *t)
{
    char id[HASH_TEXT], *one[] = { d->pack }, *stats;
    struct err ignored = { 0 };
    struct js *old = store_read(d, "pack"), *key = pack_key(d);
    store_differs(old, key, t->why[PACK], WHY);
    if (!t->why[PACK][0]) {
        stats = store_stats(one, 1, &ignored);
        int same = stats && !strcmp(stats, store_field(old, "stats"));
        if (!same && (drive_asks(d, "thermo-pack", "inspect", d->pack, NULL, id, &ignored) < 0 || strcmp(id, store_field(old, "result"))))
            gone(d->pack, t->why[PACK]);
        free(stats);
    }
    js_free(old);
    js_free(key);
}

static int plan_layout(const struct drive *d, char out[HASH_TEXT], struct err *e)
{
    struct js *j = js_read(d->plan, 1u << 30, (size_t)2 << 30, e);
    if (!j)
        return e->code;
    snprintf(out, HASH_TEXT, "%s", store_field(js_get(js_get(j, "decisions"), "layout"), "hash"));
    js_free(j);
    return 0;
}

static int make_pack(struct drive *d, struct needs *t, struct err *e)
{
    char layout[HASH_TEXT], id[HASH_TEXT], *one[] = { d->pack }, *stats = NULL;
    struct words w = { 0 };
    struct js *key = pack_key(d), *old = store_read(d, "pack");
    int r = plan_layout(d, layout, e);
    js_set_str(key, "the plan's layout", layout);
    if (!t->why[PACK][0])
        store_differs(old, key, t->why[PACK], WHY);
    if (r == 0 && begin(d, t, PACK)) {
        store_forget(d, "pack");
        drive_program(d, &w, "thermo-pack");
        words_add(&w, "pack");
        words_add2(&w, "--model", d->model);
        words_add2(&w, "--traces", d->traces);
        words_add2(&w, "--plan", d->plan);
        words_add2(&w, "--out", d->pack);
        int consume = d->consume || *d->consumed;
        if (consume) {
            words_add(&w, "--consume");
            r = store_consume(d, e);
        }
        if (r == 0 && (r = ended(d, PACK, run(d, &w, e), e)) == 0 && (consume || (r = unchanged_model(d, PACK, e)) == 0) &&
            (r = drive_asks(d, "thermo-pack", "inspect", d->pack, NULL, id, e)) == 0 && (stats = store_stats(one, 1, e))) {
            js_put(key, JS_STR("stats", stats), JS_STR("result", id));
            r = store_write(d, "pack", key, e);
        } else if (r == 0) {
            r = e->code;
        }
    }
    free(stats);
    words_done(&w);
    js_free(key);
    js_free(old);
    return r;
}

/* ---- 3 plan ---- */

static int file_id(const char *path, char out[HASH_TEXT], struct err *e)
{
    char *text;
    size_t len;
    int r = file_slurp(path, 1u << 30, &text, &len, e);
    if (r < 0)
        return r;
    hash_text(hash_128(text, len), out);
    free(text);
    return 0;
}

static struct js *plan_key(const struct drive *d)
{
    struct js *key = js_object();
    char context[24] = "";
    if (d->context)
        snprintf(context, sizeof context, "%llu", (unsigned long long)d->context);
    js_put(key, JS_STR("the trace", d->trace_id), JS_STR("the device's figures", d->hardware_id),
           JS_STR("--device", d->device_name), JS_STR("--memory", d->memory_text), JS_STR("--context", context),
           JS_STR("what it is for", drive_purpose(d)), JS_STR("--plan-flags", d->plan_flags ? d->plan_flags : ""),
           JS_STR("the program", d->plan_version));
    return key;
}

/* A layout that is asked for is planned, whatever that of the pack is. */
static int own_layout(const struct drive *d)
{
    static const char *const options[] = { "--form", "--packed", "--down-type", "--gate-type", "--cluster-neurons" };
    struct words w = { 0 };
    int found = 0;
    words_add_split(&w, d->plan_flags);
    for (int i = 0; i < w.n; i++)
        for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
            size_t n = strlen(options[k]);
            found |= !strncmp(w.w[i], options[k], n) && (!w.w[i][n] || w.w[i][n] == '=');
        }
    words_done(&w);
    return found;
}

static void find_plan(struct drive *d, struct needs *t)
{
    char id[HASH_TEXT], layout[HASH_TEXT];
    struct err ignored = { 0 };
    struct js *old = store_read(d, d->plan_record), *pack = store_read(d, "pack"), *key = plan_key(d);
    store_differs(old, key, t->why[PLAN], WHY);
    if (!t->why[PLAN][0] && (file_id(d->plan, id, &ignored) < 0 || strcmp(id, store_field(old, "result"))))
        gone(d->plan, t->why[PLAN]);
    /* Another plan's pack: one for it costs seconds, a pack of its own would cost that plan's. */
    if (!t->why[PLAN][0] && !t->why[PACK][0] && !own_layout(d) && plan_layout(d, layout, &ignored) == 0 &&
        strcmp(layout, store_field(pack, "the plan's layout")))
        snprintf(t->why[PLAN], WHY, "the pack that is there has another layout");
    js_free(old);
    js_free(pack);
    js_free(key);
}

static int make_plan(struct drive *d, struct needs *t, struct err *e)
{
    enum { INFEASIBLE = 4 };
    char id[HASH_TEXT];
    int r = INFEASIBLE;
    if (!begin(d, t, PLAN))
        return 0;
    struct js *key = plan_key(d);
    store_forget(d, d->plan_record);
    int packed = !t->why[PACK][0];
    if (packed && (*d->consumed || !own_layout(d)) && (r = solve(d, d->pack, d->plan, e)) == INFEASIBLE && !*d->consumed)
        drive_say(d, "   not with the pack that is there: trying with another layout, which packs again");
    if (r == INFEASIBLE && (!packed || !*d->consumed))
        r = solve(d, NULL, d->plan, e);
    if ((r = ended(d, PLAN, r, e)) == 0 && (r = file_id(d->plan, id, e)) == 0) {
        js_set_str(key, "result", id);
        r = store_write(d, d->plan_record, key, e);
    }
    js_free(key);
    return r;
}

/* ---- all of them ---- */

/* What a program says of a run to come. NULL: nothing. */
static struct js *dry_run(struct words *w)
{
    struct err ignored = { 0 };
    struct js *j = NULL;
    char *text = NULL;
    size_t len;
    int status;
    words_add(w, "--dry-run");
    words_add(w, "--json");
    if (child_read(w, &text, &len, NULL, 0, &status, &ignored) == 0 && status == 0)
        j = js_parse(text, len, "a dry run", &ignored);
    free(text);
    words_done(w);
    return j;
}

static int same_drive(const struct drive *d)
{
    struct stat a, b;
    return stat(d->model, &a) == 0 && stat(d->dir, &b) == 0 && a.st_dev == b.st_dev;
}

/* Seconds and bytes of what is to be done. */
static void expect(struct drive *d, struct needs *t)
{
    struct words w = { 0 };
    struct js *j;
    uint64_t passing = 0;
    if (t->why[HARDWARE][0]) {
        words_hardware(d, &w);
        j = dry_run(&w);
        t->seconds[HARDWARE] = number(j, "seconds");
        passing = (uint64_t)number(j, "disk_bytes");
        js_free(j);
    }
    if (t->why[TRACE][0]) {
        words_trace(d, &w, d->max_tokens ? d->max_tokens : says_little(d) ? DENSE_TOKENS : 3 * FIRST_TOKENS, NULL); /* two steps at least */
        j = dry_run(&w);
        t->seconds[TRACE] = number(j, "estimated_seconds");
        t->seconds[TRACE] += (number(j, "chunks") + 1) * number(j, "weight_bytes_per_chunk") / READ_BYTES_PER_S;
        t->disk_bytes += (uint64_t)(number(j, "partial_bytes") + number(j, "trace_bytes_max"));
        js_free(j);
    }
    t->seconds[PLAN] = PLAN_SECONDS;
    t->seconds[PACK] = (double)d->model_bytes / PACK_BYTES_PER_S;
    if (t->why[PACK][0])
        t->disk_bytes += (*d->consumed || (d->consume && same_drive(d)) ? 0 : d->model_bytes) + d->model_bytes / 50;
    t->disk_bytes = t->disk_bytes > passing ? t->disk_bytes : passing;
}

static int announce(struct drive *d, struct needs *t, struct err *e)
{
    char line[256] = "", time[24], a[24], b[24];
    double all = 0;
    uint64_t space;
    size_t n = 0;
    int todo = 0;
    for (int i = 0; i < STAGES; i++)
        todo |= t->why[i][0] != '\0';
    if (!todo)
        return 0;
    expect(d, t);
    for (int i = 0; i < STAGES; i++) {
        if (!t->why[i][0])
            continue;
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s %s", n ? ", " : "", stages[i].name + 2,
                              bar_time(t->seconds[i], time, sizeof time));
        all += t->seconds[i];
    }
    int r = file_free_bytes(d->dir, &space, e);
    if (r < 0)
        return r;
    drive_say(d, "to do: %s: about %s, and %s of disk in '%s' (%s free)", line, bar_time(all, time, sizeof time),
              size_format(t->disk_bytes, a, sizeof a), d->dir, size_format(space, b, sizeof b));
    if (t->disk_bytes <= space)
        return 0;
    return err_set(e, ERR_SYS, "'%s' has %s free, and %s are needed: nothing was done; make room, or name a folder on another drive "
                   "with %s", d->dir, b, a, d->out ? "--out" : "--cache");
}

/* What would be overwritten, and is an input. */
static int check_inputs(struct drive *d, struct err *e)
{
    char partial[DRIVE_PATH];
    const char *made[] = { d->traces, partial, d->plan, d->pack };
    struct words in = { 0 };
    struct stat a, b;
    int r = drive_path(partial, e, "%s.partial", d->traces);
    for (int i = 0; i < d->shards.n; i++)
        words_add(&in, d->shards.w[i]);
    words_add(&in, d->prompts_file);
    if (d->hardware)
        words_add(&in, d->hardware);
    for (int i = 0; i < in.n && r == 0; i++)
        for (size_t k = 0; k < sizeof made / sizeof *made && r == 0; k++)
            if (stat(in.w[i], &a) == 0 && stat(made[k], &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
                r = err_set(e, ERR_USAGE, "'%s' and '%s' are the same file, which would be overwritten; nothing was touched: copy it, or "
                            "name another folder with --out", in.w[i], made[k]);
    words_done(&in);
    return r;
}

/* What is there is looked at twice: before anything is done, so that it can be said how long all takes, and after the trace, by what it
 * gave. */
int stages_make(struct drive *d, struct err *e)
{
    struct needs t = { 0 };
    int r;
    if ((r = check_inputs(d, e)) < 0 || (r = store_content(d, "prompts", d->prompts_file, d->prompts_id, e)) < 0)
        return r;
    if (d->fresh) {
        static const char *const all[] = { "model", "prompts", "trace", "trace.begun", "trace.step", "pack" };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            store_forget(d, all[i]);
        store_forget(d, d->plan_record);
    }
    if ((r = version_of(d, "thermo-plan", d->plan_version, e)) < 0 || (r = version_of(d, "thermo-pack", d->pack_version, e)) < 0 ||
        (r = find_hardware(d, &t, e)) < 0 || (r = find_trace(d, &t, e)) < 0)
        return r;
    if (*d->consumed && t.why[TRACE][0])
        return err_set(e, ERR_USAGE, "'%s' was consumed by pack '%s', and no trace can be made of it again, which would be needed: %s",
                       d->model, d->consumed, t.why[TRACE]);
    if (d->fresh && !d->hardware)
        snprintf(t.why[HARDWARE], WHY, "of --fresh");
    for (int i = PLAN; i <= PACK; i++)
        snprintf(t.why[i], WHY, "%s", t.why[TRACE][0] || (i == PLAN && t.why[HARDWARE][0]) ? "it was not made yet" : "");
    if (!t.why[PACK][0])
        find_pack(d, &t);
    if (!t.why[PLAN][0])
        find_plan(d, &t);
    if ((r = announce(d, &t, e)) < 0 || (r = make_hardware(d, &t, e)) != 0 || (r = make_trace(d, &t, e)) != 0)
        return r;
    find_pack(d, &t); /* by what has been made */
    find_plan(d, &t);
    int packed = !t.why[PACK][0];
    if ((r = make_plan(d, &t, e)) != 0 || (r = make_pack(d, &t, e)) != 0)
        return r;
    if (d->consume && packed && !*d->consumed && !t.why[PACK][0])
        drive_say(d, "--consume: the pack is there, so '%s' was left as it is; it is not needed for answers", d->model);
    return 0;
}
