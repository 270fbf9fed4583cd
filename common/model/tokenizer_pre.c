/* Pre-tokenizer patterns: BPE merges within words only, and what a word is the model's patterns say: each
 * cuts what the ones before it left, and both what it matches and what lies between is a piece of its own. They are those
 * that the models were trained with, run by PCRE2 (this is its only user) with Unicode properties. White space is
 * Unicode's White_Space, which PCRE2's \s is not: it takes U+180E in. Bytes that are no UTF-8 match nothing
 * and become words of their own; the text is validated here, once, because PCRE2 would check all that is left of
 * it at every word. PCRE2's own allocations are counted, since the runtime accounts for every byte. */
#include "common/model/tokenizer_impl.h"

#include "common/base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <string.h>

#define MOST 6 /* patterns of a pre-tokenizer */

struct pre {
    pcre2_general_context *general;
    pcre2_code *code[MOST];
    int n;
    size_t heap_bytes;
};

/* Parts of patterns. WS stands in a class, the others outside. */
#define WS       "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE    "[" WS "]"
#define SPACES   "|" SPACE "+(?![^" WS "])|" SPACE "+"    /* a run, less the one before a word */
#define LINES    "|" SPACE "*[\\r\\n]+" SPACES
#define ENGLISH  "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD     "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define OTHERS   " ?[^" WS "\\p{L}\\p{N}]+"
#define GPT2     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHERS SPACES
#define BY(digits) ENGLISH "|" WORD digits "|" OTHERS "[\\r\\n]*" LINES
#define LLAMA3   BY("\\p{N}{1,3}")
#define QWEN2    BY("\\p{N}")
/* Words of one case, or with a capital before small letters, with their marks. */
#define UPPER    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(english, digits) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" english "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" english \
                         "|" digits "|" OTHERS "[\\r\\n/]*" LINES
#define GPT4O    CASED(ENGLISH "?", "\\p{N}{1,3}")
#define CJK      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define HAN_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define ASCII_PUNCT_WORD "[!-/:-@\\[-`{-~][A-Za-z]+|"
#define MARKED_WORD "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define DEEPSEEK3 ASCII_PUNCT_WORD MARKED_WORD "[\\r\\n]*" LINES
/* Letters with case that DeepSeek LLM's tokenizer lists: these of Unicode's without those of the scripts in the class. */
#define DEEPSEEK_LETTERS "(?:(?![\\x{560}-\\x{588}\\x{10c7}-\\x{10ff}\\x{1c80}-\\x{1c8f}\\x{2d00}-\\x{2d2d}\\x{a790}-\\x{ab6f}" \
                   "\\x{10500}-\\x{10c7f}\\x{10cf3}-\\x{1189f}\\x{118e0}-\\x{1e8ff}\\x{1e944}-\\x{10ffff}])\\p{L&})++"
#define SENTENCE " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

/* Kimi's: words of one case as in GPT4O, but Han is a word of its own. Letters by what they are not, so that a word is one class. */
#if PCRE2_MAJOR * 100 + PCRE2_MINOR >= 1040
#define HAN      "\\p{sc:Han}"  /* by script; Han alone is by its extensions since 10.40 */
#else
#define HAN      "\\p{Han}"
#endif
#define NO_WORD  "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN "]"
#define KIMI_UPPER "[^\\p{Ll}" NO_WORD
#define KIMI_LOWER "[^\\p{Lu}\\p{Lt}" NO_WORD
#define KIMI     HAN "+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" ENGLISH "?|" \
                 "[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "+" KIMI_LOWER "*" ENGLISH "?|\\p{N}{1,3}|" OTHERS "[\\r\\n]*" LINES

/* Jais 2's: as Llama 3's, but runs of white space are cut in powers of two. */
#define RUN(...) "|" SPACE "{" #__VA_ARGS__ "}(?![^" WS "])"
#define JAIS2    ENGLISH "|" WORD "\\p{N}{1,3}|" OTHERS "[\\r\\n]*|" SPACE "*[\\r\\n]+" RUN(512) RUN(256) RUN(128) RUN(64) \
                 RUN(32) RUN(16) RUN(8) RUN(4) RUN(1,2) "|" SPACE

static const char *const sets[][MOST] = {
    { GPT2 }, { LLAMA3 }, { QWEN2 },
    { ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES },
    { GPT4O },
    { CASED("", "\\p{N}") },
    { "\\p{N}", GPT2 },
    { "[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]" },
    { "[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" },
    { "[\\r\\n]", SPACE "?" DEEPSEEK_LETTERS,
      SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", SPACE "+$", CJK, "\\p{N}+" },
    { "[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", CJK, "\\p{N}" },
    { "\\p{N}{1,3}", HAN_KANA, DEEPSEEK3 },
    { "[^\\n]+|\\n+" },
    { SENTENCE }, { SENTENCE, "\\p{N}" },
    { "\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*(?![\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}]))", GPT4O },
    { "\\p{N}+", "(?s:.+?(?=(?:\\p{Nd}{3})+(?!\\p{Nd}))|.+)" },
    { "'(?i:[sdmt]|ll|ve|re)|" WORD "\\p{N}|" OTHERS "[\\r\\n]*|" SPACE "*[\\r\\n]" SPACES },
    { ENGLISH "|" WORD "\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+" LINES },
    { WORD "\\p{N}|" OTHERS "[\\r\\n]*" LINES },
    { "[^\\n]+|\\n+", QWEN2 },
    { ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|" OTHERS "[\\r\\n/]?|" SPACE "*[\\r\\n]" SPACES },
    { "\\p{N}{1,3}", BY("\\p{N}+") },
    { KIMI }, { JAIS2 },
};
enum { WHOLE = PRE_WHOLE, BOS = PRE_BOS, IDS = PRE_IDS, NFC = PRE_NFC };
enum { S_GPT2, S_LLAMA3, S_QWEN2, S_QWEN35, S_GPT4O, S_TEKKEN, S_DIGITS, S_FALCON, S_DEFAULT, S_DEEPSEEK_LLM, S_DEEPSEEK_CODER,
       S_DEEPSEEK3, S_LINES, S_SENTENCE, S_VIKING, S_COHERE2, S_SUPERBPE, S_BAILING, S_SEED, S_UFAKZEKA, S_LAGUNA, S_EXAONE_MOE,
       S_MINICPM5, S_KIMI, S_JAIS2 };

static const struct {
    const char *name;
    int set, flags;
} names[] = {
    { "gpt-2", S_GPT2, 0 }, { "phi-2", S_GPT2, 0 }, { "gigachat", S_GPT2, 0 }, { "a.x-4.0", S_GPT2, 0 }, { "mellum", S_GPT2, 0 },
    { "modern-bert", S_GPT2, 0 }, { "mpt", S_GPT2, NFC }, { "olmo", S_GPT2, NFC }, { "jais", S_GPT2, 0 }, { "trillion", S_GPT2, 0 },
    { "granite-docling", S_GPT2, 0 }, { "exaone4", S_GPT2, 0 },
    { "llama-bpe", S_LLAMA3, WHOLE | BOS }, { "llama3", S_LLAMA3, WHOLE | BOS }, { "llama-v3", S_LLAMA3, WHOLE | BOS },
    { "falcon3", S_LLAMA3, WHOLE | BOS }, { "falcon-h1", S_LLAMA3, WHOLE | BOS }, { "pixtral", S_LLAMA3, WHOLE | BOS },
    { "midm-2.0", S_LLAMA3, WHOLE | BOS }, { "lfm2", S_LLAMA3, WHOLE | BOS },
    { "smaug-bpe", S_LLAMA3, 0 }, { "dbrx", S_LLAMA3, 0 },
    { "chatglm-bpe", S_LLAMA3, 0 }, { "glm4", S_LLAMA3, WHOLE }, { "glm5", S_LLAMA3, WHOLE },
    { "qwen2", S_QWEN2, NFC }, { "deepseek-r1-qwen", S_QWEN2, 0 }, { "megrez", S_QWEN2, 0 }, { "kormo", S_QWEN2, 0 },
    { "f2llmv2", S_QWEN2, 0 }, { "stablelm2", S_QWEN2, 0 }, { "hunyuan", S_QWEN2, 0 }, { "solar-open", S_QWEN2, 0 },
    { "grok-2", S_QWEN2, 0 }, { "qwen35", S_QWEN35, NFC },
    { "gpt-4o", S_GPT4O, 0 }, { "llama4", S_GPT4O, 0 }, { "kanana2", S_GPT4O, 0 }, { "talkie", S_GPT4O, 0 },
    { "minimax-m2", S_GPT4O, 0 }, { "tekken", S_TEKKEN, WHOLE | BOS },
    { "starcoder", S_DIGITS, 0 }, { "refact", S_DIGITS, 0 }, { "command-r", S_DIGITS, NFC }, { "smollm", S_DIGITS, 0 },
    { "codeshell", S_DIGITS, 0 }, { "exaone", S_DIGITS, 0 }, { "minerva-7b", S_DIGITS, 0 }, { "mellum2", S_DIGITS, 0 },
    { "falcon", S_FALCON, 0 }, { "default", S_DEFAULT, 0 },
    { "deepseek-llm", S_DEEPSEEK_LLM, 0 }, { "deepseek-coder", S_DEEPSEEK_CODER, 0 }, { "deepseek-v3", S_DEEPSEEK3, 0 },
    { "hunyuan-dense", S_DEEPSEEK3, 0 }, { "hy_v4", S_DEEPSEEK3, 0 }, { "joyai-llm", S_DEEPSEEK3, 0 },
    { "gemma4", S_LINES, BOS },
    { "poro-chat", S_SENTENCE, 0 }, { "bloom", S_SENTENCE, 0 }, { "gpt3-finnish", S_SENTENCE, 0 }, { "viking", S_VIKING, 0 },
    { "tiny_aya", S_COHERE2, 0 }, { "cohere2moe", S_COHERE2, 0 }, { "superbpe", S_SUPERBPE, 0 },
    { "bailingmoe", S_BAILING, 0 }, { "bailingmoe2", S_BAILING, 0 }, { "llada-moe", S_BAILING, 0 },
    { "seed-coder", S_SEED, 0 }, { "ufakzeka", S_UFAKZEKA, 0 }, { "laguna", S_LAGUNA, 0 }, { "exaone-moe", S_EXAONE_MOE, 0 },
    { "minicpm5", S_MINICPM5, WHOLE }, { "kimi-k2", S_KIMI, WHOLE | IDS }, { "jais-2", S_JAIS2, 0 },
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

static int compile(struct pre *p, const char *pattern, const char *name, struct err *e)
{
    pcre2_compile_context *cc = p->general ? pcre2_compile_context_create(p->general) : NULL;
    int code = 0;
    PCRE2_SIZE at = 0;
    if (cc)
        p->code[p->n] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!p->code[p->n])
        return err_set(e, ERR_NOMEM, "pre-tokenizer pattern '%s' (PCRE2 error %d at %zu)", name, code, (size_t)at);
    p->n++;
    return 0;
}

enum { NAMES = sizeof names / sizeof names[0] };

static int place_of(const char *name, size_t len)
{
    int i = 0;
    while (i < NAMES && (strlen(names[i].name) != len || memcmp(names[i].name, name, len)))
        i++;
    return i;
}

const char *tokenizer_pre_name(int i)
{
    return i >= 0 && i < NAMES ? names[i].name : NULL;
}

int pre_flags(const char *name, size_t len)
{
    int i = place_of(name, len);
    return i < NAMES ? names[i].flags : -1;
}

int pre_new(const char *name, struct pre **out, unsigned *flags, struct err *e)
{
    int i = place_of(name, strlen(name));
    if (i == NAMES)
        return err_set(e, ERR_UNSUPPORTED, "key 'tokenizer.ggml.pre' is '%.64s', which this version does not know", name);
    struct pre *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_NOMEM, "pre-tokenizer");
    p->heap_bytes = sizeof *p;
    p->general = pcre2_general_context_create(counted_malloc, counted_free, p);
    int r = 0;
    for (int k = 0; r == 0 && k < MOST && sets[names[i].set][k]; k++)
        r = compile(p, sets[names[i].set][k], name, e);
    if (r < 0) {
        pre_free(p);
        return r;
    }
    *flags = (unsigned)names[i].flags;
    *out = p;
    return 0;
}

void pre_free(struct pre *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        pcre2_code_free(p->code[i]);
    pcre2_general_context_free(p->general);
    free(p);
}

size_t pre_heap_bytes(const struct pre *p)
{
    return p ? p->heap_bytes : 0;
}

struct cut {
    const struct pre *p;
    pcre2_match_data *md;
    pre_word_fn *word;
    void *ctx;
};

/* Words of text[0..len), which is valid UTF-8, by the patterns from k on. */
static int cut(const struct cut *c, int k, const char *text, size_t len, struct err *e)
{
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(c->md);
    int r = 0;
    if (k == c->p->n)
        return c->word(c->ctx, text, len, e);
    for (size_t at = 0; r == 0 && at < len;) { /* everything before at has been handed out */
        int n = pcre2_match(c->p->code[k], (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, c->md, NULL);
        if (n < 0 && n != PCRE2_ERROR_NOMATCH) {
            char why[120];
            pcre2_get_error_message(n, (PCRE2_UCHAR *)why, sizeof why);
            return err_set(e, ERR_LIMIT, "pre-tokenizer at byte %zu of the text: %s", at, why);
        }
        /* No pattern matches nothing; should one, the rest is one piece. */
        size_t begin = n < 0 || span[1] <= span[0] ? len : span[0];
        size_t end = begin == len ? len : span[1];
        if (begin > at)
            r = cut(c, k + 1, text + at, begin - at, e);
        if (r == 0 && end > begin)
            r = cut(c, k + 1, text + begin, end - begin, e);
        at = end;
    }
    return r;
}

int pre_split(const struct pre *p, const char *text, size_t len, pre_word_fn *word, void *ctx, struct err *e)
{
    pcre2_match_data *md = pcre2_match_data_create(1, NULL);
    if (!md)
        return err_set(e, ERR_NOMEM, "pre-tokenizer match");
    const struct cut c = { p, md, word, ctx };
    int r = 0;
    for (size_t at = 0; r == 0 && at < len;) {
        size_t end = at, k;
        uint32_t code;
        while ((k = utf8_decode(text + end, len - end, &code)) > 0)
            end += k;
        r = cut(&c, 0, text + at, end - at, e);
        for (at = end; r == 0 && at < len && utf8_decode(text + at, len - at, &code) == 0; at++)
            r = word(ctx, text + at, 1, e);
    }
    pcre2_match_data_free(md);
    return r;
}
