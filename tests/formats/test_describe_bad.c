/* Broken model descriptions: truncated anywhere, any member dropped or renamed, figures that cannot be. Each is refused
 * and the message names file and place. */
#include "planner/describe/describe.h"
#include "tests/describe_sample.h"
#include "tests/test.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int try(const char *text, size_t len, struct err *e)
{
    struct describe d;
    char *copy = malloc(len ? len : 1); /* of the exact size: the sanitizer sees any read past the end */
    memcpy(copy, text, len);
    int r = describe_parse(copy, len, "bad.json", &d, e);
    free(copy);
    return r;
}

/* The sample with `from` replaced by `to`. */
static int with(const char *from, const char *to, struct err *e)
{
    const char *at = strstr(describe_sample, from);
    size_t len = strlen(describe_sample), n = strlen(from), m = strlen(to), first;
    if (!at)
        return 1;
    first = (size_t)(at - describe_sample);
    char *text = malloc(len + m);
    memcpy(text, describe_sample, first);
    memcpy(text + first, to, m);
    memcpy(text + first + m, at + n, len - first - n);
    int r = try(text, len - n + m, e);
    free(text);
    return r;
}

int main(void)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        { "-description", "-story", "format is not" },
        { "\"revision\": 1", "\"revision\": 2", "revision is not 1" },
        { "\"name\": \"sample\"", "\"name\": \"\"", "name is not a text" },
        { "\"layers\": 2", "\"layers\": 0", "shape.layers is not a whole number from 1" },
        { "\"layers\": 2", "\"layers\": 2.5", "shape.layers is not a whole number" },
        { "\"layers\": 2", "\"layers\": \"2\"", "shape.layers is not a whole number" },
        { "\"layers\": 2", "\"layers\": 100000000000000000000", "'bad.json' is refused: line 2, column 42: a number that is too large" },
        { "\"kv_heads\": 2", "\"kv_heads\": 3", "shape.kv_heads is 3" },
        { "\"heads\": 4", "\"heads\": 1048576", "more than 1048576 together" },
        { "\"n_ff\": 512", "\"n_ff\": 1048576, \"surprise\": 1", "unknown key 'surprise'" },
        { "\"experts\": 4, ", "", "only one of 'experts'" },
        { "\"experts_used\": 2", "\"experts_used\": 5", "shape.experts_used is 5 of 4" },
        { "\"tied_output\": false", "\"tied_output\": 0", "shape.tied_output is not true" },
        { "\"drelu\"", "\"mish\"", "shape.activation is not" },
        { "\"drelu\"", "\"silu\"", "activation is given, but silu" },
        { "\"Q4_0\", \"router\"", "\"Q5_9\", \"router\"", "types.attention is 'Q5_9'" },
        { "\"d_model\": 64", "\"d_model\": 72", "rows of 72 elements" },
        { ", \"router\": \"F32\"", "", "types.router is not a string" },
        { "\"batch\": 1", "\"batch\": 2", "no share for batch 1" },
        { "\"batch\": 4", "\"batch\": 3", "activation.rate[1].batch is 3" },
        { "\"batch\": 4", "\"batch\": 1", "activation.rate[1].batch is 1 once more" },
        { "\"share\": 0.3}", "\"share\": 0.1}", "of batch 4 is 0.1" },
        { "\"share\": 0.3}", "\"share\": 0.9}", "of batch 4 is 0.9" },
        { "\"share\": 0.15", "\"share\": 1.5", "activation.rate[0].share is not a number from" },
        { "{\"spread\": 0.65}", "{}", "needs one of 'points'" },
        { "{\"spread\": 0.65}", "7", "activation.skew is not an object" },
        { "\"spread\": 0.65", "\"spread\": 0.65, \"points\": []", "needs one of 'points'" },
        { "\"spread\": 0.65", "\"points\": []", "points is not an array of 1 to 64" },
        { "\"spread\": 0.65", "\"points\": [{\"neurons\": 0.5, \"firings\": 0.9}, {\"neurons\": 0.4, \"firings\": 0.95}]",
          "points[1] does not ascend" },
        { "\"spread\": 0.65", "\"points\": [{\"neurons\": 0.2, \"firings\": 0.3}, {\"neurons\": 0.4, \"firings\": 0.9}]",
          "points[1] says that later" },
        { "\"spread\": 0.65", "\"points\": [{\"neurons\": 0.5, \"firings\": 0.4}]", "leave more firings" },
        { "\"open_per_firing\": 1.25", "\"open_per_firing\": 0.5", "open_per_firing is not a number from 1" },
        { "\"expert_again\": 0.6", "\"expert_again\": 0.3", "expert_again is not a number from 0.5" },
        { "\"share\": 0.56", "\"share\": 0.80", "shares of 1.04 together" },
        { "\"period\": 8", "\"period\": 0.5", "persistence[0].period is not" },
        { "\"cached\": 0.5", "\"cached\": 0", "misses[0].cached is not" },
        { "\"bytes\": 4096", "\"bytes\": -1", "predictors.bytes is not" },
        { "\"rank\": 32, ", "", "predictors has no 'rank'" },
        { "\"rank\": 32", "\"rank\": 8", "predictors.type is Q4_0" },
        { "\"ffn\"", "\"stars\"", "predictors.input is not ffn" },
        { "\"predicted_per_firing\": 1.2", "\"predicted_per_firing\": 0.9", "predicted_per_firing is not a number from 0.99" },
        { "\"resident_bytes\": 1000", "\"resident_bytes\": 1e3", "resident_bytes is not a whole" },
        { "\"a paper\"", "\"\"", "shape.layers is not a text" },
        { "\"shape.layers\"", "\"shape.levels\"", "shape.levels names no part" },
        { "\"shape.layers\"", "\"shape..layers\"", "names no part" },
    };
    struct err e;
    size_t len = strlen(describe_sample);
    CHECK(try(describe_sample, len, &e) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        e.msg[0] = '\0';
        int r = with(cases[i].from, cases[i].to, &e);
        CHECK_MSG(r == ERR_FORMAT && strstr(e.msg, "bad.json") && strstr(e.msg, cases[i].says),
                  "%s for %s: %d, %s", cases[i].to, cases[i].from, r, e.msg);
    }

    int bad = 0;
    for (size_t i = 0; i + 2 < len; i++)
        bad += try(describe_sample, i, &e) != ERR_FORMAT || !strstr(e.msg, "bad.json");
    CHECK_MSG(bad == 0, "%d truncations were not refused", bad);

    /* Every key renamed, in turn: unknown, or missing. (Keys of sources are paths and are renamed too.) */
    bad = 0;
    int n = 0;
    for (size_t i = 0; i + 1 < len; i++)
        if (describe_sample[i] == '"' && isalpha((unsigned char)describe_sample[i + 1])) {
            const char *end = strchr(describe_sample + i + 1, '"');
            if (end[1] == ':') {
                char *t = strdup(describe_sample);
                t[i + 1] = '#';
                bad += try(t, len, &e) != ERR_FORMAT || !strstr(e.msg, "bad.json");
                n++;
                free(t);
            }
            i = (size_t)(end - describe_sample);
        }
    CHECK_MSG(bad == 0 && n > 40, "%d of %d renamed keys were not refused", bad, n);

    bad = 0;
    for (size_t i = 0; i < len; i++)
        for (int bit = 0; bit < 8; bit++) {
            char *t = strdup(describe_sample);
            t[i] = (char)(t[i] ^ 1 << bit);
            int r = try(t, len, &e);
            bad += r != 0 && (r != ERR_FORMAT || !strstr(e.msg, "bad.json"));
            free(t);
        }
    CHECK_MSG(bad == 0, "%d flipped bits were refused without saying where", bad);

    char *big = malloc(DESCRIBE_MAX_BYTES + 1u);
    memset(big, ' ', DESCRIBE_MAX_BYTES + 1u);
    CHECK(try(big, DESCRIBE_MAX_BYTES + 1u, &e) == ERR_LIMIT && strstr(e.msg, "bad.json"));
    free(big);
    return test_done();
}
