/* A request that waits is in one queue, and the first one says which model is opened next. Its turn comes for all that wait for that model:
 * they have it (`granted`, counted among its uses) before the worker sees them again. */
#include "server/models.h"

#include "common/base/log.h"
#include "common/base/progress.h"

#include <dirent.h>
#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MODELS  256  /* in a folder */
#define WAITING 32   /* requests */
#define NAME    128  /* bytes of a name, at most */
#define LOOK_MS 50
#define EVENTS  "text/event-stream"
#define ENDING  "the server is about to end"

struct model {
    char *name, *model, *plan;
    int context;        /* 0: it was not open yet */
    int64_t since;      /* it was opened, seconds since 1970; 0: not yet */
};

/* A request that waits, or whose turn it is and whom the worker has not seen again. */
struct wait {
    struct models *m;
    struct call *call;
    const struct model *model;
    struct wait *next;
    int queued, left;   /* left: its client has */
};

struct models {
    struct server *s;
    struct models_config config;
    struct model *list;
    int n;
    size_t bytes;
    pthread_t thread;
    int started;
    int cancel;         /* of thermo_open */
    pthread_mutex_t lock; /* of what follows; HTTP's may be held, and is not taken under it */
    pthread_cond_t changed;
    struct model *open, *opening, *last;
    struct wait *first, *granted;
    int n_waiting, uses;
    int boot, draining, stop; /* boot: the first is opened without a request */
    struct err boot_error;
    uint64_t limit, loads;    /* limit: of POST /memory; 0: none */
    int64_t used_ns;
};

/* ---- which there are ---- */

static char *join(const char *dir, const char *name, const char *file)
{
    const size_t n = strlen(dir) + strlen(name) + strlen(file) + 3;
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%s/%s/%s", dir, name, file);
    return path;
}

static int add(struct models *m, char *name, char *model, char *plan, struct err *e)
{
    struct model *list = name && model && plan ? realloc(m->list, (size_t)(m->n + 1) * sizeof *list) : NULL;
    if (!list) {
        free(name);
        free(model);
        free(plan);
        return err_set(e, ERR_NOMEM, "out of memory for a list of models");
    }
    m->list = list;
    list[m->n++] = (struct model){ .name = name, .model = model, .plan = plan };
    m->bytes += sizeof *list + strlen(name) + strlen(model) + strlen(plan) + 64;
    return 0;
}

/* A subfolder that has both files; one that has none is something else. */
static int look_at(struct models *m, const char *name, struct err *e)
{
    char *model = join(m->config.dir, name, "model.thermo"), *plan = join(m->config.dir, name, "plan.json");
    const int has = (model && access(model, F_OK) == 0) + 2 * (plan && access(plan, F_OK) == 0);
    if (has == 3 && m->n == MODELS) {
        free(model);
        free(plan);
        return err_set(e, ERR_LIMIT, "--models '%s' has more than %d models", m->config.dir, MODELS);
    }
    if ((has == 3 && strlen(name) <= NAME) || !model || !plan)
        return add(m, strdup(name), model, plan, e);
    if (has == 3)
        log_warn("--models: the name of '%s/%s' has more than %d bytes: it is left out", m->config.dir, name, NAME);
    else if (has)
        log_warn("--models: '%s/%s' has no %s: it is left out", m->config.dir, name, has == 1 ? "plan.json" : "model.thermo");
    free(model);
    free(plan);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct model *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int look_in(struct models *m, struct err *e)
{
    DIR *d = opendir(m->config.dir);
    int r = d ? 0 : err_sys(e, ERR_INPUT, "--models '%s'", m->config.dir);
    for (struct dirent *at; r == 0 && (at = readdir(d));)
        if (at->d_name[0] != '.')
            r = look_at(m, at->d_name, e);
    if (d)
        closedir(d);
    if (r == 0 && !m->n)
        r = err_set(e, ERR_INPUT, "--models '%s' has no subfolder with model.thermo and plan.json, as thermocline --out DIR/NAME makes",
                    m->config.dir);
    if (r == 0)
        qsort(m->list, (size_t)m->n, sizeof *m->list, by_name);
    return r;
}

int models_find(struct server *s, const struct models_config *c, struct models **out, struct err *e)
{
    struct models *m = calloc(1, sizeof *m);
    pthread_condattr_t clock;
    if (!m)
        return err_set(e, ERR_NOMEM, "out of memory");
    m->s = s;
    m->config = *c;
    m->bytes = WAITING * (sizeof(struct wait) + 16);
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &clock);
    pthread_condattr_destroy(&clock);
    int r = c->dir ? look_in(m, e) : add(m, strdup(c->name), strdup(c->model), strdup(c->plan), e);
    if (r < 0) {
        models_free(m);
        return r;
    }
    m->last = m->list;
    *out = m;
    return 0;
}

size_t models_bytes(const struct models *m)
{
    return m->bytes;
}

void models_free(struct models *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n; i++) {
        free(m->list[i].name);
        free(m->list[i].model);
        free(m->list[i].plan);
    }
    free(m->list);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free(m);
}

static struct model *find(const struct models *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->list[i].name, name))
            return &m->list[i];
    return NULL;
}

/* Of one alone any name is its. */
int models_has(const struct models *m, const char *name)
{
    return !m->config.dir || find(m, name) != NULL;
}

/* ---- the thread; what follows is called with the lock, which it gives back meanwhile ---- */

/* The first that waits for this model, or whose client has left; of: NULL: any. */
static struct wait *pop(struct models *m, const struct model *of)
{
    for (struct wait **at = &m->first, *w; (w = *at); at = &w->next)
        if (!of || w->model == of || w->left) {
            *at = w->next;
            m->n_waiting -= !w->left;
            w->queued = 0;
            return w;
        }
    return NULL;
}

/* Those that wait for a model are told what went wrong. */
static void refuse(struct models *m, const struct model *of, int status, const char *message)
{
    for (struct wait *w; (w = pop(m, of));) {
        pthread_mutex_unlock(&m->lock);
        call_on_gone(w->call, NULL, NULL);
        server_error(m->s, w->call, status, status == 500 ? "model" : NULL, NULL, message);
        call_release(w->call);
        free(w);
        pthread_mutex_lock(&m->lock);
    }
}

/* Those that wait for the model that is open have it. */
static void grant(struct models *m)
{
    for (struct wait *w; (w = pop(m, m->open));) {
        struct call *c = w->call;
        const int left = w->left;
        if (!left) {
            w->next = m->granted;
            m->granted = w;
            m->uses++;
        }
        pthread_mutex_unlock(&m->lock);
        call_on_gone(c, NULL, NULL);
        if (left) {
            call_release(c);
            free(w);
        } else {
            call_again(c); /* w is the worker's */
        }
        pthread_mutex_lock(&m->lock);
    }
}

static void drop_left(struct models *m)
{
    static const struct model none;
    for (struct wait *w; (w = pop(m, &none));) {
        pthread_mutex_unlock(&m->lock);
        call_release(w->call);
        free(w);
        pthread_mutex_lock(&m->lock);
    }
}

static void set(struct server *s, struct thermo *t, const struct model *of, int64_t sequences, int64_t places, int64_t context)
{
    pthread_mutex_lock(&s->lock);
    s->t = t;
    s->name = of ? of->name : NULL;
    s->sequences = (int)sequences;
    s->places = (int)places;
    s->context = (int)context;
    pthread_mutex_unlock(&s->lock);
}

static void unload(struct models *m)
{
    struct thermo *t = m->s->t;
    const char *name = m->open->name;
    m->open = NULL;
    set(m->s, NULL, NULL, 0, 0, 0);
    pthread_mutex_unlock(&m->lock);
    thermo_close(t);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    log_info("model '%s' is unloaded", name);
    pthread_mutex_lock(&m->lock);
}

/* Limits of the model that is open. */
static int look(struct thermo *t, int64_t *sequences, int64_t *places, int64_t *context, struct thermo_error *e)
{
    struct err why;
    char *text = thermo_describe(t);
    struct js *j = text ? js_parse(text, strlen(text), "the model", &why) : NULL;
    const int ok = js_int(js_get(j, "sequences"), sequences) && js_int(js_get(j, "requests"), places) &&
                   js_int(js_get(j, "context"), context);
    js_free(j);
    thermo_free(text);
    if (ok)
        return 0;
    *e = (struct thermo_error){ .code = THERMO_E_MEMORY, .message = "out of memory for a server" };
    return THERMO_E_MEMORY;
}

/* POST /memory holds over loads. */
static int open_within(struct models *m, const struct model *of, uint64_t limit, struct thermo **t, struct thermo_error *e)
{
    struct thermo_options o = m->config.o;
    o.model = of->model;
    o.plan = of->plan;
    o.cancel = &m->cancel;
    int r = thermo_open(&o, t, e);
    if (r == 0 && limit && (r = thermo_resize(*t, limit, e)) < 0) {
        thermo_close(*t);
        *t = NULL;
    }
    return r;
}

static void load(struct models *m, struct model *of)
{
    struct thermo *t = NULL;
    struct thermo_error e = { 0 };
    char why[768];
    int64_t sequences = 0, places = 0, context = 0;
    const uint64_t limit = m->limit;
    m->opening = of;
    m->cancel = 0;
    pthread_mutex_unlock(&m->lock);
    int r = open_within(m, of, limit, &t, &e);
    if (r == 0)
        r = look(t, &sequences, &places, &context, &e);
    if (r < 0)
        thermo_close(t);
    pthread_mutex_lock(&m->lock);
    m->opening = NULL;
    m->used_ns = progress_now_ns();
    if (m->boot && r < 0)
        err_set(&m->boot_error, e.code, "%s", e.message);
    if (r == 0) {
        m->open = m->last = of;
        m->loads++;
        of->since = (int64_t)time(NULL);
        of->context = (int)context;
        set(m->s, t, of, sequences, places, context);
        if (!m->boot)
            log_info("model '%s' is loaded", of->name);
    } else if (!m->draining && e.code == THERMO_E_INTERRUPTED) {
        refuse(m, of, 503, ENDING); /* the end is asked for, and is said in a moment */
    } else if (!m->draining) {
        snprintf(why, sizeof why, "the model '%s' cannot be opened: %s", of->name, e.message);
        if (!m->boot)
            log_warn("%s", why);
        refuse(m, of, e.code == THERMO_E_MEMORY ? 503 : 500, why);
    }
    m->boot = 0;
}

static void step(struct models *m)
{
    struct thermo_error e;
    struct thermo *t = m->s->t;
    pthread_mutex_unlock(&m->lock);
    int bad = thermo_step(t, LOOK_MS, &e);
    pthread_mutex_lock(&m->lock);
    if (bad >= 0 || m->stop)
        return;
    pthread_mutex_unlock(&m->lock);
    log_warn("%s", e.message); /* those that it concerns have been told */
    poll(NULL, 0, 10);
    pthread_mutex_lock(&m->lock);
}

static int64_t idle_end(const struct models *m)
{
    return m->used_ns + (int64_t)m->config.idle_s * 1000000000;
}

static void rest(struct models *m)
{
    if (!m->open || !m->config.idle_s) {
        pthread_cond_wait(&m->changed, &m->lock);
        return;
    }
    const int64_t end = idle_end(m);
    const struct timespec at = { .tv_sec = end / 1000000000, .tv_nsec = end % 1000000000 };
    pthread_cond_timedwait(&m->changed, &m->lock, &at);
}

static void *keep(void *ctx)
{
    struct models *m = ctx;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        drop_left(m);
        struct model *next = m->boot ? m->list : m->first ? find(m, m->first->model->name) : NULL;
        if (next && m->draining) {
            m->boot = 0;
            refuse(m, NULL, 503, ENDING);
        } else if (next && next == m->open) {
            grant(m);
        } else if (m->open && m->uses) {
            step(m);
        } else if (m->open && (next || m->stop || (m->config.idle_s && progress_now_ns() >= idle_end(m)))) {
            unload(m);
        } else if (m->stop) {
            break;
        } else if (next) {
            load(m, next);
        } else if (m->open && thermo_unwritten(m->s->t)) {
            step(m);
        } else {
            rest(m);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int models_start(struct models *m, uint64_t reserved, const struct cancel *asked, struct err *e)
{
    sigset_t all, was;
    m->config.o.reserved_bytes = reserved;
    m->boot = !m->config.dir;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &was); /* signals are the main thread's */
    m->started = pthread_create(&m->thread, NULL, keep, m) == 0;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (!m->started)
        return err_set(e, ERR_SYS, "a thread cannot be started");
    for (;;) {
        pthread_mutex_lock(&m->lock);
        const int done = !m->boot;
        const struct err why = m->boot_error;
        pthread_mutex_unlock(&m->lock);
        if (done && (why.code < 0 || cancel_asked(asked)))
            return err_set(e, why.code < 0 ? why.code : ERR_INTR, "%s", why.msg);
        if (done)
            return 0;
        if (cancel_asked(asked))
            models_drain(m);
        poll(NULL, 0, LOOK_MS);
    }
}

void models_drain(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    m->draining = 1;
    if (m->opening)
        cancel_ask((struct cancel *)(void *)&m->cancel);
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

void models_stop(struct models *m)
{
    if (!m->started)
        return;
    models_drain(m);
    pthread_mutex_lock(&m->lock);
    m->stop = 1;
    if (m->open && m->uses)
        thermo_interrupt(m->s->t);
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
}

/* ---- who uses it ---- */

/* The client closed its connection; under HTTP's lock. */
static void gone(void *ctx)
{
    struct wait *w = ctx;
    struct models *m = w->m;
    pthread_mutex_lock(&m->lock);
    m->n_waiting -= w->queued;
    w->left = 1;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

int models_granted(struct models *m, const struct call *c)
{
    pthread_mutex_lock(&m->lock);
    struct wait **at = &m->granted, *w;
    while ((w = *at) && w->call != c)
        at = &w->next;
    if (w)
        *at = w->next;
    pthread_mutex_unlock(&m->lock);
    const int found = w != NULL;
    free(w);
    return found;
}

/* NULL, or why not. */
static const char *queue(struct models *m, struct wait *w)
{
    const char *why = NULL;
    struct wait **end = &m->first;
    pthread_mutex_lock(&m->lock);
    if (m->draining)
        why = ENDING;
    else if (m->n_waiting == WAITING)
        why = "as many requests wait for a model as may; try again later";
    while (*end)
        end = &(*end)->next;
    if (!why) {
        *end = w;
        w->queued = 1;
        m->n_waiting += !w->left;
        pthread_cond_signal(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return why;
}

static void wait_for(struct models *m, struct call *c, const struct model *of, int stream, const char *alive)
{
    struct wait *w = calloc(1, sizeof *w);
    if (!w) {
        server_error(m->s, c, 503, NULL, NULL, "out of memory for a request");
        return;
    }
    *w = (struct wait){ .m = m, .call = c, .model = of };
    call_hold(c);
    if (stream) {
        call_set(c, "Cache-Control", "no-cache");
        call_set(c, "X-Accel-Buffering", "no");
    }
    if (call_on_gone(c, gone, w))
        w->left = 1;
    call_keep_alive(c, stream ? EVENTS : "application/json", alive);
    const char *why = queue(m, w);
    if (!why)
        return;
    call_on_gone(c, NULL, NULL);
    server_error(m->s, c, 503, NULL, NULL, why);
    call_release(c);
    free(w);
}

void models_unknown(struct models *m, struct call *c)
{
    server_error(m->s, c, 404, "model", "model_not_found", "there is no model of this name here; GET /v1/models lists all");
}

int models_enter(struct models *m, struct call *c, const char *name, int stream, const char *alive)
{
    pthread_mutex_lock(&m->lock);
    const struct model *of = !m->config.dir ? m->list : name ? find(m, name) : m->last;
    const int open = of && of == m->open && !m->n_waiting && !m->stop && !(m->draining && m->cancel);
    m->uses += open;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (open)
        return 1;
    if (of)
        wait_for(m, c, of, stream, alive);
    else
        models_unknown(m, c);
    return 0;
}

int models_peek(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    const int open = m->open && !m->stop;
    m->uses += open;
    pthread_mutex_unlock(&m->lock);
    return open;
}

void models_hold(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    m->uses++;
    pthread_mutex_unlock(&m->lock);
}

void models_leave(struct models *m, int used)
{
    pthread_mutex_lock(&m->lock);
    m->uses--;
    if (used)
        m->used_ns = progress_now_ns();
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

void models_limit(struct models *m, uint64_t memory_bytes)
{
    pthread_mutex_lock(&m->lock);
    m->limit = memory_bytes;
    pthread_mutex_unlock(&m->lock);
}

/* ---- what is said of it ---- */

const char *models_open_name(struct models *m, const char **opening)
{
    pthread_mutex_lock(&m->lock);
    const char *name = m->open ? m->open->name : NULL;
    *opening = m->opening ? m->opening->name : NULL;
    pthread_mutex_unlock(&m->lock);
    return name;
}

static void put_model(const struct models *m, const struct model *of, struct buffer *b)
{
    buffer_printf(b, "{\"id\":");
    buffer_string(b, of->name);
    buffer_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"thermocline\",\"loaded\":%s,\"meta\":{\"n_ctx\":",
                  (long long)of->since, of == m->open ? "true" : "false");
    if (of->context)
        buffer_printf(b, "%d}}", of->context);
    else
        buffer_printf(b, "null}}");
}

static void put_name(const struct model *of, struct buffer *b)
{
    buffer_printf(b, "{\"name\":");
    buffer_string(b, of->name);
    buffer_printf(b, ",\"model\":");
    buffer_string(b, of->name);
    buffer_printf(b, "}");
}

void models_put(struct models *m, struct buffer *b, const char *name)
{
    pthread_mutex_lock(&m->lock);
    if (name) {
        put_model(m, m->config.dir ? find(m, name) : m->list, b);
    } else {
        buffer_printf(b, "{\"object\":\"list\",\"data\":[");
        for (int i = 0; i < m->n; i++) {
            buffer_put(b, ",", i > 0, 1);
            put_model(m, &m->list[i], b);
        }
        buffer_printf(b, "],\"models\":[");
        for (int i = 0; i < m->n; i++) {
            buffer_put(b, ",", i > 0, 1);
            put_name(&m->list[i], b);
        }
        buffer_printf(b, "]}");
    }
    pthread_mutex_unlock(&m->lock);
}

void models_metrics(struct models *m, struct buffer *b)
{
    pthread_mutex_lock(&m->lock);
    buffer_printf(b, "# HELP thermo_model_loaded 1 of the model that is loaded.\n# TYPE thermo_model_loaded gauge\n");
    for (int i = 0; i < m->n; i++) {
        buffer_printf(b, "thermo_model_loaded{model=\"");
        buffer_escape(b, m->list[i].name, strlen(m->list[i].name), 1);
        buffer_printf(b, "\"} %d\n", &m->list[i] == m->open);
    }
    buffer_printf(b, "# HELP thermo_model_loads_total How often one was loaded.\n# TYPE thermo_model_loads_total counter\n"
                  "thermo_model_loads_total %llu\n# HELP thermo_requests_waiting Requests that wait for a model to be loaded.\n"
                  "# TYPE thermo_requests_waiting gauge\nthermo_requests_waiting %d\n", (unsigned long long)m->loads, m->n_waiting);
    pthread_mutex_unlock(&m->lock);
}
