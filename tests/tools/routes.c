/* routes csv TRACE.h5: the routing of a trace's tokens as the table that gguf-synth --routes reads.
 * routes policies FILE.csv|TRACE.h5 [PIECE TOKENS]: hit rates of caches of experts on a route, as a table: what the runtime's own
 * cache code does (common/plan/cache), other policies, and Belady's bound. With PIECE and TOKENS the route is cut into pieces of
 * PIECE tokens, drawn in random order until there are TOKENS. The first quarter (as recorded: the prompt) only warms up. */
#include "common/base/grow.h"
#include "common/base/splitmix.h"
#include "common/offline/trace/trace.h"
#include "common/plan/cache.h"
#include "planner/replay/replay_belady.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 5, POLICIES = 8, MAX_USED = 64 };
static const double sizes[SIZES] = { 0.05, 0.1, 0.25, 0.38, 0.5 };

/* Experts of all (token, layer), best first; where an engine computed no experts there are none. */
struct route {
    int n_tokens, n_layers, n_used, n_experts, warm;
    uint16_t *experts;      /* [n_tokens][n_layers][n_used] */
    uint8_t *there;         /* [n_tokens][n_layers] */
};

/* --- reading ------------------------------------------------------------------------------- */

static int from_trace(const char *path, struct route *r, struct err *e)
{
    struct trace *t;
    int k = trace_open(path, &t, e);
    if (k < 0)
        return k;
    const struct trace_info *i = trace_info(t);
    *r = (struct route){ (int)i->n_tokens, i->h.n_layers, i->h.n_experts_used, i->h.n_experts, (int)i->n_tokens / 4, NULL, NULL };
    size_t n = (size_t)r->n_tokens, rows = n * (size_t)r->n_layers, used = (size_t)r->n_used;
    uint16_t *layer = malloc(n * used * sizeof *layer + 1);
    r->experts = malloc(rows * used * sizeof *r->experts + 1);
    r->there = malloc(rows + 1);
    k = layer && r->experts && r->there ? 0 : err_set(e, ERR_NOMEM, "'%s'", path);
    if (k == 0 && r->n_experts == 0)
        k = err_set(e, ERR_USAGE, "'%s' has no experts", path);
    for (int l = 0; k == 0 && l < r->n_layers; l++)
        if ((k = trace_routing(t, l, 0, n, layer, e)) == 0)
            for (size_t at = 0; at < n; at++)
                memcpy(r->experts + (at * (size_t)r->n_layers + (size_t)l) * used, layer + at * used, used * sizeof *layer);
    if (k == 0)
        memset(r->there, 1, rows);
    free(layer);
    trace_close(t);
    return k;
}

static int from_csv(const char *path, struct route *r, struct err *e)
{
    char line[1024];
    int rows = 0, cap = 0, there_cap = 0;
    FILE *f = fopen(path, "r");
    if (!f || !fgets(line, sizeof line, f))
        return err_set(e, ERR_USAGE, "'%s' is no route", path);
    *r = (struct route){ 0 };
    for (const char *p = line; (p = strchr(p, ',')); p++)
        r->n_used++;
    r->n_used -= 2; /* phase, step, layer */
    while (r->n_used > 0 && r->n_used <= MAX_USED && fgets(line, sizeof line, f)) {
        char *p = strchr(line, ',');
        int step = 0, layer = 0, at = 0;
        if (!p || sscanf(p, ",%d,%d,%n", &step, &layer, &at) < 2 || at == 0 || step != r->n_tokens - (layer > 0))
            return err_set(e, ERR_FORMAT, "'%s' row %d is no row of a route", path, rows + 1);
        r->n_tokens = step + 1;
        r->n_layers = layer >= r->n_layers ? layer + 1 : r->n_layers;
        r->warm = line[0] == 'p' ? step + 1 : r->warm;
        if (!grow_array(&r->experts, rows, &cap, (size_t)r->n_used * sizeof *r->experts) || !grow_room(r->there, rows, there_cap))
            return err_set(e, ERR_NOMEM, "'%s'", path);
        int n = 0;
        for (char *field = strtok(p + at, ",\n"); field && n < r->n_used; field = strtok(NULL, ",\n")) {
            int x = atoi(field);
            r->experts[rows * r->n_used + n++] = (uint16_t)x;
            r->n_experts = x >= r->n_experts ? x + 1 : r->n_experts;
        }
        r->there[rows++] = n == r->n_used;
    }
    fclose(f);
    if (rows == 0 || rows != r->n_tokens * r->n_layers)
        return err_set(e, ERR_FORMAT, "'%s': %d rows, %d tokens, %d layers", path, rows, r->n_tokens, r->n_layers);
    return 0;
}

static int splice(struct route *r, int piece, int n, struct err *e)
{
    struct route out = *r;
    size_t row = (size_t)r->n_layers, bytes = row * (size_t)r->n_used * sizeof *r->experts;
    uint64_t seed = 1;
    if (piece < 1 || piece > r->n_tokens || n < 1)
        return err_set(e, ERR_USAGE, "pieces of %d of %d tokens", piece, r->n_tokens);
    out.experts = malloc((size_t)n * bytes);
    out.there = malloc((size_t)n * row);
    if (!out.experts || !out.there)
        return err_set(e, ERR_NOMEM, "%d tokens", n);
    for (int i = 0, from = 0; i < n; i++, from++) {
        if (i % piece == 0)
            from = (int)(splitmix_next(&seed) % (uint64_t)(r->n_tokens - piece + 1));
        memcpy((char *)out.experts + (size_t)i * bytes, (char *)r->experts + (size_t)from * bytes, bytes);
        memcpy(out.there + (size_t)i * row, r->there + (size_t)from * row, row);
    }
    out.n_tokens = n;
    out.warm = n / 4;
    *r = out;
    return 0;
}

/* --- policies ------------------------------------------------------------------------------ */

/* One cache over the layers [first, last), unit numbers layer by layer. */
struct segment {
    const struct route *r;
    int first, last, slots;
    uint64_t lookups, misses;
};

static const uint16_t *chosen(const struct route *r, int token, int layer)
{
    size_t row = (size_t)token * (size_t)r->n_layers + (size_t)layer;
    return r->there[row] ? r->experts + row * (size_t)r->n_used : NULL;
}

/* As the runtime does: what a layer touches stays pinned until it is through; a tick for each token. */
static int run_cache(struct segment *s, enum cache_policy policy, struct err *e)
{
    const struct route *r = s->r;
    uint32_t units = (uint32_t)((s->last - s->first) * r->n_experts), pinned[MAX_USED], evicted;
    void *mem = aligned_alloc(64, (cache_bytes(units, (uint32_t)s->slots) + 63) / 64 * 64);
    if (!mem)
        return err_set(e, ERR_NOMEM, "a cache of %d", s->slots);
    struct cache *c = cache_init(mem, units, (uint32_t)s->slots, policy);
    for (int t = 0; t < r->n_tokens; t++) {
        for (int l = s->first; l < s->last; l++) {
            const uint16_t *x = chosen(r, t, l);
            for (int i = 0; x && i < r->n_used; i++) {
                uint32_t unit = (uint32_t)((l - s->first) * r->n_experts + x[i]);
                int ready, miss = (pinned[i] = cache_lookup(c, unit, &ready)) == CACHE_NONE;
                if (miss && (pinned[i] = cache_admit(c, unit, &evicted)) != CACHE_NONE)
                    cache_ready(c, pinned[i]);
                s->lookups += t >= r->warm;
                s->misses += t >= r->warm && miss;
            }
            for (int i = 0; x && i < r->n_used; i++)
                if (pinned[i] != CACHE_NONE)
                    cache_unpin(c, pinned[i]);
        }
        cache_tick(c);
    }
    free(mem);
    return 0;
}

enum { STALE, COUNT, WEIGHT };

/* The others by looking at every unit that is there, pinned ones apart; the lowest score goes, the longer unused of two.
 * STALE: least-stale as we read arXiv 2602.03921: what this token has not used goes first, of that what is needed last in
 * the cyclic order of layers. COUNT: uses, halved every `half` tokens. WEIGHT: the same of router weights, here 1 for the first
 * expert down to 1/n for the last. */
static int run_scored(struct segment *s, int kind, double half, struct err *e)
{
    const struct route *r = s->r;
    int layers = s->last - s->first, units = layers * r->n_experts, held = 0;
    double *score = calloc((size_t)units, sizeof *score), gain = 1, grow = half > 0 ? 1 / exp2(-1 / half) : 1;
    int *used = malloc((size_t)units * sizeof *used), *list = malloc((size_t)s->slots * sizeof *list + 1);
    uint8_t *in = calloc((size_t)units, 1);
    if (!score || !used || !list || !in)
        return err_set(e, ERR_NOMEM, "%d units", units);
    for (int t = 0; t < r->n_tokens; t++, gain *= grow) {
        for (int u = 0; u < units && gain > 1e100; u++)
            score[u] *= 1e-100;
        gain = gain > 1e100 ? gain * 1e-100 : gain;
        for (int l = 0; l < layers; l++) {
            const uint16_t *x = chosen(r, t, l + s->first);
            int now = t * layers + l;
            for (int i = 0; x && i < r->n_used; i++) {
                int u = l * r->n_experts + x[i];
                s->lookups += t >= r->warm;
                s->misses += t >= r->warm && !in[u];
                score[u] += gain * (kind == WEIGHT ? (double)(r->n_used - i) / r->n_used : 1);
                used[u] = now;
                if (in[u])
                    continue;
                int worst = -1;
                double least = 0;
                for (int k = 0; held == s->slots && k < held; k++) {
                    int v = list[k], ahead = (v / r->n_experts - l + layers - 1) % layers;
                    double is = kind == STALE ? (double)(used[v] / layers == t) * layers - ahead : score[v];
                    if (used[v] != now && (worst < 0 || is < least || (!(is > least) && used[v] < used[list[worst]]))) {
                        worst = k;
                        least = is;
                    }
                }
                if (held < s->slots)
                    worst = held++;
                else if (worst < 0 || (kind != STALE && least > score[u]))
                    continue;
                else
                    in[list[worst]] = 0;
                list[worst] = u;
                in[u] = 1;
            }
        }
    }
    free(score);
    free(used);
    free(list);
    free(in);
    return 0;
}

static int run_belady(struct segment *s, struct err *e)
{
    const struct route *r = s->r;
    int layers = s->last - s->first, steps = r->n_tokens * layers;
    size_t n = 0;
    struct replay_accesses a = { .n_steps = steps, .start = malloc(((size_t)steps + 1) * sizeof *a.start),
                                 .units = malloc((size_t)steps * (size_t)r->n_used * sizeof *a.units),
                                 .n_units = (uint32_t)(layers * r->n_experts) };
    if (!a.start || !a.units)
        return err_set(e, ERR_NOMEM, "%d steps", steps);
    for (int i = 0; i < steps; i++) {
        const uint16_t *x = chosen(r, i / layers, s->first + i % layers);
        a.start[i] = n;
        for (int k = 0; x && k < r->n_used; k++)
            a.units[n++] = (uint32_t)(i % layers * r->n_experts + x[k]);
        if (i == r->warm * layers)
            s->lookups -= n - (x ? (size_t)r->n_used : 0);
    }
    a.start[steps] = n;
    s->lookups += n;
    uint64_t misses;
    uint32_t slots = (uint32_t)s->slots;
    int k = replay_belady_sizes(&a, r->warm * layers, &slots, 1, &misses, e);
    if (k == 0)
        s->misses += misses;
    free(a.start);
    free(a.units);
    return k;
}

static const char *const names[POLICIES] = { "LRU", "LFU (as the cache has it)", "least-stale", "uses, half-life 8",
                                             "uses, half-life 32", "weights, half-life 8", "weights, half-life 32", "Belady" };

static int run_policy(struct segment *s, int policy, struct err *e)
{
    switch (policy) {
    case 0: return run_cache(s, CACHE_LRU, e);
    case 1: return run_cache(s, CACHE_LFU, e);
    case 2: return run_scored(s, STALE, 0, e);
    case 3: return run_scored(s, COUNT, 8, e);
    case 4: return run_scored(s, COUNT, 32, e);
    case 5: return run_scored(s, WEIGHT, 8, e);
    case 6: return run_scored(s, WEIGHT, 32, e);
    default: return run_belady(s, e);
    }
}

static int policies(const struct route *r, struct err *e)
{
    printf("%d tokens, the first %d to warm up; %d layers of %d experts, %d used\n", r->n_tokens, r->warm, r->n_layers, r->n_experts,
           r->n_used);
    printf("hits in %%, cache per layer / over all layers\n| |");
    for (int i = 0; i < SIZES; i++)
        printf(" %.0f %% |", 100 * sizes[i]);
    printf("\n|--|--|--|--|--|--|\n");
    for (int p = 0; p < POLICIES; p++) {
        printf("| %s |", names[p]);
        for (int i = 0; i < SIZES; i++) {
            struct segment all = { r, 0, r->n_layers, (int)(sizes[i] * r->n_layers * r->n_experts), 0, 0 };
            struct segment one = { r, 0, 0, (int)(sizes[i] * r->n_experts), 0, 0 };
            int k = run_policy(&all, p, e);
            for (int l = 0; k == 0 && l < r->n_layers; l++) {
                one.first = l;
                one.last = l + 1;
                k = run_policy(&one, p, e);
            }
            if (k < 0)
                return k;
            printf(" %.1f / %.1f |", 100 - 100.0 * (double)one.misses / (double)one.lookups,
                   100 - 100.0 * (double)all.misses / (double)all.lookups);
        }
        printf("\n");
    }
    return 0;
}

static int csv(const struct route *r)
{
    printf("phase,step,layer");
    for (int i = 0; i < r->n_used; i++)
        printf(",e%d", i);
    for (int t = 0; t < r->n_tokens; t++)
        for (int l = 0; l < r->n_layers; l++) {
            printf("\nprompt,%d,%d", t, l);
            for (int i = 0; i < r->n_used; i++)
                printf(",%d", chosen(r, t, l)[i]);
        }
    printf("\n");
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    struct route r = { 0 };
    int dump = argc == 3 && !strcmp(argv[1], "csv");
    if (!dump && !((argc == 3 || argc == 5) && !strcmp(argv[1], "policies"))) {
        fprintf(stderr, "usage: routes csv TRACE.h5 | routes policies FILE.csv|TRACE.h5 [PIECE TOKENS]\n");
        return 2;
    }
    const char *end = strrchr(argv[2], '.');
    int k = dump || (end && !strcmp(end, ".h5")) ? from_trace(argv[2], &r, &e) : from_csv(argv[2], &r, &e);
    if (k == 0 && argc == 5)
        k = splice(&r, atoi(argv[3]), atoi(argv[4]), &e);
    if (k == 0)
        k = dump ? csv(&r) : policies(&r, &e);
    if (k < 0)
        fprintf(stderr, "routes: %s\n", e.msg);
    free(r.experts);
    free(r.there);
    return k < 0 ? err_exit_status(e.code) : 0;
}
