/* Pre-tokenizers: texts with the words that each must cut them into, by hand from the published patterns. */
#include "common/model/tokenizer_impl.h"
#include "tests/test.h"

#include <string.h>

static struct err e;
static char words[1024];

static int join(void *ctx, const char *word, size_t len, struct err *err)
{
    (void)ctx, (void)err;
    size_t n = strlen(words);
    if (n + len + 2 < sizeof words)
        snprintf(words + n, sizeof words - n, "%s%.*s", n ? "|" : "", (int)len, word);
    return 0;
}

static int splits(const char *name, const char *text, const char *want)
{
    struct pre *p;
    unsigned flags;
    words[0] = '\0';
    if (pre_new(name, &p, &flags, &e) < 0 || pre_split(p, text, strlen(text), join, NULL, &e) < 0) {
        printf("# %s: %s\n", name, e.msg);
        return 0;
    }
    int held = pre_heap_bytes(p) <= PRE_HEAP_BOUND, same = !strcmp(words, want);
    if (!held || !same)
        printf("# %s: '%s' gives '%s', not '%s'; %zu bytes\n", name, text, words, want, pre_heap_bytes(p));
    pre_free(p);
    return held && same;
}

static const struct {
    const char *name, *text, *words;
} split_cases[] = {
    { "gpt-2", "I'm here 1234  now\n", "I|'m| here| 1234| | now|\n" },
    { "gpt-2", "I'M ok!?", "I|'|M| ok|!?" },
    { "olmo", "x  y", "x| | y" },
    { "llama-bpe", "I'M here 12345  now\n\n x", "I|'M| here| |123|45| | now|\n\n| x" },
    { "llama3", "a!b\n", "a|!b|\n" },
    { "smaug-bpe", "1234 (x)\r\ny", "123|4| (|x|)\r\n|y" },
    { "glm4", "1234", "123|4" },
    { "qwen2", "a1234 's", "a|1|2|3|4| '|s" },
    { "qwen2", "na\xc3\xafve cafe\xcc\x81s", "na\xc3\xafve| cafe|\xcc\x81s" },         /* a combining accent begins a word */
    { "qwen35", "cafe\xcc\x81s 12", "cafe\xcc\x81s| |1|2" },                           /* here it belongs to one */
    { "gpt-4o", "HelloWorld's ABCd don't 1234/x\n", "Hello|World's| ABCd| don't| |123|4|/x|\n" },
    { "gpt-4o", "cafe\xcc\x81s a//\n/b", "cafe\xcc\x81s| a|//\n/|b" },
    { "llama4", "XMLHttp", "XMLHttp" },
    { "tekken", "HelloWorld's 12", "Hello|World|'s| |1|2" },
    { "starcoder", "x12 3's", "x|1|2| |3|'s" },
    { "command-r", "a 1b", "a| |1|b" },
    { "falcon", "a+b 12345 (x)", "a|+|b| |123|45| |(|x|)" },
    { "default", "a+b 12345", "a|+|b| |123|45" },
    { "deepseek-llm", "Hi \xd0\xbc\xd0\xb8\xd1\x80\n \xe4\xbd\xa0\xe5\xa5\xbd" "12  ",
      "Hi| \xd0\xbc\xd0\xb8\xd1\x80|\n| |\xe4\xbd\xa0\xe5\xa5\xbd|12|  " },
    { "deepseek-llm", "a\xf0\x9d\x90\x80", "a|\xf0\x9d\x90\x80" },                       /* mathematical letters are no words */
    { "deepseek-coder", "if (x) 12\n", "if| (|x|)| |1|2|\n" },
    { "deepseek-v3", "a.b 1234 \xe4\xbd\xa0\xe3\x81\xaex", "a|.b| |123|4| |\xe4\xbd\xa0\xe3\x81\xae|x" },
    { "gemma4", "a  b\n\nc", "a  b|\n\n|c" },
    { "bloom", "hi (x), y", "hi| (|x|),| y" },
    { "viking", "a12", "a|1|2" },
    { "tiny_aya", "1234567 12345x", "1|234|567| |123|45|x" },
    { "superbpe", "by the way 1234567", "by the way |1|234|567" },
    { "bailingmoe", "I'Ll \n\nx", "I|'Ll| \n\n|x" },
    { "seed-coder", "a!\n", "a|!|\n" },
    { "ufakzeka", "a's", "a|'s" },
    { "laguna", "a \n\n b", "a| |\n\n| b" },
    { "exaone-moe", "a b c1", "a b c|1" },
    { "minicpm5", "12345", "123|45" },
    { "kimi-k2", "\xe4\xbd\xa0\xe5\xa5\xbdHelloWorld's \xe4\xb8\x96" "1234 a.b",
      "\xe4\xbd\xa0\xe5\xa5\xbd|Hello|World's| |\xe4\xb8\x96|123|4| a|.b" },
    { "kimi-k2", "\xe3\x81\xae\xe4\xbd\xa0\xcc\x81!\n/ \xe3\x80\x87" "1\xe3\x80\x87", /* kana are letters; U+3007 is Han and a number */
      "\xe3\x81\xae|\xe4\xbd\xa0|\xcc\x81|!\n|/| |\xe3\x80\x87|1\xe3\x80\x87" },
    { "kimi-k2", "\xe3\x83\xbc\xe3\x80\x81\xe4\xbd\xa0", "\xe3\x83\xbc|\xe3\x80\x81|\xe4\xbd\xa0" }, /* Han by script, not by extensions */
};

static void patterns(void)
{
    for (size_t i = 0; i < sizeof split_cases / sizeof split_cases[0]; i++)
        CHECK(splits(split_cases[i].name, split_cases[i].text, split_cases[i].words));
}

/* ---- cuts ---- */

static int mark(void *ctx, const char *word, size_t len, struct err *err)
{
    char **ends = ctx; /* of the text, of marks: a byte of the text ends a word */
    (void)err;
    ends[1][word + len - ends[0]] = 1;
    return 0;
}

/* Where words end, but for the cut, of a text and of its two parts. */
static int same_words(const struct pre *p, char *text, size_t len, size_t cut)
{
    char whole[256] = { 0 }, parts[256] = { 0 };
    int r = pre_split(p, text, len, mark, (char *[]){ text, whole }, &e);
    r = r < 0 ? r : pre_split(p, text, cut, mark, (char *[]){ text, parts }, &e);
    r = r < 0 ? r : pre_split(p, text + cut, len - cut, mark, (char *[]){ text, parts }, &e);
    whole[cut] = parts[cut] = 1;
    if (r == 0 && !memcmp(whole, parts, sizeof whole))
        return 1;
    printf("# '%.*s', '%s'\n", (int)cut, text, text + cut);
    return 0;
}

/* Random texts, at every place where they may be cut, by every pattern. */
static void cuts(void)
{
    static const char *const signs[] = { "a", "B", "s", "'s", " ", " ", " ", "\n", "\r", "1", "23", "456", ",", ".", "(", "_", "/",
                                         "\xc3\xa9", "\xd0\xb9", "\xcc\x81", "\xc2\xa0", "\xe4\xbd\xa0",
                                         "\xe3\x80\x80", "\xff", "\xd9\xa1", "+", "$" };
    const struct tokenizer t = { .cuts = true };
    unsigned x = 1, n_cuts = 0;
    for (size_t i = 0; i < sizeof split_cases / sizeof split_cases[0]; i++) {
        struct pre *p;
        unsigned flags;
        CHECK(pre_new(split_cases[i].name, &p, &flags, &e) == 0);
        for (int k = 0; k < 2000; k++) {
            char text[256] = "";
            for (int m = 0; m < 24; m++)
                strcat(text, signs[(x = x * 1664525u + 1013904223u) >> 16 & 0xff ? (x >> 8) % (sizeof signs / sizeof *signs) : 0]);
            size_t len = strlen(text);
            for (size_t at = len; (at = tokenizer_cut(&t, text, at)) > 0; n_cuts++)
                CHECK_MSG(same_words(p, text, len, at), "%s", split_cases[i].name);
        }
        pre_free(p);
    }
    CHECK_MSG(n_cuts > 10000, "%u", n_cuts);
}

/* White space is Unicode's White_Space: U+0085, U+00A0 and U+3000 are, U+180E and U+200B are not. */
static void white_space(void)
{
    static const char *const is[] = { "\t", "\v", "\f", "\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\x83", "\xe2\x80\xa8",
                                      "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80" };
    static const char *const not[] = { "\xe1\xa0\x8e", "\xe2\x80\x8b", "\xef\xbb\xbf", "\x1c" };
    char text[32], want[32];
    for (size_t i = 0; i < sizeof is / sizeof is[0]; i++) {
        snprintf(text, sizeof text, "a%s%s.", is[i], is[i]);
        snprintf(want, sizeof want, "a|%s|%s|.", is[i], is[i]);
        CHECK(splits("gpt-2", text, want));
    }
    for (size_t i = 0; i < sizeof not / sizeof not[0]; i++) {
        snprintf(text, sizeof text, "a%s%s.", not[i], not[i]);
        snprintf(want, sizeof want, "a|%s%s.", not[i], not[i]);
        CHECK(splits("gpt-2", text, want));
    }
}

/* Bytes that are no UTF-8 are words of their own, whatever the patterns. */
static void bytes(void)
{
    CHECK(splits("deepseek-v3", "a\xff\xc3" "b", "a|\xff|\xc3|b"));
    CHECK(splits("gpt-2", "", ""));
}

static void flags(void)
{
    static const struct {
        const char *name;
        unsigned flags;
    } cases[] = { { "llama-bpe", PRE_WHOLE | PRE_BOS }, { "tekken", PRE_WHOLE | PRE_BOS }, { "glm4", PRE_WHOLE }, { "qwen2", PRE_NFC },
                  { "qwen35", PRE_NFC }, { "deepseek-r1-qwen", 0 }, { "mpt", PRE_NFC }, { "olmo", PRE_NFC }, { "command-r", PRE_NFC },
                  { "kimi-k2", PRE_WHOLE | PRE_IDS },
                  { "gemma4", PRE_BOS }, { "gpt-4o", 0 } };
    struct pre *p;
    unsigned got;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(pre_new(cases[i].name, &p, &got, &e) == 0 && got == cases[i].flags);
        pre_free(p);
    }
    CHECK(pre_new("qwen9", &p, &got, &e) == ERR_UNSUPPORTED && strstr(e.msg, "'qwen9'"));
}

int main(void)
{
    patterns();
    white_space();
    bytes();
    flags();
    cuts();
    return test_done();
}
