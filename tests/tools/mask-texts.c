/* Texts that schemas allow, drawn at random token by token, and how long their masks take (CPU time).
 *
 *     mask-texts texts MODEL SCHEMAS COUNT SEED   COUNT texts of each line of SCHEMAS over the model's vocabulary,
   as JSON lines {"schema",
 *                                                 "text"}, or {"schema", "error"}
 *     mask-texts calls MODEL TOOLS COUNT SEED     COUNT calls of each line of TOOLS that are forced in each form, over the vocabulary and
 *                                                 marks that are control tokens: {"tools", "form", "text"}, and what chat/calls.h finds
 *                                                 in it: "calls", "name", "arguments", "rest"; or {"tools", "form", "error"}
 *     mask-texts bench WORDS SCHEMAS COUNT SEED   times over a made-up vocabulary of so many tokens, as one JSON object
 *
 * A quarter of the draws closes something, and after a while all do, so that texts end. */
#include "common/base/js.h"
#include "common/model/gguf.h"
#include "common/model/tokenizer.h"
#include "runtime/forced.h"
#include "runtime/mask/mask.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 1 << 21, TOKENS = 600, PATIENCE = 120 };

static uint64_t state;
static unsigned draw(unsigned n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)((state >> 33) % n);
}

/* Of this thread: a busy machine does not lengthen it. */
static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void fail(const struct err *e)
{
    fprintf(stderr, "mask-texts: %s\n", e->msg);
    exit(1);
}

/* ---- vocabularies ---- */

static const char *of_model(const void *ctx, int32_t id, size_t *n, int *control)
{
    (void)control;
    return tokenizer_piece(ctx, id, n);
}

/* Behind the model's tokens. */
static const char *const marks[] = {
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|tool_call|>", "<|/tool_call|>", "<arg_key>", "</arg_key>",
    "<arg_value>", "</arg_value>", "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "</parameter>" /* text */
};
enum { MARKS = sizeof marks / sizeof marks[0] };
static int n_model;

static const char *of_marked(const void *ctx, int32_t id, size_t *n, int *control)
{
    if (id < n_model)
        return tokenizer_piece(ctx, id, n);
    *control = id - n_model < MARKS - 1;
    *n = strlen(marks[id - n_model]);
    return marks[id - n_model];
}

static int is_mark(const void *ctx, const char *name)
{
    int i = 0;
    while (i < MARKS - 1 && strcmp(marks[i], name))
        i++;
    return ctx && i < MARKS - 1;
}

static char (*made)[MASK_TOKEN + 1];
static const char *of_made(const void *ctx, int32_t id, size_t *n, int *control)
{
    (void)ctx;
    (void)control;
    *n = id < 256 ? 1 : strlen(made[id]);
    return made[id];
}

static void add(char *to, const char *s)
{
    size_t n = strlen(to), k = strlen(s);
    if (n + k <= MASK_TOKEN)
        memcpy(to + n, s, k + 1);
}

static void add_code(char *to, unsigned from, unsigned n)
{
    unsigned c = from + draw(n);
    add(to, c < 0x800 ? (char[]){ (char)(0xc0 | c >> 6), (char)(0x80 | (c & 63)), 0 }
                      : (char[]){ (char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63)), 0 });
}

/* Of the kinds that vocabularies of byte pairs have: words with and without a blank, capitals, digits, code, other scripts,
  cut characters. */
static void make_words(int n)
{
    static const char *const parts[] = { "a", "e", "i", "o", "u", "th", "er", "in", "an", "on", "re", "st", "ing", "ed", "ion", "ent",
      "al", "pro",
                                         "con", "ter", "com", "b", "d", "f", "g", "l", "m", "n", "p", "s", "t", "k", "v", "w", "y", "z" };
    static const char *const code[] = { "(", ")", "{", "}", "[", "]", "\"", "'", ":", ";", ",", ".", "=", "\n", "\t", "    ", "/",
      "\\", "<", ">", "_", "#" };
    made = calloc((size_t)n, sizeof *made);
    for (int i = 0; made && i < n; i++) {
        unsigned kind = draw(100);
        char *t = made[i];
        if (i < 256) {
            t[0] = (char)i;
        } else if (kind < 65) {
            add(t, kind < 40 ? " " : "");
            for (unsigned k = 1 + draw(4); k > 0; k--)
                add(t, parts[draw(sizeof parts / sizeof *parts)]);
            if (kind % 5 == 0)
                t[t[0] == ' '] = (char)(t[t[0] == ' '] - 32);
        } else if (kind < 68) {
            for (unsigned k = 1 + draw(3); k > 0; k--)
                add(t, (char[]){ (char)('0' + draw(10)), 0 });
        } else if (kind < 80) {
            for (unsigned k = 1 + draw(4); k > 0; k--)
                add(t, code[draw(sizeof code / sizeof *code)]);
            add(t, draw(2) ? parts[draw(sizeof parts / sizeof *parts)] : "");
        } else {
            for (unsigned k = 1 + draw(3); k > 0; k--)
                add_code(t, kind < 90 ? 0x4e00 : 0x400, kind < 90 ? 0x5000 : 0x60);
            if (kind == 99)
                t[strlen(t) - 1] = 0;
        }
    }
}

/* ---- texts ---- */

struct run {
    struct mask_words *w;
    mask_piece *piece;
    const void *ctx;
    int n_vocab;
    uint64_t *bits;
    int32_t *ids;
    double *us;             /* of masks, where they are timed */
    size_t n_us, most_us;
    struct calls *calls;    /* that what is drawn is given to, and what they find */
    enum calls_form form;
    enum chat_part part;
    int n_calls, rest;
    char name[64], arguments[1 << 16];
};

static int look(void *ctx, const struct calls_out *o)
{
    struct run *r = ctx;
    if (o->name) {
        r->n_calls++;
        snprintf(r->name, sizeof r->name, "%s", o->name);
        snprintf(r->arguments, sizeof r->arguments, "%.*s", (int)o->n, o->text);
    }
    for (size_t i = 0; !o->name && o->part == CHAT_ANSWER && i < o->n; i++)
        r->rest += o->text[i] != '\n';
    return 0;
}

/* Parts as chat/reader.h tells them apart. */
static void put(struct run *r, const char *s, size_t n, int control)
{
    if (control && r->form == CALLS_HARMONY && memcmp(s, "<|constrain|>", n))
        r->part = memcmp(s, "<|message|>", n) ? CHAT_HEADER : CHAT_THOUGHT;
    calls_put(r->calls, r->part, control, s, n, look, r);
}

static int32_t find_mark(const struct run *r, const char *mark)
{
    for (int i = 0; r->calls && i < MARKS; i++)
        if (!strcmp(marks[i], mark) && r->bits[(n_model + i) / 64] >> (n_model + i) % 64 & 1)
            return n_model + i;
    return -1;
}

static int32_t find(const struct run *r, int n, char c)
{
    for (int i = 0; i < n; i++) {
        size_t k;
        int control = 0;
        const char *s = r->piece(r->ctx, r->ids[i], &k, &control);
        if (k == 1 && *s == c)
            return r->ids[i];
    }
    return -1;
}

/* One that closes, where there is one: within a string its quote. */
static int32_t closing(const struct run *r, int n)
{
    int32_t id = find_mark(r, r->form == CALLS_XML ? "</parameter>" : r->form == CALLS_GLM ? "</arg_value>" : "<|end|>");
    if (id >= 0 && find(r, n, '!') >= 0)
        return id;
    for (const char *c = find(r, n, '!') >= 0 ? "\"}]" : "}]\"0,"; *c; c++)
        if ((id = find(r, n, *c)) >= 0)
            return id;
    return r->ids[draw((unsigned)n)];
}

/* The text in out[LINE]; its length, or -1: it did not end. */
static int text(struct run *r, struct mask *m, char *out)
{
    struct mask_text t = { 0 };
    struct err e;
    int len = 0, may_end = 0, n = 0;
    if (mask_begin(m, &t, &e) < 0)
        fail(&e);
    for (int step = 0; step < TOKENS; step++) {
        double start = cpu_us();
        if ((n = mask_allowed(&t, r->bits, &may_end, &e)) < 0)
            fail(&e);
        if (r->n_us < r->most_us)
            r->us[r->n_us++] = cpu_us() - start;
        if (n == 0 || (may_end && draw(2)))
            break;
        n = 0;
        for (int i = 0; i < r->n_vocab; i++)
            if (r->bits[i / 64] >> i % 64 & 1)
                r->ids[n++] = i;
        int32_t id = draw(4) < (step > PATIENCE ? 3u : 1u) ? closing(r, n) : r->ids[draw((unsigned)n)];
        size_t k;
        int control = 0;
        const char *s = r->piece(r->ctx, id, &k, &control);
        memcpy(out + len, s, k);
        len += (int)k;
        if (r->calls)
            put(r, s, k, control);
        if (mask_accept(&t, id, &e) != 1)
            fail(&(struct err){ .msg = "a token that was allowed is not" });
    }
    mask_end(&t);
    return may_end ? len : -1;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double at(const double *v, size_t n, double q)
{
    return n ? v[(size_t)((double)(n - 1) * q)] : 0;
}

/* One line of tools, in every form. */
static void calls(struct run *r, const struct js *tools, int index, int count, char *out)
{
    for (int k = 2 * CALLS_HERMES; k < 2 * (CALLS_HARMONY + 1); k++) {
        struct err e;
        struct mask *m;
        struct grammar *g;
        const struct forced f = { .form = (enum calls_form)(k / 2), .variant = k % 2, .tools = tools, .is_control = is_mark, .ctx = r };
        const char *second[] = { [CALLS_MISTRAL] = "", [CALLS_DEEPSEEK] = "", [CALLS_LIST] = "", [CALLS_HARMONY] = NULL };
        if (k % 2 && !second[k / 2])
            continue;
        int bad = forced_grammar(&f, &g, &e) < 0 || mask_of(g, r->w, &m, &e) < 0;
        for (int i = 0; i < (bad ? 1 : count); i++) {
            struct js *o = js_object();
            js_set_int(o, "tools", index);
            js_set_str(o, "form", calls_form_names[k / 2]);
            if (bad) {
                js_set_str(o, "error", e.msg);
            } else {
                r->form = f.form;
                r->part = f.form == CALLS_HARMONY ? CHAT_HEADER : CHAT_ANSWER;
                r->n_calls = r->rest = 0;
                if (calls_new(f.form, tools, 1 << 20, 1, &r->calls, &e) < 0)
                    fail(&e);
                int n = text(r, m, out);
                calls_end(r->calls, look, r);
                calls_free(r->calls);
                out[n < 0 ? 0 : n] = 0;
                js_set_str(o, n < 0 ? "cut" : "text", out);
                js_set_int(o, "calls", r->n_calls);
                js_set_int(o, "rest", r->rest);
                js_set_str(o, "name", r->name);
                js_set_str(o, "arguments", r->arguments);
            }
            if (js_print(stdout, o, 0, 0, &e) < 0)
                fail(&e);
            js_free(o);
        }
        if (!bad)
            mask_free(m);
    }
}

int main(int argc, char **argv)
{
    static struct run r;
    struct err e;
    struct tokenizer *t = NULL;
    static char line[LINE], out[TOKENS * (MASK_TOKEN + 1)];
    int bench = argc > 1 && !strcmp(argv[1], "bench"), forced = argc > 1 && !strcmp(argv[1], "calls");
    int index = 0, count = argc > 4 ? atoi(argv[4]) : 0, texts = 0;
    FILE *f = argc > 5 ? fopen(argv[3], "r") : NULL;
    if (!f) {
        fprintf(stderr, "usage: mask-texts texts|calls|bench MODEL|WORDS SCHEMAS|TOOLS COUNT SEED\n");
        return 2;
    }
    state = strtoull(argv[5], NULL, 10);
    if (bench) {
        r.piece = of_made;
        make_words(r.n_vocab = atoi(argv[2]));
        r.most_us = 4000000;
    } else {
        struct gguf *g;
        uint64_t n_vocab = 0, a, b;
        if (gguf_open(argv[2], &g, &e) < 0 || tokenizer_open(g, &t, &e) < 0 || tokenizer_measure(g, &n_vocab, &a, &b, &e) < 0)
            fail(&e);
        gguf_close(g);
        r.piece = forced ? of_marked : of_model;
        r.ctx = t;
        n_model = (int)n_vocab;
        r.n_vocab = n_model + (forced ? MARKS : 0);
    }
    r.bits = malloc(((size_t)r.n_vocab + 63) / 64 * 8);
    r.ids = malloc((size_t)r.n_vocab * sizeof *r.ids);
    r.us = r.most_us ? malloc(r.most_us * sizeof *r.us) : NULL;
    double start = cpu_us();
    if (!r.bits || !r.ids || (r.most_us && !r.us) || mask_words_new(r.piece, r.ctx, r.n_vocab, &r.w, &e) < 0)
        fail(&e);
    double words_ms = (cpu_us() - start) / 1e3, compile_ms = 0, worst = 0;
    for (; fgets(line, sizeof line, f); index++) {
        struct mask *m;
        size_t from = r.n_us;
        struct js *schema = js_parse(line, strlen(line), "a schema", &e);
        start = cpu_us();
        if (!schema)
            fail(&e);
        if (forced) {
            calls(&r, schema, index, count, out);
            js_free(schema);
            continue;
        }
        int bad = mask_new(schema, r.w, &m, &e) < 0;
        double ms = (cpu_us() - start) / 1e3;
        compile_ms = ms > compile_ms ? ms : compile_ms;
        for (int i = 0; i < (bad ? 1 : count); i++) {
            struct js *o = js_object();
            int n = bad ? 0 : text(&r, m, out);
            out[n < 0 ? 0 : n] = 0;
            js_set_int(o, "schema", index);
            js_set_str(o, bad ? "error" : n < 0 ? "cut" : "text", bad ? e.msg : out);
            if (!bench && js_print(stdout, o, 0, 0, &e) < 0)
                fail(&e);
            js_free(o);
            texts++;
        }
        if (r.us && r.n_us > from) {
            qsort(r.us + from, r.n_us - from, sizeof *r.us, by_value);
            double p99 = at(r.us + from, r.n_us - from, 0.99);
            worst = p99 > worst ? p99 : worst;
            if (getenv("EACH"))
                fprintf(stderr, "%d: %zu masks, median %.1f, p99 %.1f, most %.1f us: %.70s\n", index, r.n_us - from, at(r.us + from,
                  r.n_us - from, 0.5),
                        p99, at(r.us + from, r.n_us - from, 1), line);
        }
        if (!bad)
            mask_free(m);
        js_free(schema);
    }
    if (r.us) {
        qsort(r.us, r.n_us, sizeof *r.us, by_value);
        printf("{\"words\":%d,\"words_bytes\":%zu,\"words_ms\":%.1f,\"mask_bytes\":%zu,\"schemas\":%d,\"compile_ms_most\":%.2f,"
          "\"texts\":%d,\"masks\":%zu,"
               "\"us_median\":%.1f,\"us_p99\":%.1f,\"us_p99_worst_schema\":%.1f,\"us_most\":%.1f}\n", r.n_vocab, mask_words_bytes(r.w),
               words_ms,
               mask_bytes(r.n_vocab), index, compile_ms, texts, r.n_us, at(r.us, r.n_us, 0.5), at(r.us, r.n_us, 0.99), worst, at(r.us,
                 r.n_us, 1));
    }
    mask_words_free(r.w);
    tokenizer_close(t);
    free(r.bits);
    free(r.ids);
    free(r.us);
    free(made);
    fclose(f);
    return 0;
}
