#include "runtime/summary.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/size.h"
#include "common/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAR 1.2 /* measured and promised, either way */
#define ENOUGH_TOKENS 32 /* that a speed says something */

static double num(const struct js *j, const char *key)
{
    double v = 0;
    js_num(js_get(j, key), &v);
    return v;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static const char *bytes_of(const struct js *j, const char *key, char *out, size_t len)
{
    return size_format((uint64_t)num(j, key), out, len);
}

/* ms of passes by their tokens, and by the plan. */
static void by_tokens(const struct js *g)
{
    const struct js *all = js_get(g, "by_tokens");
    char text[512], predicted[32] = "";
    size_t at = 0;
    int planned = 0;
    for (size_t i = 0; i < js_len(all) && at < sizeof text; i++) {
        const struct js *t = js_at(all, i);
        if ((planned = js_get(t, "predicted_ms") != NULL))
            snprintf(predicted, sizeof predicted, " (%.4g)", num(t, "predicted_ms"));
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d: %.4g%s", at ? ", " : "", (int)num(t, "tokens"), num(t, "ms"), predicted);
    }
    if (at)
        log_info("        ms of passes by their tokens%s: %s", planned ? " (and by the plan)" : "", text);
}

static void guesses(const struct js *g)
{
    const struct js *p = js_get(g, "planned");
    log_info("guesses: %.0f of %.0f came true, in %.0f of %.0f passes", num(g, "accepted"), num(g, "guessed"), num(g, "passes"),
             num(g, "of"));
    by_tokens(g);
    if (p && js_get(p, "guess_ms") && num(g, "guessed") > 0)
        log_info("        a guess took %.4g ms (%.4g by the plan)", num(g, "source_ms") / num(g, "guessed"), num(p, "guess_ms"));
    if (p)
        log_info("        with a share of %.2f that come true the plan makes %.0f a pass, %.3g times as fast", num(p, "acceptance"),
                 num(p, "guesses"), num(p, "speedup"));
}

void summary_guesses(const struct js *j)
{
    const struct js *g = js_get(j, "guesses");
    if (g)
        log_info("guesses: %.0f of %.0f came true, in %.0f of %.0f passes without prompts", num(g, "accepted"), num(g, "guessed"),
                 num(g, "passes"), num(g, "of"));
}

static int are_far(double said, double was)
{
    return said > 0 && was > 0 && (was > said * FAR || said > was * FAR);
}

/* For a program that keeps the figures that plans are made of (SUMMARY_DIFFERS). */
static void note(const struct js *j)
{
    const char *path = getenv(SUMMARY_DIFFERS);
    const struct js *p = js_get(j, "predicted");
    double said = num(p, "tokens_per_s"), was = num(js_get(j, "measured"), "tokens_per_s");
    char line[96];
    struct err e;
    if (!path || !*path || js_bool(js_get(p, "valid")) != 1 || num(js_get(j, "decode"), "tokens") < ENOUGH_TOKENS || !are_far(said, was))
        return;
    snprintf(line, sizeof line, "%.3g tokens/s, and the plan said %.3g\n", was, said);
    if (file_replace(path, line, strlen(line), &e) < 0)
        log_warn("%s: %s", SUMMARY_DIFFERS, e.msg);
}

/* Where the plan is off by more than a fifth, the term that makes most of it, and what to do. */
static void differs(const struct js *predicted, const struct js *measured)
{
    static const char *const labels[PLAN_TERMS] = { "attention", "the predictor", "the FFN, but for waits,", "waiting for reads",
                                                    "the output head" };
    const struct js *p = js_get(predicted, "terms_ms"), *m = js_get(measured, "terms_ms");
    double said = num(predicted, "tokens_per_s"), was = num(measured, "tokens_per_s"), most = 0;
    int slower = was < said, which = -1;
    if (!are_far(said, was))
        return;
    for (int t = 0; t < PLAN_TERMS; t++) {
        double more = num(m, plan_term_names[t]) - num(p, plan_term_names[t]);
        more = slower ? more : -more;
        if (more > most) {
            most = more;
            which = t;
        }
    }
    if (which >= 0)
        log_info("        %s differs most: %.3g ms a token, %.3g by the plan; 'thermo-profile hardware' measures what the machine gives "
                 "now, 'thermo-plan solve' plans with it", labels[which], num(m, plan_term_names[which]), num(p, plan_term_names[which]));
}

static void way(const struct js *w, char *out, size_t len)
{
    snprintf(out, len, "%.0f thread%s, %s, %.0f in flight%s%s", num(w, "threads"), num(w, "threads") > 1 ? "s" : "",
             js_str(js_get(w, "io")), num(w, "queue_depth"), js_bool(js_get(w, "coalesced")) == 1 ? "" : ", none through gaps",
             js_bool(js_get(w, "experts_ahead")) == 1 ? "" : ", no experts ahead");
}

/* The last change of the online choice. */
static void adapted(const struct js *a)
{
    const struct js *all = js_get(a, "last"), *c = js_len(all) ? js_at(all, js_len(all) - 1) : NULL;
    const char *why = c ? js_str(js_get(c, "why")) : NULL;
    char to[96];
    if (!why)
        return;
    way(js_get(c, "to"), to, sizeof to);
    log_info("adapted: %.0f change%s, the last after pass %.0f: %s (%s: %s; %.2f of the usual time, then %.2f)", num(a, "changes"),
             num(a, "changes") > 1 ? "s" : "", num(c, "pass"), to, js_str(js_get(c, "term")),
             !strcmp(why, "over") ? "no longer slower" : !strcmp(why, "plan") ? "slower than planned" : "slower than before",
             num(c, "was"), num(c, "is"));
}

static void decode(const struct js *j)
{
    const struct js *d = js_get(j, "decode"), *p = js_get(j, "predicted"), *g = js_get(j, "guesses"), *accel = js_get(d, "engine");
    double steps = num(d, "tokens") > 0 ? num(d, "tokens") : 1, ms = num(d, "ms");
    double active = num(d, "active_hot") + num(d, "active_cold") + num(d, "active_read");
    int valid = js_bool(js_get(p, "valid")) == 1;
    char bytes[24], per[24];
    log_info("decode: %.0f tokens (%s), %.1f tokens/s measured%s", num(j, "generated"), js_str(js_get(j, "stop")), num(d, "tokens_per_s"),
             valid ? ";" : "");
    if (valid)
        log_info("        the plan predicted %.1f tokens/s, %.1f KiB from flash per token, hit rate %.1f %%", num(p, "tokens_per_s"),
                 num(p, "read_bytes") / 1024, 100 * num(p, "hit_rate"));
    if (valid)
        differs(p, js_get(j, "measured"));
    note(j);
    adapted(js_get(j, "adapt"));
    if (g)
        guesses(g);
    log_info("flash:  %s in %.0f reads, %s per token; cold cache hit rate %.1f %%; stalled %.1f %% of the time",
             bytes_of(d, "read_bytes", bytes, sizeof bytes), num(d, "reads"),
             size_format((uint64_t)(num(d, "read_bytes") / steps), per, sizeof per), 100 * num(d, "cold_hit_rate"),
             100 * share(num(d, "stall_ms"), ms));
    log_info("neurons: %.1f %% active; of those %.1f %% hot, %.1f %% cached, %.1f %% read", 100 * num(d, "density"),
             100 * share(num(d, "active_hot"), active), 100 * share(num(d, "active_cold"), active),
             100 * share(num(d, "active_read"), active));
    if (accel)
        log_info("accelerator: %.0f neurons and %.0f other products per token; waited for %.1f %% of the time",
                 num(accel, "neurons") / steps, num(accel, "products") / steps, 100 * share(num(accel, "wait_ms"), ms));
    if (js_get(j, "recall"))
        log_info("        %.1f %% were computed, predicted at recall %g; prediction took %.1f %% of the time", 100 * num(d, "computed"),
                 num(j, "recall"), 100 * share(num(d, "predict_ms"), ms));
}

static void memory(const struct js *j)
{
    const struct js *account = js_get(j, "account");
    char peak[24], all[24], total[24], hot[24], cold[24], pages[24];
    log_info("memory: peak %s of %s (account %s: hot %s, cold cache %s)", bytes_of(j, "peak_bytes", peak, sizeof peak),
             bytes_of(j, "memory_bytes", all, sizeof all), bytes_of(j, "account_bytes", total, sizeof total),
             bytes_of(account, "hot", hot, sizeof hot), bytes_of(account, "cold", cold, sizeof cold));
    int paged = js_get(j, "page_bytes") != NULL;
    log_info("reads:  %s%s, %.0f in flight at most%s%s", js_str(js_get(j, "io")),
             js_bool(js_get(j, "direct")) == 1 ? ", O_DIRECT" : ", through the page cache", num(j, "queue_depth"),
             paged ? ", into pages of " : "", paged ? bytes_of(j, "page_bytes", pages, sizeof pages) : "");
}

void summary_print(const struct js *j)
{
    const struct js *p = js_get(j, "prompt");
    log_info("prompt: %.0f tokens in %.1f ms, %.1f tokens/s; first token after %.1f ms (loading took %.1f ms)", num(p, "tokens"),
             num(p, "ms"), num(p, "tokens_per_s"), num(j, "ttft_ms"), num(j, "load_ms"));
    if (js_get(j, "ttft_predicted_ms"))
        log_info("        the plan predicted the first token after %.1f ms", num(j, "ttft_predicted_ms"));
    if (num(js_get(j, "decode"), "passes") > 0)
        decode(j);
    memory(j);
    double repaired = num(p, "repaired") + num(js_get(j, "decode"), "repaired");
    if (repaired > 0)
        log_warn("%.0f reads differed from their checksums and did not when made again: the storage, or what it hangs on, is failing",
                 repaired);
}

void summary_note(const char *text)
{
    struct err e;
    struct js *j = js_parse(text, strlen(text), "the summary", &e);
    note(j);
    js_free(j);
}
