/* Pre-tokenizer patterns: BPE merges within words only, and what a word is the model's pattern says.
 * The patterns are the published ones of GPT-2, Llama 3 and Qwen 2, run by PCRE2 (this is its only
 * user) with Unicode properties. Bytes that are no UTF-8 match nothing and become words of their own; the
 * text is validated here, once, because PCRE2 would check all that is left of it at every word.
 * PCRE2's own allocations are counted, since the runtime accounts for every byte. */
#include "common/model/tokenizer_impl.h"

#include "common/base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <string.h>

struct pre {
    pcre2_general_context *general;
    pcre2_code *code;
    size_t heap_bytes;
};

static const struct {
    const char *name;
    bool ignore_merges;
    const char *pattern;
} patterns[] = {
    { "gpt-2", false,
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" },
    { "llama-bpe", true,
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
      "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    { "qwen2", false,
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
      "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
};

/* Each allocation is preceded by its size. */
#define HEAD 16

static void *counted_malloc(size_t n, void *ctx)
{
    struct pre *p = ctx;
    unsigned char *m = malloc(n + HEAD);
    if (!m)
        return NULL;
    memcpy(m, &n, sizeof n);
    p->heap_bytes += n + HEAD;
    return m + HEAD;
}

static void counted_free(void *m, void *ctx)
{
    struct pre *p = ctx;
    size_t n;
    if (!m)
        return;
    memcpy(&n, (unsigned char *)m - HEAD, sizeof n);
    p->heap_bytes -= n + HEAD;
    free((unsigned char *)m - HEAD);
}

int pre_new(const char *name, struct pre **out, bool *ignore_merges, struct err *e)
{
    size_t i = 0, n = sizeof patterns / sizeof patterns[0];
    while (i < n && strcmp(patterns[i].name, name))
        i++;
    if (i == n)
        return err_set(e, ERR_UNSUPPORTED, "key 'tokenizer.ggml.pre' is '%.64s': only gpt-2, llama-bpe and "
                       "qwen2 are supported", name);
    struct pre *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_NOMEM, "pre-tokenizer");
    p->heap_bytes = sizeof *p;
    p->general = pcre2_general_context_create(counted_malloc, counted_free, p);
    pcre2_compile_context *cc = p->general ? pcre2_compile_context_create(p->general) : NULL;
    int code = 0;
    PCRE2_SIZE at = 0;
    if (cc)
        p->code = pcre2_compile((PCRE2_SPTR)patterns[i].pattern, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP, &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!p->code) {
        pre_free(p);
        return err_set(e, ERR_NOMEM, "pre-tokenizer pattern '%s' (PCRE2 error %d at %zu)", name, code, (size_t)at);
    }
    *ignore_merges = patterns[i].ignore_merges;
    *out = p;
    return 0;
}

void pre_free(struct pre *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    pcre2_general_context_free(p->general);
    free(p);
}

size_t pre_heap_bytes(const struct pre *p)
{
    return p ? p->heap_bytes : 0;
}

/* Words of text[0..len), which is valid UTF-8. */
static int split_valid(const struct pre *p, pcre2_match_data *md, const char *text, size_t len,
                       pre_word_fn *word, void *ctx, struct err *e)
{
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(md);
    int r = 0;
    size_t at = 0; /* everything before it has been handed out */
    while (r == 0 && at < len) {
        int n = pcre2_match(p->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, md, NULL);
        if (n < 0 && n != PCRE2_ERROR_NOMATCH) {
            char why[120];
            pcre2_get_error_message(n, (PCRE2_UCHAR *)why, sizeof why);
            return err_set(e, ERR_LIMIT, "pre-tokenizer at byte %zu of the text: %s", at, why);
        }
        /* The patterns match every character and never nothing; should one, the rest is one word. */
        size_t begin = n < 0 || span[1] <= span[0] ? len : span[0];
        size_t end = begin == len ? len : span[1];
        if (begin > at)
            r = word(ctx, text + at, begin - at, e);
        if (r == 0 && end > begin)
            r = word(ctx, text + begin, end - begin, e);
        at = end;
    }
    return r;
}

int pre_split(const struct pre *p, const char *text, size_t len, pre_word_fn *word, void *ctx, struct err *e)
{
    pcre2_match_data *md = pcre2_match_data_create(1, NULL);
    if (!md)
        return err_set(e, ERR_NOMEM, "pre-tokenizer match");
    int r = 0;
    for (size_t at = 0; r == 0 && at < len;) {
        size_t end = at, k;
        uint32_t code;
        while ((k = utf8_decode(text + end, len - end, &code)) > 0)
            end += k;
        r = split_valid(p, md, text + at, end - at, word, ctx, e);
        for (at = end; r == 0 && at < len && utf8_decode(text + at, len - at, &code) == 0; at++)
            r = word(ctx, text + at, 1, e);
    }
    pcre2_match_data_free(md);
    return r;
}
