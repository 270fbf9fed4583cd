/* Predictors in a trace: written, read back, replaced; the trace itself stays what it was; damage is refused. */
#include "common/base/bytes.h"
#include "common/offline/trace/trace_merge.h"
#include "common/offline/trace/trace_predict.h"
#include "tests/test.h"
#include "tests/trace_sample.h"

#include <math.h>
#include <unistd.h>

static char path[256], other[300];

enum { RANK = 6 };

struct made {
    int n, salt, stop_at;
    uint16_t fc1[RANK * SAMPLE_D], fc2[SAMPLE_FF * RANK];
    float bias[SAMPLE_FF * PREDICT_TWO_SIDED];
};

static int two_sided;
static int pick_to; /* 0: fc1 is a matrix; else the input that its last row picks */

static int fetch(void *ctx, int i, struct trace_predictor *x, const void **fc1, const void **fc2,
                 const float **bias, struct err *e)
{
    struct made *m = ctx;
    if (i == m->stop_at)
        return err_set(e, ERR_INTR, "stopped");
    *x = (struct trace_predictor){ .input = i / SAMPLE_LAYERS ? PREDICT_BLOCK : PREDICT_FFN,
                                   .layer = i % SAMPLE_LAYERS,
                                   .rank = RANK,
                                   .has_bias = i != 1 || two_sided,
                                   .two_sided = two_sided,
                                   .type1 = QUANT_F16,
                                   .type2 = QUANT_F16,
                                   .n_points = 2,
                                   .n_train = 100,
                                   .n_held = 20,
                                   .true_density = 0.125,
                                   .start_density = 0.5,
                                   .hot_density = 0.75,
                                   .at = { 0.99f, -1.5f, 0.25f, 0.5f } };
    x->curve[0] = (struct trace_predict_point){ 0.5f, 1, 0.1f, 0.9f };
    x->curve[1] = x->at;
    for (int k = 0; k < RANK * SAMPLE_D; k++)
        m->fc1[k] = (uint16_t)(k + 1000 * i + m->salt);
    for (int k = 0; k < SAMPLE_FF * RANK; k++)
        m->fc2[k] = (uint16_t)(k * 3 + i + m->salt);
    for (int k = 0; k < SAMPLE_FF * predict_numbers(1, two_sided); k++)
        m->bias[k] = (float)(k - i + m->salt);
    if (pick_to) {
        x->type1 = PREDICT_PICK;
        for (int k = 0; k < RANK; k++) {
            bytes_put32(m->fc1 + k * 4, (uint32_t)(k < RANK - 1 ? k : pick_to));
            bytes_putf32(m->fc1 + k * 4 + 2, 0.5f);
        }
    }
    *fc1 = m->fc1, *fc2 = m->fc2, *bias = m->bias;
    return 0;
}

static double loss_weighting;

static int save(const char *from, const char *to, int n, int salt, int stop_at, struct err *e)
{
    static struct made m;
    struct trace *t;
    struct trace_predict_info i = { .tool = "test 1", .tier = "scalar", .method = "svd", .recall = 0.99, .loss_weighting = loss_weighting,
                                    .seed = 5 };
    m = (struct made){ .n = n, .salt = salt, .stop_at = stop_at };
    int r = trace_open(from, &t, e);
    if (r < 0)
        return r;
    i.model_hash = trace_info(t)->model_hash;
    trace_close(t);
    return trace_predictors_save(from, to, &i, 0, n, fetch, &m, e);
}

static void read_back(const char *from, int n, int salt, struct hash128 content)
{
    struct err e = { 0 };
    struct trace *t = NULL;
    struct trace_predictors *p = NULL;
    CHECK_MSG(trace_open(from, &t, &e) == 0, "%s", e.msg);
    CHECK(hash_equal(trace_info(t)->content_hash, content) && trace_verify(t, &e) == 0);
    CHECK_MSG(trace_predictors_open(t, &p, &e) == 0 && p, "%s", e.msg);
    int have = 0;
    const struct trace_predictor *list = trace_predictors_list(p, &have);
    CHECK(have == n && trace_predictors_info(p)->seed == 5 && trace_predictors_info(p)->loss_weighting == loss_weighting &&
          !strcmp(trace_predictors_info(p)->method, "svd"));
    CHECK(list[0].input == PREDICT_FFN && list[0].at.threshold == -1.5f && list[0].curve[0].recall == 0.5f &&
          list[0].n_points == 2);
    CHECK(list[0].bytes == RANK * SAMPLE_D * 2 + SAMPLE_FF * RANK * 2 + SAMPLE_FF * 4 && list[0].hot_density == 0.75);
    CHECK(trace_predictors_find(p, PREDICT_FFN, 1, 0) == &list[1] && !trace_predictors_find(p, PREDICT_RESIDUAL, 1, 0));
    static uint16_t fc1[RANK * SAMPLE_D], fc2[SAMPLE_FF * RANK];
    float bias[SAMPLE_FF];
    for (int i = 0; i < n; i++) {
        CHECK_MSG(trace_predictors_read(p, &list[i], fc1, fc2, bias, &e) == 0, "%s", e.msg);
        CHECK(fc1[7] == 7 + 1000 * i + salt && fc2[11] == 33 + i + salt &&
              bias[9] == (i == 1 ? 0 : (float)(9 - i + salt)));
    }
    trace_predictors_close(p);
    trace_close(t);
}

/* Rows of the quality table that the trace at path now has; -1: it cannot be read. */
static int rows_of(const char *from, struct trace_predict_quality *out, char *corpus, struct err *e)
{
    struct trace *t = NULL;
    struct trace_predictors *p = NULL;
    const struct trace_predict_quality *rows;
    int n = -1;
    if (trace_open(from, &t, e) == 0 && trace_predictors_open(t, &p, e) == 0 && p) {
        n = trace_predict_quality(p, &rows);
        memcpy(out, rows, (size_t)n * sizeof *rows);
        snprintf(corpus, TRACE_PREDICT_CORPUS, "%s", trace_predict_corpus(p));
    }
    trace_predictors_close(p);
    trace_close(t);
    return n;
}

static void weighed(struct hash128 content)
{
    struct err e = { 0 };
    for (int i = 0; i < 2; i++) {
        loss_weighting = i ? 1 : 0.25;
        CHECK(save(path, other, 2, 0, -1, &e) == 0);
        read_back(other, 2, 0, content);
    }
    static const double bad[] = { -0.5, 1.5, NAN, INFINITY };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct trace *t = NULL;
        struct trace_predictors *p = NULL;
        loss_weighting = bad[i];
        CHECK(save(path, other, 2, 0, -1, &e) == 0 && trace_open(other, &t, &e) == 0);
        CHECK(trace_predictors_open(t, &p, &e) == ERR_FORMAT && !p && strstr(e.msg, "'weigh'"));
        trace_close(t);
    }
    loss_weighting = 0;
}

static void picked(void)
{
    struct err e = { 0 };
    static uint8_t fc1[RANK * PREDICT_PICK_BYTES];
    static uint16_t fc2[SAMPLE_FF * RANK];
    float bias[SAMPLE_FF];
    for (pick_to = SAMPLE_D - 1; pick_to <= SAMPLE_D; pick_to++) {
        struct trace *t = NULL;
        struct trace_predictors *p = NULL;
        int n, beyond = pick_to == SAMPLE_D;
        CHECK(save(path, other, 1, 0, -1, &e) == 0 && trace_open(other, &t, &e) == 0 &&
              trace_predictors_open(t, &p, &e) == 0);
        const struct trace_predictor *x = trace_predictors_list(p, &n);
        CHECK(n == 1 && x->bytes == RANK * 8 + SAMPLE_FF * RANK * 2 + SAMPLE_FF * 4);
        CHECK(trace_predictors_read(p, x, fc1, fc2, bias, &e) == (beyond ? ERR_FORMAT : 0));
        CHECK(beyond ? strstr(e.msg, "selects an input beyond") != NULL
                     : bytes_le32(fc1 + (RANK - 1) * 8) == SAMPLE_D - 1 && bytes_lef32(fc1 + 4) == 0.5f);
        trace_predictors_close(p);
        trace_close(t);
    }
    pick_to = 0;
}

static void quality(void)
{
    struct err e = { 0 };
    char corpus[TRACE_PREDICT_CORPUS];
    static struct trace_predict_quality back[TRACE_PREDICT_QUALITY], many[TRACE_PREDICT_QUALITY];
    struct trace_predict_quality rows[3] = {
        { PREDICT_FFN, 0.5, 0.625, 0.25, 0.125, 0.03125, 2, 0.75, 1.5, 100 },
        { PREDICT_FFN, 0.75, 0.875, 0.5, 0.125, 0.015625, 1, 0.875, 0.9375, 100 },
        { PREDICT_BLOCK, 0.5, 0.5, 0.375, 0.125, 0, 0, 1, 1, 100 },
    };
    CHECK(rows_of(path, back, corpus, &e) == 0 && !corpus[0]);
    CHECK_MSG(trace_predict_save_quality(path, other, rows, 3, "prompts.csv", NULL, &e) == 0, "%s", e.msg);
    CHECK(rows_of(other, back, corpus, &e) == 3 && !strcmp(corpus, "prompts.csv"));
    for (int i = 0; i < 3; i++) {
        const struct trace_predict_quality *a = &rows[i], *b = &back[i];
        CHECK(a->input == b->input && a->target == b->target && a->recall == b->recall && a->density == b->density &&
              a->true_density == b->true_density && a->kl_mean == b->kl_mean && a->kl_max == b->kl_max &&
              a->top1 == b->top1 && a->ppl_ratio == b->ppl_ratio && a->tokens == b->tokens);
    }
    CHECK(trace_predict_save_quality(other, other, rows, 1, "", NULL, &e) == 0 && rows_of(other, back, corpus, &e) == 1);
    CHECK(trace_predict_save_quality(other, other, rows, 0, "", NULL, &e) == 0 && rows_of(other, back, corpus, &e) == 0);
    for (int i = 0; i < TRACE_PREDICT_QUALITY; i++)
        many[i] = rows[1], many[i].target = i / 100.0;
    CHECK(trace_predict_save_quality(path, other, many, TRACE_PREDICT_QUALITY, "", NULL, &e) == 0 &&
          rows_of(other, back, corpus, &e) == TRACE_PREDICT_QUALITY && back[63].target == (double)0.63f);
    /* New predictors have no figures yet. */
    CHECK(save(other, other, 2, 0, -1, &e) == 0 && rows_of(other, back, corpus, &e) == 0);
    static const struct { const char *what; struct trace_predict_quality q; } bad[] = {
        { "input", { (enum predict_input)7, 0.5, 0.5, 0.5, 0.5, 0, 0, 1, 1, 100 } },
        { "no tokens", { PREDICT_FFN, 0.5, 0.5, 0.5, 0.5, 0, 0, 1, 1, 0 } },
        { "shares", { PREDICT_FFN, 0.5, 1.5, 0.5, 0.5, 0, 0, 1, 1, 100 } },
        { "shares", { PREDICT_FFN, 0.5, 0.5, 0.5, 0.5, 0, 0, NAN, 1, 100 } },
        { "divergence", { PREDICT_FFN, 0.5, 0.5, 0.5, 0.5, -1, 0, 1, 1, 100 } },
        { "divergence", { PREDICT_FFN, 0.5, 0.5, 0.5, 0.5, 2, 1, 1, 1, 100 } },
        { "divergence", { PREDICT_FFN, 0.5, 0.5, 0.5, 0.5, 0, INFINITY, 1, 1, 100 } },
        { "perplexity", { PREDICT_FFN, 0.5, 0.5, 0.5, 0.5, 0, 0, 1, 0, 100 } },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(trace_predict_save_quality(path, other, &bad[i].q, 1, "", NULL, &e) == 0);
        CHECK(rows_of(other, back, corpus, &e) == -1);
        CHECK_MSG(e.code == ERR_FORMAT && strstr(e.msg, bad[i].what), "%s, not: %s", bad[i].what, e.msg);
    }
    many[1] = many[0]; /* not ascending */
    CHECK(trace_predict_save_quality(path, other, many, 2, "", NULL, &e) == 0 && rows_of(other, back, corpus, &e) == -1);
    struct err none = { 0 };
    char bare[300];
    static struct trace_sample s;
    struct hash128 content;
    snprintf(bare, sizeof bare, "%s.bare", path);
    sample_init(&s, 0, 0, 1);
    CHECK(sample_write(&s, bare, 1, &content, &none) == 0);
    CHECK(trace_predict_save_quality(bare, other, rows, 1, "", NULL, &none) == ERR_INPUT); /* no predictors */
    unlink(bare);
}

/* Losses of layers stand beside the table, stay with it, and go with the inputs that they are of. */
static const struct trace_predict_losses *losses_of(const char *from, struct trace **t, struct trace_predictors **p, struct err *e)
{
    *t = NULL, *p = NULL;
    return trace_open(from, t, e) == 0 && trace_predictors_open(*t, p, e) == 0 && *p ? trace_predict_losses(*p) : NULL;
}

static void losses(void)
{
    struct err e = { 0 };
    struct trace *t;
    struct trace_predictors *p;
    const struct trace_predict_quality row = { PREDICT_FFN, 0.5, 0.625, 0.25, 0.125, 0.03125, 2, 0.75, 1.5, 100 };
    struct trace_predict_loss rows[2] = { { .input = PREDICT_FFN, .layer = 1, .kl_per_energy = 0.25 },
                                          { .input = PREDICT_BLOCK, .kl_per_energy = 2 } };
    struct trace_predict_losses l = { 2, 3, { 0.5f, 0.75f, 1 }, rows };
    for (int i = 0; i < 2 * 3 * TRACE_PREDICT_PARTS; i++)
        rows[i / 48].energy[i % 48 / 16][i % 16] = (float)i;
    CHECK_MSG(trace_predict_save_quality(path, other, &row, 1, "prompts.csv", &l, &e) == 0, "%s", e.msg);
    const struct trace_predict_losses *b = losses_of(other, &t, &p, &e);
    CHECK_MSG(b && b->n == 2 && b->n_targets == 3 && !memcmp(b->target, l.target, sizeof l.target), "%s", e.msg);
    for (int i = 0; i < 2 && b && b->n == 2; i++)
        CHECK(b->row[i].input == rows[i].input && b->row[i].layer == rows[i].layer && b->row[i].kl_per_energy == rows[i].kl_per_energy &&
              !memcmp(b->row[i].energy, rows[i].energy, sizeof rows[i].energy));
    trace_predictors_close(p), trace_close(t);
    CHECK(save(other, other, 2, 0, -1, &e) == 0 && (b = losses_of(other, &t, &p, &e)) && b->n == 0); /* of other predictors */
    trace_predictors_close(p), trace_close(t);
    for (int i = 0; i < 6; i++) {
        struct trace_predict_losses bad = l;
        struct trace_predict_loss two[2] = { rows[0], rows[1] };
        bad.row = two;
        *(i == 0 ? &two[0].energy[2][15] : i == 1 ? &two[1].energy[0][0] : i == 2 ? &bad.target[1] : &bad.target[2]) = i == 0 ? -1 : NAN;
        two[0].kl_per_energy = i == 3 ? -1 : 0;
        bad.target[2] = i == 4 ? 0.75f : i == 2 ? l.target[2] : i < 2 || i == 3 ? 1 : bad.target[2];
        two[0].layer = i == 5 ? 4096 : 1, bad.target[2] = i == 5 ? 1 : bad.target[2];
        CHECK(trace_predict_save_quality(path, other, &row, 1, "", &bad, &e) == 0);
        const char *what = i == 2 || i == 4 ? "loss_target" : i == 3 ? "divergence" : i == 5 ? "layer" : "energy";
        CHECK_MSG(!losses_of(other, &t, &p, &e) && e.code == ERR_FORMAT && strstr(e.msg, what), "%d: %s", i, e.msg);
        trace_predictors_close(p), trace_close(t);
    }
}

/* A shard's predictors are not lost in silence. */
static void merging(void)
{
    struct err e = { 0 };
    static struct trace_sample s;
    char a[300], b[300], m[300];
    const char *shards[2] = { b, a };
    struct hash128 whole, merged;
    struct trace *t = NULL;
    struct trace_predictors *p = NULL;
    snprintf(a, sizeof a, "%s.0", path);
    snprintf(b, sizeof b, "%s.1", path);
    snprintf(m, sizeof m, "%s.merged", path);
    sample_init(&s, 0, 0, 1);
    CHECK(sample_write(&s, m, 1, &whole, &e) == 0);
    unlink(m);
    for (int i = 0; i < 2; i++) {
        sample_init(&s, 0, i, 2);
        CHECK(sample_write(&s, shards[1 - i], 1, NULL, &e) == 0);
    }
    CHECK(trace_merge(shards, 2, m, 1, 0, NULL, NULL, NULL, &e) == 0);
    unlink(m);
    CHECK(save(b, b, 2, 0, -1, &e) == 0);
    CHECK(trace_merge(shards, 2, m, 1, 0, NULL, NULL, NULL, &e) == ERR_USAGE && access(m, F_OK) < 0);
    CHECK_MSG(strstr(e.msg, b) && strstr(e.msg, "--drop-predictors"), "%s", e.msg);
    CHECK(trace_merge(shards, 2, m, 1, 1, NULL, NULL, &merged, &e) == 0 && hash_equal(whole, merged));
    CHECK(trace_open(m, &t, &e) == 0 && trace_predictors_open(t, &p, &e) == 0 && !p);
    trace_close(t);
    unlink(a);
    unlink(b);
    unlink(m);
}

static void points(void)
{
    struct trace_predictor x = { .at = { 0.99f, 1, 0.3f, 0.5f }, .n_points = 3 };
    x.curve[0] = (struct trace_predict_point){ 0.9f, 3, 0.1f, 0.5f };
    x.curve[1] = (struct trace_predict_point){ 0.95f, 2, 0.2f, 0.5f };
    x.curve[2] = (struct trace_predict_point){ 0.995f, 0, 0.5f, 0.5f };
    CHECK(trace_predict_point_for(&x, 0.5) == &x.curve[0] && trace_predict_point_for(&x, 0.92) == &x.curve[1]);
    CHECK(trace_predict_point_for(&x, 0.96) == &x.at && trace_predict_point_for(&x, 0.992) == &x.curve[2]);
    CHECK(trace_predict_point_for(&x, 1) == &x.curve[2]); /* out of reach: the highest there is */
    x.n_points = 0;
    CHECK(trace_predict_point_for(&x, 1) == &x.at && trace_predict_point_for(&x, 0.1) == &x.at);
}

/* Every flip is noticed or harmless; nothing crashes. */
static void damage(void)
{
    struct err e = { 0 };
    char *good;
    size_t len, noticed = 0, tried = 0;
    const struct trace_predict_quality row = { PREDICT_FFN, 0.5, 0.625, 0.25, 0.125, 0.03125, 2, 0.75, 1.5, 100 };
    CHECK(trace_predict_save_quality(path, path, &row, 1, "prompts.csv", NULL, &e) == 0);
    CHECK(file_slurp(path, 1 << 28, &good, &len, &e) == 0);
    for (size_t at = len * 3 / 4; at < len; at += 61) {
        FILE *f = fopen(other, "wb");
        good[at] ^= 0x21;
        tried++;
        if (!f || fwrite(good, 1, len, f) != len)
            break;
        fclose(f);
        good[at] ^= 0x21;
        struct trace *t = NULL;
        struct trace_predictors *p = NULL;
        int r = trace_open(other, &t, &e);
        if (!r)
            r = trace_predictors_open(t, &p, &e);
        int n = 0;
        const struct trace_predictor *list = p ? trace_predictors_list(p, &n) : NULL;
        for (int i = 0; i < n && !r; i++) {
            void *a = malloc(list[i].bytes), *b = malloc(list[i].bytes);
            float bias[SAMPLE_FF];
            r = trace_predictors_read(p, &list[i], a, b, bias, &e);
            free(a), free(b);
        }
        noticed += r < 0;
        trace_predictors_close(p);
        trace_close(t);
    }
    printf("# %zu of %zu flips noticed\n", noticed, tried);
    CHECK(tried > 50 && noticed * 4 > tried); /* the rest is space between objects */
    free(good);
}

/* Of neurons with thresholds, whose predictors have two sides, and of no others. */
static void sides(int thresholds)
{
    static struct trace_sample s;
    static uint16_t fc1[RANK * SAMPLE_D], fc2[SAMPLE_FF * RANK];
    float bias[SAMPLE_FF * PREDICT_TWO_SIDED];
    char name[300];
    snprintf(name, sizeof name, "%s.sides", path);
    sample_init(&s, 0, 0, 1);
    if (thresholds)
        sample_add_thresholds(&s);
    for (two_sided = 0; two_sided < 2; two_sided++) {
        struct err e = { 0 };
        struct trace *t = NULL;
        struct trace_predictors *p = NULL;
        int n = 0;
        CHECK_MSG(sample_write(&s, name, 1, NULL, &e) == 0 && save(name, name, 2, 3, -1, &e) == 0 && trace_open(name, &t, &e) == 0, "%s",
                  e.msg);
        int r = trace_predictors_open(t, &p, &e);
        if (two_sided != thresholds) {
            CHECK(r == ERR_FORMAT && !p && strstr(e.msg, thresholds ? "one side, where neurons have thresholds"
                                                                    : "two sides, where neurons have no thresholds"));
        } else {
            const struct trace_predictor *list = r ? NULL : trace_predictors_list(p, &n);
            CHECK_MSG(n == 2 && list[1].two_sided == thresholds, "%s", e.msg);
            CHECK(n == 2 && trace_predictors_read(p, &list[0], fc1, fc2, bias, &e) == 0);
            CHECK(!thresholds || (list[0].bytes == RANK * SAMPLE_D * 2 + SAMPLE_FF * RANK * 2 + SAMPLE_FF * 12 &&
                                  bias[SAMPLE_FF * PREDICT_TWO_SIDED - 1] == SAMPLE_FF * PREDICT_TWO_SIDED - 1 + 3));
        }
        trace_predictors_close(p);
        trace_close(t);
    }
    two_sided = 0;
    unlink(name);
}

int main(void)
{
    static struct trace_sample s;
    struct err e = { 0 };
    struct hash128 content;
    test_path(path, sizeof path, "thermo-predict-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    snprintf(other, sizeof other, "%s.other", path);
    sample_init(&s, 0, 0, 1);
    CHECK_MSG(sample_write(&s, path, 1, &content, &e) == 0, "%s", e.msg);
    struct trace *t = NULL;
    struct trace_predictors *p = NULL;
    CHECK(trace_open(path, &t, &e) == 0 && trace_predictors_open(t, &p, &e) == 0 && !p); /* none yet */
    trace_close(t);
    CHECK_MSG(save(path, other, 2, 0, -1, &e) == 0, "%s", e.msg);
    read_back(other, 2, 0, content);
    CHECK(save(other, path, 4, 77, -1, &e) == 0); /* in place of the two */
    read_back(path, 4, 77, content);
    weighed(content);
    CHECK(save(path, path, 4, 5, 2, &e) == ERR_INTR); /* fails half-way: nothing has changed */
    read_back(path, 4, 77, content);
    quality();
    losses();
    picked();
    merging();
    points();
    sides(0);
    sides(1);
    damage();
    unlink(path);
    unlink(other);
    return test_done();
}
