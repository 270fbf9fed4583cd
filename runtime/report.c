/* Figures of a run. JSON is printed by hand: the shapes are fixed, and the token loop must not
 * allocate. schemas of the lines: runtime/README.md. */
#include "runtime/report.h"

#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/kernels/kernels.h"

#include "common/base/machine.h"

#include <math.h>
#include <string.h>

double report_rate(uint64_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0;
}

double report_share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

double report_hit_rate(const struct engine_stats *s)
{
    uint64_t lookups = s->lookups - s->gate_lookups;
    return lookups ? report_share(s->hits - s->gate_hits, lookups) : report_share(s->hits, s->lookups);
}

void report_chars(FILE *f, const char *text, size_t len)
{
    char one[PRINT_PIECE];
    for (size_t i = 0; i < len;) {
        i += print_json_piece(text + i, len - i, one);
        fputs(one, f);
    }
}

void report_string(FILE *f, const char *text, size_t len)
{
    putc('"', f);
    report_chars(f, text, len);
    putc('"', f);
}

void report_accel_lost(const struct engine *g)
{
    struct accel_info i;
    const char *lost;
    if (g && engine_accel_info(g, &i, &lost) && lost)
        log_warn("%s: the processor worked alone from there on", lost);
}

static void report_accel(FILE *f, const struct setup *s, const struct engine *g)
{
    struct accel_info i;
    const char *lost;
    if (!engine_accel_info(g, &i, &lost))
        return;
    fputs(",\"engine\":{\"device\":", f);
    report_string(f, i.device.name, strlen(i.device.name));
    print_json_to(f, ",\"zero_copy\":%s,\"neurons\":%llu,\"neurons_large\":%llu,\"area_bytes\":%llu,\"driver_bytes\":%llu"
                  ",\"host_bytes\":%llu,\"device_bytes\":%llu"
                  ",\"built\":%d,\"cached\":%d,\"lost\":", i.zero_copy ? "true" : "false", (unsigned long long)engine_accel_neurons(g, 1),
                  (unsigned long long)engine_accel_neurons(g, INT32_MAX), (unsigned long long)s->config.choice.area_bytes,
                  (unsigned long long)s->accel_driver_bytes,
                  (unsigned long long)i.host_bytes, (unsigned long long)i.device_bytes, i.built, i.cached);
    if (lost)
        report_string(f, lost, strlen(lost));
    else
        fputs("null", f);
    fputs(",\"heights\":[", f);
    for (int k = 0; k < s->config.accel.n_heights; k++) {
        const struct engine_height *h = &s->config.accel.heights[k];
        print_json_to(f, "%s{\"tokens\":", k ? "," : "");
        if (h->tokens)
            print_json_to(f, "%d", h->tokens);
        else
            fputs("null", f);
        print_json_to(f, ",\"neurons\":%llu,\"rest\":%llu,\"work\":\"%s\"}",
                      (unsigned long long)engine_accel_neurons(g, h->tokens ? h->tokens : INT32_MAX),
                      (unsigned long long)engine_accel_rest(g, h->tokens ? h->tokens : INT32_MAX), plan_work_name(h->work));
    }
    fputs("]}", f);
}

void report_configuration(FILE *f, const struct setup *s, const struct engine *g)
{
    const struct budget_choice *c = &s->config.choice;
    const struct budget *b = engine_budget(g);
    const struct io *io = engine_io(g);
    int why;
    print_json_to(f, "\"version\":\"%s\",\"model\":", THERMO_VERSION);
    report_string(f, s->pack->h.name, strlen(s->pack->h.name));
    fputs(",\"model_file\":", f);
    report_string(f, s->args.model, strlen(s->args.model));
    fputs(",\"plan_file\":", f);
    report_string(f, s->args.plan, strlen(s->args.plan));
    print_json_to(f,
                  ",\"mode\":\"%s\",\"threads\":%d,\"context\":%d,\"kv\":\"%s\",\"act\":\"%s\",\"prefill_chunk\":%d,"
                  "\"cpu\":\"%s\"",
                  plan_mode_name(s->config.mode), setup_threads(s), c->context, kv_type_name(c->kv_type),
                  s->config.act_q8 ? "q8" : "f32", c->prefill_chunk, kernels->name);
    if (s->config.mode == PLAN_PREDICTED)
        print_json_to(f, ",\"recall\":%.6g", s->config.recall);
    if (s->config.cold_bound > 0)
        print_json_to(f, ",\"cold_bound\":%.6g", s->config.cold_bound);
    print_json_to(f, ",\"io\":\"%s\",\"direct\":%s,\"mlocked\":%s,\"policy\":\"%s\",\"queue_depth\":%d", io ? io->backend->name : "none",
                  io && io->direct ? "true" : "false", engine_locked(g, &why) ? "true" : "false",
                  cache_policy_name(s->config.policy), setup_depth(s));
    if (s->config.cpus || s->config.rest.cpus)
        print_json_to(f, ",\"pinned\":%s", engine_unpinned(g) ? "false" : "true");
    if (engine_page_bytes(g))
        print_json_to(f, ",\"page_bytes\":%zu", engine_page_bytes(g));
    print_json_to(f, ",\"memory_bytes\":%llu,\"account_bytes\":%llu,\"floor_bytes\":%llu,\"account\":{",
                  (unsigned long long)s->memory_bytes, (unsigned long long)b->total, (unsigned long long)b->floor);
    for (int i = 0; i < BUDGET_ITEMS; i++)
        if (i != BUDGET_ENGINE && i != BUDGET_ROOM) /* telemetry's `engine` has it; it is beside */
            print_json_to(f, "%s\"%s\":%llu", i ? "," : "", budget_item_name((enum budget_item)i),
                          (unsigned long long)b->item[i]);
    print_json_to(f, "},\"peak_bytes\":%llu", (unsigned long long)machine_peak_bytes());
    report_accel(f, s, g);
}

void report_batches(FILE *f, const struct engine *g, const struct engine_stats *s)
{
    const struct engine_config *c = engine_configuration(g);
    if (!c->n_batches)
        return;
    fputs(",\"batches\":[", f);
    for (int i = 0; i < c->n_batches; i++)
        print_json_to(f, "{\"batch\":%d,\"threads\":%d,\"queue_depth\":%d,\"passes\":%llu},", c->batches[i].tokens, c->batches[i].threads,
                      c->batches[i].depth, (unsigned long long)s->passes_by[i]);
    print_json_to(f, "{\"batch\":0,\"threads\":%d,\"queue_depth\":%d,\"passes\":%llu}]",
                  c->n_variants ? c->variants[0].threads : c->choice.threads, c->n_variants ? c->variants[0].depth : c->choice.queue_depth,
                  (unsigned long long)s->passes_by[PLAN_MAX_BATCHES]);
}

static void phase_json(FILE *f, const char *name, const struct report_phase *p, const struct engine *g)
{
    const struct engine_stats *s = &p->stats;
    uint64_t active = s->neurons_hot + s->neurons_cold + s->neurons_read;
    print_json_to(f, ",\"%s\":{\"tokens\":%llu,\"passes\":%llu,\"ms\":%.3f,\"tokens_per_s\":%.4f,\"reads\":%llu,\"read_bytes\":%llu,"
                  "\"stall_ms\":%.3f", name, (unsigned long long)p->tokens, (unsigned long long)s->passes, (double)p->ns / 1e6,
                  report_rate(p->tokens, p->ns), (unsigned long long)s->reads, (unsigned long long)s->read_bytes,
                  (double)s->stall_ns / 1e6);
    print_json_to(f, ",\"predictor_bytes\":%llu,\"verified_bytes\":%llu,\"verify_ms\":%.3f,\"repaired\":%llu",
                  (unsigned long long)s->predictor_bytes, (unsigned long long)s->verify_bytes, (double)s->verify_ns / 1e6,
                  (unsigned long long)s->repaired);
    print_json_to(f, ",\"attention_ms\":%.3f,\"predict_ms\":%.3f,\"ffn_ms\":%.3f,\"head_ms\":%.3f",
                  (double)s->attention_ns / 1e6, (double)s->predict_ns / 1e6, (double)s->ffn_ns / 1e6,
                  (double)s->head_ns / 1e6);
    print_json_to(f,
              ",\"cold_lookups\":%llu,\"cold_hits\":%llu,\"cold_hit_rate\":%.6f,\"gate_lookups\":%llu,\"gate_hits\":%llu"
              ",\"prefetched\":%llu,\"prefetches_used\":%llu,\"experts_guessed\":%llu,\"experts_foreseen\":%llu"
              ",\"evictions\":%llu,\"refused\":%llu",
              (unsigned long long)s->lookups, (unsigned long long)s->hits, report_hit_rate(s),
              (unsigned long long)s->gate_lookups, (unsigned long long)s->gate_hits, (unsigned long long)s->prefetched,
              (unsigned long long)s->prefetches_used, (unsigned long long)s->experts_guessed,
              (unsigned long long)s->experts_foreseen, (unsigned long long)s->evictions,
              (unsigned long long)s->refused);
    report_batches(f, g, s);
    if (engine_configuration(g)->accel.accel)
        print_json_to(f, ",\"engine\":{\"passes\":%llu,\"neurons\":%llu,\"rest\":%llu,\"products\":%llu,\"wait_ms\":%.3f}",
                      (unsigned long long)s->accel.passes, (unsigned long long)s->accel.neurons,
                      (unsigned long long)s->accel.rest_neurons, (unsigned long long)s->accel.products,
                      (double)s->accel.wait_ns / 1e6);
    print_json_to(f, ",\"active_hot\":%llu,\"active_cold\":%llu,\"active_read\":%llu,\"density\":%.6f,\"computed\":%.6f}",
                  (unsigned long long)s->neurons_hot, (unsigned long long)s->neurons_cold,
                  (unsigned long long)s->neurons_read, report_share(active, s->neurons_possible),
                  report_share(s->neurons_computed, s->neurons_possible));
}

double report_prompt_ns(const struct setup *s, int tokens)
{
    const struct budget_choice *c = &s->config.choice;
    int other = setup_differs(s) || c->prefill_chunk != s->limit.prefill_chunk || s->config.rest.threads != s->limit.threads;
    return other ? 0 : plan_prompt_ns(&s->limit.prompt, tokens);
}

/* What the plan expects of guesses: passes of so many tokens, and the number that is fastest for the share of guesses that came true and
 * what each took. NULL: it has none, or something differs from what was planned. */
static const struct plan_guesses *planned(const struct setup *s)
{
    return s->limit.guesses.n && !setup_differs(s) ? &s->limit.guesses : NULL;
}

/* The number of guesses that the plan has as the fastest, by what was counted; *acceptance: the share that came true. */
static int planned_guesses(const struct plan_guesses *p, const struct report *r, double *acceptance, double *speedup)
{
    const struct guess_stats *g = &r->guesses;
    *acceptance = report_share(g->accepted, g->tried);
    return plan_best_guesses(p, *acceptance, g->guessed ? (double)g->source_ns / (double)g->guessed : 0, r->guess_most, speedup);
}

static void guesses_json(FILE *f, const struct setup *s, const struct report *r)
{
    const struct guess_stats *g = &r->guesses;
    const struct plan_guesses *p = planned(s);
    const char *comma = "";
    double acceptance, speedup;
    print_json_to(f, ",\"guesses\":{\"passes\":%llu,\"of\":%llu,\"guessed\":%llu,\"tried\":%llu,\"accepted\":%llu,\"source_ms\":%.3f,"
                  "\"by_tokens\":[",
                  (unsigned long long)g->passes, (unsigned long long)r->decode.stats.passes, (unsigned long long)g->guessed,
                  (unsigned long long)g->tried, (unsigned long long)g->accepted, (double)g->source_ns / 1e6);
    for (int n = 1; n <= GUESS_MOST + 1; n++) {
        if (!g->n_by[n])
            continue;
        print_json_to(f, "%s{\"tokens\":%d,\"passes\":%llu,\"ms\":%.6g", comma, n, (unsigned long long)g->n_by[n],
                      (double)g->ns_by[n] / (double)g->n_by[n] / 1e6);
        if (p)
            print_json_to(f, ",\"predicted_ms\":%.6g", plan_pass_ns(p, n) / 1e6);
        fputs("}", f);
        comma = ",";
    }
    fputs("]", f);
    if (p && g->tried) {
        int best = planned_guesses(p, r, &acceptance, &speedup);
        print_json_to(f, ",\"planned\":{\"acceptance\":%.6g,\"guesses\":%d,\"speedup\":%.6g", acceptance, best, speedup);
        if (r->guess_ns > 0)
            print_json_to(f, ",\"guess_ms\":%.6g", r->guess_ns / 1e6);
        fputs("}", f);
    }
    fputs("}", f);
}

/* ms of a token by what takes it. */
static void terms_json(FILE *f, const double ns[PLAN_TERMS])
{
    fputs("\"terms_ms\":{", f);
    for (int t = 0; t < PLAN_TERMS; t++)
        print_json_to(f, "%s\"%s\":%.6g", t ? "," : "", plan_term_names[t], ns[t] / 1e6);
    fputs("}", f);
}

void report_work(FILE *f, const struct setup *s, const struct engine *g, const struct report *r)
{
    const struct engine_stats *d = &r->decode.stats;
    double predicted_ns = r->prompt.tokens <= INT32_MAX ? report_prompt_ns(s, (int)r->prompt.tokens) : 0;
    struct engine_loading l = engine_loading(g);
    print_json_to(f, ",\"load_ms\":%.3f,\"load_bytes\":%llu,\"load_wait_ms\":%.3f", (double)r->load_ns / 1e6, (unsigned long long)l.bytes,
                  (double)l.wait_ns / 1e6);
    if (r->texts == 1 && predicted_ns > 0)
        print_json_to(f, ",\"ttft_predicted_ms\":%.6g", predicted_ns / 1e6);
    phase_json(f, "prompt", &r->prompt, g);
    phase_json(f, "decode", &r->decode, g);
    if (r->guessing)
        guesses_json(f, s, r);
    double steps = r->decode.tokens ? (double)r->decode.tokens : 1;
    double wait = (double)(d->stall_ns < d->ffn_ns ? d->stall_ns : d->ffn_ns);
    const double measured[PLAN_TERMS] = { (double)d->attention_ns / steps, (double)d->predict_ns / steps,
                                          ((double)d->ffn_ns - wait) / steps, wait / steps, (double)d->head_ns / steps };
    print_json_to(f, ",\"predicted\":{\"tokens_per_s\":%.6g,\"read_bytes\":%.6g,\"hit_rate\":%.6g,\"valid\":%s,",
                  s->predicted.tokens_per_s, s->predicted.read_bytes, s->predicted.hit_rate,
                  setup_differs(s) || r->guesses.passes || r->most > 1 ? "false" : "true");
    terms_json(f, s->terms);
    print_json_to(f, "},\"measured\":{\"tokens_per_s\":%.6g,\"read_bytes\":%.6g,\"hit_rate\":%.6g,",
                  report_rate(r->decode.tokens, r->decode.ns), (double)d->read_bytes / steps, report_hit_rate(d));
    terms_json(f, measured);
    fputs("}", f);
    adapting_json(f, r->adapting);
}

void report_store(FILE *f, struct kv_store *store)
{
    if (!store)
        return;
    const struct kv_store_stats s = kv_store_stats(store);
    fprintf(f, ",\"prefix_cache\":{\"read\":%llu,\"written\":%llu,\"damaged\":%llu,\"dropped\":%llu,\"bytes\":%llu}",
            (unsigned long long)s.read, (unsigned long long)s.written, (unsigned long long)s.damaged, (unsigned long long)s.dropped,
            (unsigned long long)s.bytes);
}
