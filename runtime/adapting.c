#include "runtime/adapting.h"

#include "common/base/log.h"
#include "common/base/print.h"

#include <string.h>

const char *const adapting_names[] = { "on", "off", "cycle", "1", "2", "3", "4", "5", "6", "7", "8", NULL };
_Static_assert(sizeof adapting_names / sizeof *adapting_names == ADAPTING_FIXED + PLAN_MAX_ALTERNATIVES + 1, "one for each");

int adapting_init(struct adapting *a, const struct setup *s, struct engine *g, int how, int compares, struct err *e)
{
    int way = how < ADAPTING_FIXED ? 0 : how - ADAPTING_FIXED + 1;
    *a = (struct adapting){ .how = how, .s = s };
    adapt_init(&a->a, s->way_times, how == ADAPTING_ON ? s->config.n_variants : 1);
    a->a.asked = !compares;
    if (way >= s->config.n_variants)
        return err_set(e, ERR_USAGE, "--adapt %d, but of the alternatives of plan '%s' %d can be had here", way, s->args.plan,
                       s->config.n_variants - 1);
    return engine_use_way(g, way, e);
}

static void say(const struct adapting *a, const struct adapt_change *c)
{
    const struct engine_way *w = &a->s->config.variants[c->to];
    log_debug("after %llu passes: %d threads, %s, %d reads in flight%s%s (%s: %s, %.2f of the usual time, now %.2f)",
              (unsigned long long)c->pass, w->threads, plan_io_name(w->io), w->depth, w->no_coalesce ? ", none through gaps" : "",
              w->no_ahead ? "" : ", experts ahead", adapt_why_names[c->why], plan_term_names[c->term], c->was, c->is);
}

static int next_of(struct adapting *a, const struct engine_stats *took, int position)
{
    double wait = (double)(took->stall_ns < took->ffn_ns ? took->stall_ns : took->ffn_ns);
    const struct adapt_sample s = {
        .tokens = (int)took->tokens, .position = position,
        .ns = { [PLAN_TERM_ATTENTION] = (double)took->attention_ns, [PLAN_TERM_PREDICT] = (double)took->predict_ns,
                [PLAN_TERM_FFN] = (double)took->ffn_ns - wait, [PLAN_TERM_WAIT] = wait, [PLAN_TERM_HEAD] = (double)took->head_ns },
    };
    uint64_t changes = a->a.n_changes;
    if (a->how == ADAPTING_CYCLE)
        return (int)(++a->cycled % (uint64_t)a->s->config.n_variants);
    int way = adapt_pass(&a->a, &s);
    if (a->a.n_changes > changes)
        say(a, &a->a.change[changes % ADAPT_CHANGES]);
    return way;
}

void adapting_passed(struct adapting *a, struct engine *g, const struct engine_stats *took, int position)
{
    struct err e = { 0 };
    if ((a->how != ADAPTING_ON && a->how != ADAPTING_CYCLE) || a->s->config.n_variants < 2 || took->passes != 1 ||
        took->tokens > (uint64_t)a->s->config.choice.max_batch)
        return;
    for (int way = next_of(a, took, position); way != engine_way(g); way = adapt_refused(&a->a, way)) {
        int r = engine_use_way(g, way, &e);
        if (r != ERR_UNSUPPORTED || a->how == ADAPTING_CYCLE)
            return;
        log_debug("%s", e.msg);
    }
}

static void way_json(FILE *f, const char *name, const struct engine_way *w)
{
    print_json_to(f, "\"%s\":{\"threads\":%d,\"io\":\"%s\",\"queue_depth\":%d,\"coalesced\":%s,\"experts_ahead\":%s}", name, w->threads,
                  plan_io_name(w->io), w->depth, w->no_coalesce ? "false" : "true", w->no_ahead ? "false" : "true");
}

void adapting_json(FILE *f, const struct adapting *a)
{
    uint64_t n = a->a.n_changes, first = n > ADAPT_CHANGES ? n - ADAPT_CHANGES : 0;
    const struct engine_way *variants = a->s->config.variants;
    print_json_to(f, ",\"adapt\":{\"how\":\"%s\",\"variants\":%d,\"passes\":%llu,\"tried\":%llu,\"changes\":%llu,\"last\":[",
                  adapting_names[a->how], a->s->config.n_variants, (unsigned long long)a->a.passes, (unsigned long long)a->a.n_tried,
                  (unsigned long long)(n + a->cycled));
    for (uint64_t i = first; i < n; i++) {
        const struct adapt_change *c = &a->a.change[i % ADAPT_CHANGES];
        print_json_to(f, "%s{\"pass\":%llu,\"why\":\"%s\",\"term\":\"%s\",\"was\":%.4g,\"is\":%.4g,", i > first ? "," : "",
                      (unsigned long long)c->pass, adapt_why_names[c->why], plan_term_names[c->term], c->was, c->is);
        way_json(f, "from", &variants[c->from]);
        fputs(",", f);
        way_json(f, "to", &variants[c->to]);
        fputs("}", f);
    }
    fputs("]}", f);
}
