/* generate --best-of: one reading of the prompt, several continuations of it, each with a seed of its own. */
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/progress.h"

#include "runtime/generate.h"
#include "runtime/prompt.h"
#include "runtime/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct best {
    const struct generate_args *a;
    struct generate_set set;
    int n;
    uint64_t ns;
};

static void to_stdout(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    print_data(text, len);
}

static void to_json(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    report_chars(stdout, text, len);
}

static int print_text(struct request *q, stream_sink *sink, struct err *e)
{
    int r = request_text(q, sink, NULL, e);
    output_end(&q->output);
    return r;
}

/* The same prompt for all; seeds that follow one another. */
static int ask(struct best *b, const char *text, size_t len, struct err *e)
{
    struct request *first = &b->set.requests[0];
    int r;
    for (int i = 0; i < b->n; i++) {
        struct request *q = &b->set.requests[i];
        request_begin(q, "");
        q->text.sampling.seed = b->a->seed + (uint64_t)i;
        q->text.n = b->a->n < 0 ? b->set.setup.config.choice.context : b->a->n;
        if (i == 0 && (r = request_prompt(q, text, len, e)) < 0)
            return r;
        q->n_prompt = first->n_prompt;
        q->thinks = first->thinks;
        if ((r = request_text(q, NULL, NULL, e)) < 0)
            return r;
        q->text.prompt = first->ids;
        q->text.n_prompt = first->n_prompt;
        q->text.twins = i + 1 < b->n ? &q[1].text : NULL;
    }
    first->text.n_twins = b->n - 1;
    return 0;
}

static int failed(const struct best *b, int i)
{
    return b->set.requests[i].end == BATCH_FAILED;
}

/* The likeliest that has an outcome; the first among equals. -1: none has. */
static int likeliest(const struct best *b)
{
    int best = -1;
    for (int i = 0; i < b->n; i++)
        if (!failed(b, i) && (best < 0 || request_logprob(&b->set.requests[i].text) > request_logprob(&b->set.requests[best].text)))
            best = i;
    return best;
}

/* The first that has none says why. */
static int say_failed(const struct best *b, struct err *e)
{
    int first = -1, n = 0;
    for (int i = b->n; i-- > 0;)
        if (failed(b, i))
            first = i, n++;
    if (n == 0)
        return 0;
    *e = b->set.requests[first].why;
    return err_wrap(e, "%d of %d candidates could not be made", n, b->n);
}

static int print_json(struct best *b, int best, struct err *e)
{
    int r = 0, made = 0;
    for (int i = 0; i < b->n && r == 0; i++) {
        struct request *q = &b->set.requests[i];
        print_json_to(stdout, "{\"type\":\"candidate\",\"n\":%d,\"best\":%s,\"seed\":%llu,\"stop\":\"%s\",\"tokens\":%d,\"logprob\":%.9g,"
                      "\"text\":\"", i,
               i == best ? "true" : "false", (unsigned long long)(b->a->seed + (uint64_t)i), batch_end_names[q->end], q->n_made,
               request_logprob(&q->text));
        r = print_text(q, to_json, e);
        putc('"', stdout);
        if (failed(b, i))
            request_print_error(stdout, &q->why);
        puts("}");
        made += q->n_made;
    }
    fputs("{\"type\":\"summary\",", stdout);
    report_configuration(stdout, &b->set.setup, b->set.engine);
    const struct engine_stats st = engine_stats(b->set.engine);
    print_json_to(stdout, ",\"seed\":%llu,\"best\":%d,\"prompt_tokens\":%d,\"generated\":%d,\"ms\":%.3f,\"passes\":%llu,\"reads\":%llu"
           ",\"read_bytes\":%llu",
           (unsigned long long)b->a->seed, best, b->set.requests[0].n_prompt, made, (double)b->ns / 1e6, (unsigned long long)st.passes,
           (unsigned long long)st.reads, (unsigned long long)st.read_bytes);
    report_batches(stdout, b->set.engine, &st);
    generate_set_guesses_json(stdout, &b->set);
    puts("}");
    return r;
}

static int print_plain(struct best *b, int best, struct err *e)
{
    struct request *q = &b->set.requests[best];
    int r = print_text(q, to_stdout, e);
    print("\n");
    for (int i = 0; i < b->n; i++)
        log_info("%s seed %llu: mean log-probability %.4f, %d tokens (%s)", i == best ? "best:" : "     ",
                 (unsigned long long)(b->a->seed + (uint64_t)i), request_logprob(&b->set.requests[i].text), b->set.requests[i].n_made,
                 batch_end_names[b->set.requests[i].end]);
    generate_set_guesses_text(&b->set);
    return r;
}

static int make(struct best *b, struct err *e)
{
    int64_t start = progress_now_ns();
    int r = batch_add(&b->set.batch, &b->set.requests[0].text, e);
    while (r >= 0 && (r = batch_step(&b->set.batch, e)) > 0)
        continue;
    b->ns = (uint64_t)(progress_now_ns() - start);
    return r;
}

/* Frees the prompt, which is needed no more when the model is loaded. */
static int run(struct best *b, char *prompt, size_t len, struct err *e)
{
    int r;
    r = ask(b, prompt, len, e);
    if (r == 0 && !b->a->json && !b->a->no_echo && !b->a->chat)
        to_stdout(NULL, prompt, len);
    free(prompt);
    if (r < 0 || (r = generate_set_start(&b->set, generate_end, request_token, NULL, e)) < 0 ||
        (r = make(b, e)) < 0)
        return r;
    int best = likeliest(b);
    if (b->a->json)
        r = print_json(b, best, e);
    else
        r = best < 0 ? 0 : print_plain(b, best, e);
    r = r < 0 ? r : file_stdout(e);
    return r < 0 ? r : say_failed(b, e);
}

int generate_best(struct generate_args *a, struct err *e)
{
    struct best b = { .a = a, .n = a->best_of };
    char *text = NULL;
    size_t len = 0;
    if (a->seed == UINT64_MAX && getrandom(&a->seed, 4, 0) == 4)
        a->seed &= UINT32_MAX; /* short enough to type again */
    a->setup.batch = a->best_of;
    int r = generate_set_open(&b.set, a, 1, e);
    if (r == 0 && (r = prompt_text(a->prompt, a->prompt_file, setup_room(&b.set.setup), &text, &len, e)) == 0)
        r = run(&b, text, len, e);
    generate_set_close(&b.set);
    return r;
}
