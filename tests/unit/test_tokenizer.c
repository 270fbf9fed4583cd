#include "common/model/tokenizer.h"
#include "tests/test.h"
#include "tests/tokenizer_sample.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "datasets/models/reglu-tales-10m-f16.gguf"

static struct err e;

static int same_ids(const struct tokenizer *t, const char *text, size_t len, int parse_special,
                    const int32_t *want, int n_want)
{
    return sample_ids(t, text, len, 0, parse_special, want, n_want, &e);
}

/* The pieces of the ids of a text, less the space put before it, are the text. */
static int round_trip(const struct tokenizer *t, const char *text, size_t len)
{
    int32_t *ids;
    int n;
    size_t at = 0, skip = (size_t)(tokenizer_adds_space(t) && len > 0);
    if (tokenizer_encode(t, text, len, 1, 0, &ids, &n, &e) < 0)
        return 0;
    int ok = 1;
    for (int i = 0; ok && i < n; i++) {
        size_t k;
        const char *p = tokenizer_piece(t, ids[i], &k);
        if (skip && k) {
            ok = *p == ' ';
            p++;
            k--;
            skip = 0;
        }
        ok = ok && k <= len - at && !memcmp(p, text + at, k);
        at += k;
    }
    free(ids);
    return ok && at == len;
}

/* Cut wherever it can be, a text gives the ids of the whole; how many cuts there were, or -1. */
static int in_pieces(const struct tokenizer *t, const char *text, size_t len)
{
    int32_t *ids, *left, *right;
    int n, n_left, n_right, cuts = 0;
    if (tokenizer_encode(t, text, len, 1, 0, &ids, &n, &e) < 0)
        return -1;
    for (size_t at = len; cuts >= 0 && (at = tokenizer_cut(t, text, at)) > 0;) {
        if (tokenizer_encode(t, text, at, 1, 0, &left, &n_left, &e) < 0)
            return -1;
        if (tokenizer_encode_more(t, text + at, len - at, 0, &right, &n_right, &e) < 0)
            return -1;
        cuts = n == n_left + n_right && !memcmp(ids, left, (size_t)n_left * sizeof *ids) &&
               !memcmp(ids + n_left, right, (size_t)n_right * sizeof *ids) ? cuts + 1 : -1;
        free(left);
        free(right);
    }
    free(ids);
    return cuts;
}

/* Every case of a document, and their number. */
static size_t check_cases(const struct tokenizer *t, const json_t *doc)
{
    json_t *cases = json_object_get(doc, "cases"), *c;
    size_t i;
    json_array_foreach(cases, i, c) {
        json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
        int32_t want[256];
        for (size_t k = 0; k < json_array_size(ids); k++)
            want[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        CHECK(same_ids(t, json_string_value(text), json_string_length(text), 0, want, (int)json_array_size(ids)));
        CHECK(round_trip(t, json_string_value(text), json_string_length(text)));
        CHECK(in_pieces(t, json_string_value(text), json_string_length(text)) >= 0);
    }
    return json_array_size(cases);
}

static void golden(const struct tokenizer *t)
{
    json_error_t je;
    json_t *doc = json_load_file("tests/golden/tokenizer-reglu-tales.json", 0, &je);
    CHECK(check_cases(t, doc) == 24);
    json_decref(doc);
}

static int says(const char *text)
{
    if (strstr(e.msg, text))
        return 1;
    printf("# message is: %s\n", e.msg);
    return 0;
}

/* Documents of the held-out ids, <s> text </s>: their text gives the same ids again. */
static void heldout(const struct tokenizer *t, const char *path)
{
    char *raw, *text = malloc(1 << 20);
    size_t len;
    int docs = 0, same = 0, back = 0, cut = 0;
    CHECK(file_slurp(path, 1 << 24, &raw, &len, &e) == 0);
    int n = (int)(len / 2);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        ids[i] = bytes_le16(raw + 2 * i);
    for (int i = 0, end; i < n; i = end + 1) {
        size_t at = 0;
        for (end = i + 1; end < n && ids[end] != 2; end++) {
            size_t k;
            const char *p = tokenizer_piece(t, ids[end], &k);
            memcpy(text + at, p, k);
            at += k;
        }
        if (ids[i] != 1 || end == n || at == 0 || text[0] != ' ')
            break;
        docs++;
        same += same_ids(t, text + 1, at - 1, 0, ids + i + 1, end - i - 1);
        back += round_trip(t, text + 1, at - 1);
        cut += docs > 2 || in_pieces(t, text + 1, at < 2000 ? at - 1 : 2000) > 10;
    }
    CHECK_MSG(cut == docs, "%s: %d documents, %d the same in pieces: %s", path, docs, cut, e.msg);
    CHECK_MSG(docs >= 16 && same == docs && back == docs, "%s: %d documents, %d same, %d back", path, docs, same, back);
    free(ids);
    free(raw);
    free(text);
}

static void embedded(void)
{
    struct gguf *g;
    struct tokenizer *t;
    uint64_t n_vocab, text_bytes, n_merges;
    size_t len;
    CHECK(gguf_open(MODEL, &g, &e) == 0);
    CHECK(tokenizer_measure(g, &n_vocab, &text_bytes, &n_merges, &e) == 0 && n_vocab == 4096 && n_merges == 0);
    size_t before = mallinfo2().uordblks;
    CHECK(tokenizer_open(g, &t, &e) == 0);
    size_t held = mallinfo2().uordblks - before;
    gguf_close(g); /* not needed any more */
    CHECK(tokenizer_heap_bytes(t) <= tokenizer_heap_bound(n_vocab, text_bytes, n_merges));
    CHECK_MSG(held <= tokenizer_heap_bound(n_vocab, text_bytes, n_merges), "held %zu", held);
    CHECK(held == 0 || held >= tokenizer_heap_bytes(t)); /* 0: a sanitizer's allocator does not tell */
    CHECK(tokenizer_bos(t) == 1 && tokenizer_adds_space(t));
    CHECK(tokenizer_is_eog(t, 2) && !tokenizer_is_eog(t, 1) && !tokenizer_is_eog(t, -1) && !tokenizer_is_eog(t, 4096));
    tokenizer_piece(t, 1, &len);
    CHECK(len == 0);
    tokenizer_piece(t, 4096, &len);
    CHECK(len == 0);
    CHECK(*tokenizer_piece(t, 13, &len) == '\n' && len == 1); /* <0x0A> */
    golden(t);
    heldout(t, "datasets/heldout/held_tiny.bin");
    heldout(t, "datasets/heldout/held_fairy.bin");
    static const int32_t special[] = { 4039, 1, 261, 2 }, plain[] = { 4039, 63, 4047, 65 };
    CHECK(same_ids(t, " <s>a</s>", 9, 1, (const int32_t[]){ 4039, 4039, 1, 261, 2 }, 5));
    CHECK(same_ids(t, "<s>a</s>", 8, 1, special + 1, 3) && same_ids(t, "<s>", 3, 0, plain, 4));
    CHECK(round_trip(t, "\xff\xc3(\xe2\x96 \0x\xf0\x9f\x98", 12)); /* no UTF-8, and a NUL */
    enum { LONG = 300000 };
    char *text = malloc(LONG);
    memset(text, 'a', LONG);
    CHECK(round_trip(t, text, LONG));
    memset(text, ' ', LONG);
    CHECK(round_trip(t, text, LONG));
    free(text);
    tokenizer_close(t);
}

/* A SentencePiece vocabulary of n tokens; NULL scores: by rank; byte tokens are put in front by `bytes`. */
static struct gguf *spm(const char *const *tokens, const float *scores, const int32_t *types, int n,
                        const struct tiny_edit *ed)
{
    struct gguf_writer *w;
    struct gguf *g;
    size_t len;
    static uint8_t *blob;
    free(blob);
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", "llama", &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", tokens, n);
    if (scores)
        tiny_array32(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    if (types)
        tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    for (; ed && ed->key; ed++)
        tiny_edited(w, ed, ed->key);
    tiny_check(gguf_writer_blob(w, &blob, &len, &e), &e);
    gguf_writer_free(w);
    tiny_check(gguf_parse(blob, len, len, "spm", &g, &e), &e);
    return g;
}

#define BLANK "\xe2\x96\x81"

static void spm_rules(void)
{
    enum { UNK, BOS, EOS, A, B, C, AB, BC, ABC, CC, USER, SP, SPA, USER2, LONGER, N };
    static const char *const tokens[N] = { "<unk>", "<s>", "</s>", "a", "b", "c", "ab", "bc", "abc", "cc", "a b",
                                           BLANK, BLANK "a", "<tag>", "<tag>x" };
    static const float scores[N] = { 0, 0, 0, -9, -9, -9, -2, -2, -5, -1, 0, -9, -3, 0, 0 };
    static const int32_t types[N] = { 2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4 };
    static const struct tiny_edit no_space[] = { { "tokenizer.ggml.add_space_prefix", 'b', 0, NULL },
                                                 { "tokenizer.ggml.add_bos_token", 'b', 0, NULL }, { 0 } };
    struct tokenizer *t;
    struct gguf *g = spm(tokens, scores, types, N, no_space);
    CHECK(tokenizer_open(g, &t, &e) == 0);
    gguf_close(g);
#define IS(text, ...) same_ids(t, text, sizeof(text) - 1, 0, (const int32_t[]){ __VA_ARGS__ }, \
                               (int)(sizeof((const int32_t[]){ __VA_ARGS__ }) / 4))
    CHECK(IS("abc", ABC));              /* ab and bc tie: the left one, then abc */
    CHECK(IS("bcab", BC, AB));
    CHECK(IS("aab", A, AB));
    CHECK(IS("ccc", CC, C));            /* leftmost again */
    CHECK(IS("abcc", AB, CC));          /* cc has the highest score */
    CHECK(IS("a b", A, SP, B));         /* a vocabulary text with a plain space is not matched */
    CHECK(IS(" a", SPA));
    CHECK(IS(BLANK "a", SPA));          /* U+2581 is a space */
    CHECK(IS("d", UNK));                /* no byte tokens: unknown */
    CHECK(IS("<tag>a", USER2, A));      /* user-defined: found without parse_special */
    CHECK(IS("b<tag>x", B, LONGER));    /* the longest first */
    CHECK(IS("<s>", UNK, UNK, UNK));    /* control: not from plain text */
    CHECK(same_ids(t, "a<s><unk>", 9, 1, (const int32_t[]){ A, BOS, UNK }, 3));
    CHECK(same_ids(t, "", 0, 0, NULL, 0));
    tokenizer_close(t);

    g = spm(tokens, scores, types, N, NULL);
    CHECK(tokenizer_open(g, &t, &e) == 0);
    gguf_close(g);
    CHECK(IS("a", SPA));
    CHECK(IS("<tag>a", USER2, SPA));    /* a space before what follows a special token, too */
    int32_t *ids;
    int n;
    CHECK(tokenizer_encode(t, "", 0, 1, 0, &ids, &n, &e) == 0 && n == 1 && ids[0] == BOS);
    free(ids);
    size_t len;
    CHECK(!memcmp(tokenizer_piece(t, SPA, &len), " a", 2) && len == 2);
    CHECK(!memcmp(tokenizer_piece(t, LONGER, &len), "<tag>x", 6) && len == 6);
    CHECK(*tokenizer_piece(t, 99, &len) == '\0' && len == 0);
    tokenizer_close(t);
}

/* What opening says of a vocabulary; code 0: it opens. */
static int opening(const char *const *tokens, const float *scores, const int32_t *types, int n,
                   const struct tiny_edit *ed, int code, const char *text)
{
    struct gguf *g = spm(tokens, scores, types, n, ed);
    struct tokenizer *t = NULL;
    int r = tokenizer_open(g, &t, &e);
    gguf_close(g);
    if (r == 0)
        tokenizer_close(t);
    return r == code && (code == 0 || says(text));
}

static void spm_refusals(void)
{
    static const char *const tokens[4] = { "<unk>", "<s>", "</s>", "a" };
    static const char *const odd_byte[4] = { "<unk>", "<s>", "</s>", "<0xG0>" };
    static const float scores[4] = { 0, 0, 0, -1 }, nan_score[4] = { 0, 0, 0, 0.0f / 0.0f };
    static const int32_t types[4] = { 2, 3, 3, 1 }, bytes[4] = { 2, 3, 3, 6 }, seven[4] = { 2, 3, 3, 7 };
    static const struct tiny_edit bos[] = { { "tokenizer.ggml.bos_token_id", 'u', 4, NULL }, { 0 } };
    static const struct tiny_edit bos_text[] = { { "tokenizer.ggml.bos_token_id", 's', 0, "1" }, { 0 } };
    static const struct tiny_edit flag[] = { { "tokenizer.ggml.add_space_prefix", 'u', 1, NULL }, { 0 } };
    CHECK(opening(tokens, scores, types, 4, NULL, 0, NULL));
    CHECK(opening(tokens, NULL, types, 4, NULL, ERR_FORMAT, "'spm': key 'tokenizer.ggml.scores' is absent"));
    CHECK(opening(tokens, scores, NULL, 4, NULL, ERR_FORMAT, "'tokenizer.ggml.token_type' is absent"));
    CHECK(opening(tokens, nan_score, types, 4, NULL, ERR_FORMAT, "score of token 3"));
    CHECK(opening(tokens, scores, seven, 4, NULL, ERR_FORMAT, "token 3 is of unknown type 7"));
    CHECK(opening(odd_byte, scores, bytes, 4, NULL, ERR_FORMAT, "token 3"));
    CHECK(opening(tokens, scores, types, 4, bos, ERR_FORMAT, "'tokenizer.ggml.bos_token_id' is 4, but there are 4"));
    CHECK(opening(tokens, scores, types, 4, bos_text, ERR_FORMAT, "bos_token_id"));
    CHECK(opening(tokens, scores, types, 4, flag, ERR_FORMAT, "add_space_prefix"));
    char *huge = malloc(300);
    memset(huge, 'x', 299);
    huge[299] = '\0';
    const char *const long_special[4] = { "<unk>", huge, "</s>", "a" };
    CHECK(opening(long_special, scores, types, 4, NULL, ERR_LIMIT, "special token 1 has 299 bytes"));
    free(huge);
    struct gguf *g;
    struct tokenizer *t;
    size_t len;
    static const struct { struct tiny_edit ed[2]; int code; const char *text; } models[] = {
        { { { "tokenizer.ggml.model", 's', 0, "bert" }, { 0 } }, ERR_UNSUPPORTED, "'bert'" },
        { { { "tokenizer.ggml.model", '-', 0, NULL }, { 0 } }, ERR_FORMAT, "'tokenizer.ggml.model' is absent" },
        { { { "tokenizer.ggml.model", 's', 0, "gpt2" }, { 0 } }, ERR_FORMAT, "'tokenizer.ggml.merges' is absent" },
        { { { "tokenizer.ggml.tokens", '-', 0, NULL }, { 0 } }, ERR_FORMAT, "'tokenizer.ggml.tokens' is absent" },
        { { { "tokenizer.ggml.tokens", 'u', 1, NULL }, { 0 } }, ERR_FORMAT, "not an array of strings" },
        { { { "tokenizer.ggml.scores", 'f', 1, NULL }, { 0 } }, ERR_FORMAT, "not an array of f32" },
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        uint8_t *b = tiny_header(models[i].ed, QUANT_LIMIT, NULL, 0, &len);
        tiny_check(gguf_parse(b, len, len, "tiny", &g, &e), &e);
        CHECK(tokenizer_open(g, &t, &e) == models[i].code && says(models[i].text));
        gguf_close(g);
        free(b);
    }
}

/* GPT-2's printable form of a byte, as UTF-8; the mapping written out from its definition. */
static size_t printable(int byte, char *out)
{
    static int code[256];
    if (!code['!'])
        for (int b = 0, next = 256; b < 256; b++)
            code[b] = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae ? b : next++;
    int c = code[byte];
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

static const char *print_all(const char *text)
{
    static char out[8][64];
    static int turn;
    char *o = out[turn = (turn + 1) % 8];
    size_t n = 0;
    for (; *text; text++)
        n += printable((uint8_t)*text, o + n);
    o[n] = '\0';
    return o;
}

/* Tokens of gaps, by names and by keys, which count before names. */
static void gaps(void)
{
    static const struct { const char *names[3]; int keys; } cases[] = {
        { { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>" }, 0 },
        { { "<\357\275\234fim\342\226\201begin\357\275\234>", "<\357\275\234fim\342\226\201hole\357\275\234>",
            "<\357\275\234fim\342\226\201end\357\275\234>" }, 0 },
        { { "one", "two", "three" }, 1 }, { { "<fim_middle>", "<fim_prefix>", "<fim_suffix>" }, 1 }, { { "<PRE>", "<SUF>", "other" }, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *names = cases[i].names, *tokens[] = { "<unk>", "<s>", "</s>", "a", names[0], names[1], names[2] };
        static const int32_t types[] = { 2, 3, 3, 1, 3, 3, 3 };
        static const float scores[7];
        struct gguf_writer *w;
        int32_t ids[3];
        int code;
        tiny_check(gguf_writer_new(&w, &e), &e);
        tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", "llama", &e), &e);
        tiny_strings(w, "tokenizer.ggml.tokens", tokens, 7);
        tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, 7);
        tiny_array32(w, "tokenizer.ggml.scores", GGUF_F32, scores, 7);
        for (int k = 0; k < 3 && cases[i].keys; k++)
            tiny_check(gguf_writer_u32(w, (const char *[]){ "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.suffix_token_id",
                                                            "tokenizer.ggml.fim_mid_token_id" }[k], (uint32_t)(4 + k), &e), &e);
        struct tokenizer *t = sample_tokenizer(w, "gaps", &code, &e);
        int found = tokenizer_infill(t, ids) == 0;
        CHECK(i == 4 ? !found : found && ids[0] == 4 && ids[1] == 5 && ids[2] == 6);
        tokenizer_close(t);
    }
}

enum { HE = 256, LL, HELL, HELLO, SP_HE, END, NL2, D12, D123, BPE_N };

static struct tokenizer *bpe(const char *pre, const char *const *merges, int n_merges, int *code)
{
    static const char *const more[] = { "he", "ll", "hell", "hello", " he", "<|end|>", "\n\n", "12", "123" };
    static const char *tokens[BPE_N];
    static char texts[BPE_N][32];
    static int32_t types[BPE_N];
    struct gguf_writer *w;
    for (int i = 0; i < BPE_N; i++) {
        if (i < 256)
            texts[i][printable(i, texts[i])] = '\0';
        else
            snprintf(texts[i], sizeof texts[i], "%s", i == END ? more[i - 256] : print_all(more[i - 256]));
        tokens[i] = texts[i];
        types[i] = i == END ? 3 : 1;
    }
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", "gpt2", &e), &e);
    if (pre)
        tiny_check(gguf_writer_str(w, "tokenizer.ggml.pre", pre, &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", tokens, BPE_N);
    tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, BPE_N);
    if (merges)
        tiny_strings(w, "tokenizer.ggml.merges", merges, n_merges);
    return sample_tokenizer(w, "bpe", code, &e);
}

static void bpe_rules(void)
{
    char blank_he[16], nl[16];
    snprintf(blank_he, sizeof blank_he, "%s he", print_all(" "));
    snprintf(nl, sizeof nl, "%s %s", print_all("\n"), print_all("\n"));
    const char *const merges[] = { "h e", "l l", "he ll", "hell o", blank_he, nl, "1 2", "12 3" };
    const char *const bad[][2] = {
        { "he", "not two texts" }, { "h \xe4\xbd\xa0", "not two texts" }, { "h x", "merged text is not" },
        { "zz h", "left side is not" }, { "h zz", "right side is not" },
    };
    int code;
    struct tokenizer *t = bpe("gpt-2", merges, 8, &code);
    CHECK(code == 0);
    CHECK(IS("hello", HELLO));
    CHECK(IS("hello hello hex", HELLO, ' ', HELLO, SP_HE, 'x')); /* by rank: he, ll, hell, hello, then " he" */
    CHECK(IS("lll", LL, 'l'));
    CHECK(IS("\n\n", NL2));
    CHECK(IS("12345", D123, '4', '5'));
    CHECK(IS("a\xff\xfe" "b", 'a', 0xff, 0xfe, 'b'));
    CHECK(IS("h<|end|>e", 'h', '<', '|', 'e', 'n', 'd', '|', '>', 'e'));
    CHECK(same_ids(t, "he<|end|>he", 11, 1, (const int32_t[]){ HE, END, HE }, 3));
    CHECK(tokenizer_is_eog(t, END) && tokenizer_bos(t) == -1 && !tokenizer_adds_space(t));
    CHECK(round_trip(t, "Any text, \xc3\xa9\xff\0 at all\r\n\t  ", 26));
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    CHECK(round_trip(t, all, 256));
    enum { LONG = 200000 };
    char *text = malloc(LONG);
    memset(text, 'l', LONG);
    CHECK(round_trip(t, text, LONG)); /* one word */
    free(text);
    tokenizer_close(t);

    t = bpe("llama-bpe", merges, 8, &code);
    CHECK(code == 0);
    CHECK(IS("1234123", D123, '4', D12, '3')); /* words of three digits: 123 412 3 */
    CHECK(IS("he\n\n", HE, NL2));
    tokenizer_close(t);
    t = bpe("qwen2", merges, 8, &code);
    CHECK(code == 0);
    CHECK(IS("123", '1', '2', '3')); /* every digit a word */
    tokenizer_close(t);

    CHECK(bpe("nobody's", merges, 8, &code) == NULL && code == ERR_UNSUPPORTED && says("'nobody's'"));
    CHECK(bpe(NULL, merges, 8, &code) == NULL && code == ERR_FORMAT && says("'tokenizer.ggml.pre' is absent"));
    CHECK(bpe("gpt-2", NULL, 0, &code) == NULL && code == ERR_FORMAT && says("merges"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(bpe("gpt-2", (const char *const[]){ merges[0], bad[i][0] }, 2, &code) == NULL && code < 0 &&
              says(bad[i][1]) && says("element 1"));
}

/* Gemma 4: merges begin with characters, U+2581 is a space, bytes stand for what is no token, lines are words. */
static void bpe_of_characters(void)
{
    enum { BOS, SP, A, B, SPA, AB, E_ACUTE, LINE, LINES, BYTE_C3, BYTE_B1, USER, N };
    static const char *const tokens[N] = { "<bos>", BLANK, "a", "b", BLANK "a", "ab", "\xc3\xa9", "\n", "\n\n", "<0xC3>", "<0xB1>",
                                           "<turn|>" };
    static const int32_t types[N] = { 3, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 3 };
    static const char *const merges[] = { BLANK " a", "a b" };
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    uint8_t *blob;
    size_t len;
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", "gemma4", &e), &e);
    tiny_check(gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", BOS, &e), &e);
    tiny_check(gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", 0, &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", tokens, N);
    tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, N);
    tiny_strings(w, "tokenizer.ggml.merges", merges, 2);
    tiny_check(gguf_writer_blob(w, &blob, &len, &e), &e);
    gguf_writer_free(w);
    tiny_check(gguf_parse(blob, len, len, "gemma4", &g, &e), &e);
    tiny_check(tokenizer_open(g, &t, &e), &e);
    gguf_close(g);
    free(blob);
    CHECK(IS("ab", AB));
    CHECK(IS(" ab", SPA, B));               /* by rank, across what others call words */
    CHECK(IS(BLANK "a", SPA));
    CHECK(IS("a b", A, SP, B));
    CHECK(IS("\xc3\xa9", E_ACUTE));
    CHECK(IS("\xc3\xb1", BYTE_C3, BYTE_B1)); /* no token: its bytes */
    CHECK(IS("a\n\nb", A, LINES, B));
    CHECK(IS("\n\n\n", LINE, LINE, LINE));        /* no run of three, and no merge */
    CHECK(same_ids(t, "z", 1, 0, NULL, 0));  /* neither token nor byte: left out */
    int32_t *ids;
    int n;
    CHECK(tokenizer_encode(t, "a", 1, 1, 0, &ids, &n, &e) == 0 && n == 2 && ids[0] == BOS); /* whatever the file says */
    free(ids);
    CHECK(!memcmp(tokenizer_piece(t, SPA, &len), " a", 2) && len == 2 && tokenizer_is_eog(t, USER));
    tokenizer_close(t);
}

/* A tokenizer of RWKV's kind, from texts as a file has them. NULL types: the file has none. An edit of the key "-" is a merge. */
static struct tokenizer *rwkv(const char *const *tokens, const int32_t *types, int n, const struct tiny_edit *ed, int *code)
{
    struct gguf_writer *w;
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", "rwkv", &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", tokens, n);
    if (types)
        tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    for (; ed && ed->key; ed++)
        if (*ed->key != '-')
            tiny_edited(w, ed, ed->key);
        else
            tiny_strings(w, "tokenizer.ggml.merges", &ed->text, 1);
    return sample_tokenizer(w, "rwkv", code, &e);
}

enum { R_NL2 = 257, R_AB, R_ABCDE, R_BCD, R_HAN, R_HAN_PART, R_SAME, R_PAD, R_BACK, R_QUOTE, R_USER, R_EMPTY, R_BYTE, R_N };

/* <s>, the bytes from id 1 on, and what the rules are about. */
static void rwkv_vocabulary(const char *tokens[R_N], int32_t types[R_N])
{
    static const char *const more[] = { "\\n\\n", "ab", "abcde", "bcd", "\\xe4\\xb8\\xad", "\\xe4\\xb8", "\\x61b", "[PAD264]",
                                        "\\\\n", "\\'\\\"", "<\\tag>", "", "yz" };
    static char bytes[256][8];
    tokens[0] = "<s>";
    types[0] = 3;
    for (int i = 1; i < R_N; i++) {
        if (i <= 256)
            snprintf(bytes[i - 1], sizeof bytes[0], i - 1 == '\\' ? "\\\\" : i - 1 > ' ' && i - 1 < 127 ? "%c" : "\\x%02x", i - 1);
        tokens[i] = i <= 256 ? bytes[i - 1] : more[i - 257];
        types[i] = i == R_USER ? 4 : i == R_PAD ? 5 : i == R_BYTE ? 6 : 1;
    }
}

#define B(c) ((c) + 1)

static void rwkv_rules(void)
{
    static const struct tiny_edit keys[] = { { "tokenizer.ggml.bos_token_id", 'u', 0, NULL },
                                             { "tokenizer.ggml.eos_token_id", 'u', 0, NULL },
                                             { "tokenizer.ggml.eot_token_id", 'u', R_NL2, NULL }, { "-", 's', 0, "a b" }, { 0 } };
    static const struct tiny_edit bos[] = { { "tokenizer.ggml.bos_token_id", 'u', 0, NULL },
                                            { "tokenizer.ggml.add_bos_token", 'b', 1, NULL }, { 0 } };
    const char *tokens[R_N];
    int32_t types[R_N], *ids;
    int code, n;
    size_t len;
    rwkv_vocabulary(tokens, types);
    struct tokenizer *t = rwkv(tokens, types, R_N, keys, &code); /* with merges, which mean nothing here */
    CHECK(code == 0);
    CHECK(tokenizer_heap_bound(100000, 1, 1) >= tokenizer_heap_bound(100000, 1, 0));
    CHECK(IS("abcd", R_SAME, B('c'), B('d'))); /* the longest at each place, not the fewest; of twins the later */
    CHECK(IS("abcdeabcd", R_ABCDE, R_SAME, B('c'), B('d'))); /* a beginning of abcde that is no token leads nowhere */
    CHECK(IS("bcde", R_BCD, B('e')));
    CHECK(IS("\n\n\n", R_NL2, B('\n')));
    CHECK(IS("\xe4\xb8\xad\xe4\xb8\xae\xe4", R_HAN, R_HAN_PART, B(0xae), B(0xe4)));
    CHECK(IS("\\n\n'\"'", R_BACK, B('\n'), R_QUOTE, B('\'')));
    CHECK(IS("<s>[PAD264]", B('<'), B('s'), B('>'), B('['), B('P'), B('A'), B('D'), B('2'), B('6'), B('4'), B(']')));
    CHECK(IS("a<\tag>b", B('a'), R_USER, B('b')));
    CHECK(IS("yzz", R_BYTE, B('z')));
    CHECK(same_ids(t, "ab<s>\0", 6, 1, (const int32_t[]){ R_SAME, 0, B(0) }, 3));
    CHECK(same_ids(t, "", 0, 0, NULL, 0));
    char all[512];
    for (int i = 0; i < 512; i++)
        all[i] = (char)(i * 7 / 2);
    CHECK(round_trip(t, all, sizeof all));
    CHECK(!memcmp(tokenizer_piece(t, R_HAN_PART, &len), "\xe4\xb8", 2) && len == 2);
    CHECK(!memcmp(tokenizer_piece(t, R_PAD, &len), "[PAD264]", 8) && len == 8);
    tokenizer_piece(t, 0, &len);
    CHECK(len == 0);
    tokenizer_piece(t, R_EMPTY, &len);
    CHECK(len == 0);
    CHECK(tokenizer_is_eog(t, 0) && tokenizer_is_eog(t, R_NL2) && !tokenizer_is_eog(t, R_AB) && !tokenizer_adds_space(t));
    CHECK(tokenizer_encode(t, "a", 1, 1, 0, &ids, &n, &e) == 0 && n == 1 && tokenizer_bos(t) == 0); /* no BOS unless the file asks */
    free(ids);
    tokenizer_close(t);
    t = rwkv(tokens, types, R_N, bos, &code);
    CHECK(code == 0 && tokenizer_encode(t, "a", 1, 1, 0, &ids, &n, &e) == 0 && n == 2 && ids[0] == 0);
    free(ids);
    tokenizer_close(t);
}

static void rwkv_refusals(void)
{
    static const char *const bad[] = { "a\\", "\\x", "\\x4", "\\x4G", "\\x-1", "\\X41", "\\a", "\\xAB" };
    static const struct tiny_edit unknown[] = { { "tokenizer.ggml.unknown_token_id", 'u', R_PAD, NULL }, { 0 } };
    const char *tokens[R_N];
    int32_t types[R_N];
    int code;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rwkv_vocabulary(tokens, types);
        tokens[i % 2 ? R_AB : 0] = bad[i];
        CHECK(rwkv(tokens, types, R_N, NULL, &code) == NULL && code == ERR_FORMAT && says("has an escape that is none of"));
    }
    rwkv_vocabulary(tokens, types);
    CHECK(rwkv(tokens, NULL, R_N, NULL, &code) == NULL && code == ERR_FORMAT && says("'tokenizer.ggml.token_type' is absent"));
    types[B('q')] = 5;
    CHECK(rwkv(tokens, types, R_N, NULL, &code) == NULL && code == ERR_FORMAT && says("neither a token of the byte 0x71 nor an unknown"));
    struct tokenizer *t = rwkv(tokens, types, R_N, unknown, &code);
    CHECK(code == 0);
    CHECK(IS("aqab", B('a'), R_PAD, R_SAME));
    tokenizer_close(t);
}

/* Ids by llama.cpp under a vocabulary that gguf-make makes up. */
static void rwkv_golden(void)
{
    enum { MOST = 1000 };
    static const char *tokens[MOST];
    static int32_t types[MOST];
    json_error_t je;
    json_t *doc = json_load_file("tests/golden/tokenizer-rwkv.json", JSON_ALLOW_NUL, &je);
    json_t *texts = json_object_get(doc, "tokens"), *kinds = json_object_get(doc, "types"), *x;
    size_t i, n = json_array_size(texts);
    CHECK(n == 700 && json_array_size(kinds) == n);
    json_array_foreach(texts, i, x)
        tokens[i] = json_string_value(x);
    json_array_foreach(kinds, i, x)
        types[i] = (int32_t)json_integer_value(x);
    int code;
    struct tokenizer *t = rwkv(tokens, types, (int)n, NULL, &code);
    CHECK(code == 0);
    CHECK(check_cases(t, doc) == 24);
    tokenizer_close(t);
    json_decref(doc);
}

int main(void)
{
    rwkv_rules();
    rwkv_refusals();
    rwkv_golden();
    bpe_of_characters();
    embedded();
    spm_rules();
    spm_refusals();
    gaps();
    bpe_rules();
    return test_done();
}
