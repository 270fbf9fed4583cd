/* SentencePiece unigram: ids by llama.cpp under a vocabulary that gguf-make makes up, rules, and tables of
 * normalisation that are broken. */
#include "common/base/bytes.h"
#include "common/model/tokenizer.h"
#include "tests/test.h"
#include "tests/tokenizer_sample.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 600, BLOCKS = 64, TEXTS = 4096 };

static struct err e;

static int says(const char *text)
{
    if (strstr(e.msg, text))
        return 1;
    printf("# message is: %s\n", e.msg);
    return 0;
}

/* --- tables of normalisation --------------------------------------------------------------- */

static struct map { /* children of node i stand in a block of 256 of their own, each at its byte; the value at 0 */
    uint32_t node[256 * BLOCKS];
    uint32_t blocks, text_len;
    char text[TEXTS];
    uint8_t bytes[4 + 4 * 256 * BLOCKS + TEXTS];
    size_t len;
} map;

static uint32_t children(uint32_t i)
{
    return i ^ map.node[i] >> 10;
}

static void open_block(uint32_t i, uint32_t label)
{
    map.node[i] = (i ^ 256 * map.blocks++) << 10 | label;
}

static void map_clear(void)
{
    memset(&map, 0, sizeof map);
    map.blocks = 1;
    open_block(0, 0);
}

static void map_add(const char *from, const char *to)
{
    uint32_t i = 0;
    for (; *from; from++) {
        uint32_t child = children(i) ^ (uint8_t)*from;
        if (!map.node[child])
            open_block(child, (uint8_t)*from);
        i = child;
    }
    CHECK(map.blocks < BLOCKS && map.text_len + strlen(to) < TEXTS);
    map.node[i] |= 1u << 8;
    map.node[children(i)] = 1u << 31 | map.text_len;
    memcpy(map.text + map.text_len, to, strlen(to) + 1);
    map.text_len += (uint32_t)strlen(to) + 1;
}

static void map_finish(void)
{
    uint32_t n = 256 * map.blocks;
    bytes_put32(map.bytes, 4 * n);
    for (uint32_t i = 0; i < n; i++)
        bytes_put32(map.bytes + 4 + 4 * (size_t)i, map.node[i]);
    map.len = 4 + 4 * (size_t)n + map.text_len;
    memcpy(map.bytes + 4 + 4 * (size_t)n, map.text, map.text_len);
}

/* --- vocabularies -------------------------------------------------------------------------- */

static const char *tokens[MOST];
static int32_t types[MOST];
static float scores[MOST];

/* A tokenizer of the first n tokens, with the keys of ed, and with the table of normalisation when its length is not 0. */
static struct tokenizer *unigram(int n, const struct tiny_edit *ed, size_t map_len, enum gguf_value elem, int *code)
{
    struct gguf_writer *w;
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", "t5", &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", tokens, n);
    tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    tiny_array32(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    for (; ed && ed->key; ed++)
        tiny_edited(w, ed, ed->key);
    if (map_len) {
        uint64_t n_elem = elem == GGUF_I32 ? map_len / 4 : map_len;
        struct gguf_key k = { "tokenizer.ggml.precompiled_charsmap", GGUF_ARRAY, elem, n_elem, map.bytes, map_len };
        tiny_check(gguf_writer_kv_raw(w, &k, &e), &e);
    }
    return sample_tokenizer(w, "unigram", code, &e);
}

static int same(const struct tokenizer *t, const char *text, size_t len, const int32_t *want, int n_want)
{
    return sample_ids(t, text, len, 1, 0, want, n_want, &e);
}

static void golden(void)
{
    json_error_t je;
    json_t *doc = json_load_file("tests/golden/tokenizer-unigram.json", JSON_ALLOW_NUL, &je), *x, *run, *c;
    size_t i, j, n = json_array_size(json_object_get(doc, "tokens")), cases = 0;
    CHECK(n == 512 && json_array_size(json_object_get(doc, "types")) == n && json_array_size(json_object_get(doc, "scores")) == n);
    for (i = 0; i < n && i < MOST; i++) {
        tokens[i] = json_string_value(json_array_get(json_object_get(doc, "tokens"), i));
        types[i] = (int32_t)json_integer_value(json_array_get(json_object_get(doc, "types"), i));
        scores[i] = (float)json_number_value(json_array_get(json_object_get(doc, "scores"), i));
    }
    map_clear();
    json_array_foreach(json_object_get(doc, "pairs"), i, x)
        map_add(json_string_value(json_array_get(x, 0)), json_string_value(json_array_get(x, 1)));
    map_finish();
    json_array_foreach(json_object_get(doc, "runs"), i, run) {
        struct tiny_edit keys[] = {
            { "tokenizer.ggml.remove_extra_whitespaces", 'b', json_is_true(json_object_get(run, "remove_extra_whitespaces")), NULL },
            { "tokenizer.ggml.add_space_prefix", 'b', json_is_true(json_object_get(run, "add_space_prefix")), NULL }, { 0 },
        };
        int code;
        struct tokenizer *t = unigram((int)n, keys, json_is_true(json_object_get(run, "normalise")) ? map.len : 0, GGUF_I8, &code);
        CHECK(code == 0);
        json_array_foreach(json_object_get(run, "cases"), j, c) {
            json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
            int32_t want[256];
            for (size_t k = 0; k < json_array_size(ids) && k < 256; k++)
                want[k] = (int32_t)json_integer_value(json_array_get(ids, k));
            CHECK(same(t, json_string_value(text), json_string_length(text), want, (int)json_array_size(ids)));
            cases++;
        }
        tokenizer_close(t);
    }
    CHECK(cases == 96);
    json_decref(doc);
}

/* --- rules --------------------------------------------------------------------------------- */

enum { PAD, END, UNK, A, B, C, AB, BC, ABC, TWIN, USER, SPACE, HALF, BYTE, SPARE, N };

static void vocabulary(void)
{
    static const char *const text[N] = { "<pad>", "</s>", "<unk>", "a", "b", "c", "ab", "bc", "abc", "ab", "<u>",
                                         "\xe2\x96\x81", "\xc3", "<0x41>", "dd" };
    static const int32_t type[N] = { 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 4, 1, 1, 6, 5 };
    static const float score[N] = { 0, 0, 0, -2, -2, -2, -9, -3, -6, -3, -50, -1, -1, 0, -1 };
    memcpy(tokens, text, sizeof text);
    memcpy(types, type, sizeof type);
    memcpy(scores, score, sizeof score);
}

#define IS(text, ...) same(t, text, sizeof(text) - 1, (const int32_t[]){ __VA_ARGS__ }, \
                           (int)(sizeof((const int32_t[]){ __VA_ARGS__ }) / 4))

static void rules(void)
{
    static const struct tiny_edit bos[] = { { "tokenizer.ggml.bos_token_id", 'u', PAD, NULL },
                                            { "tokenizer.ggml.add_bos_token", 'b', 1, NULL },
                                            { "tokenizer.ggml.add_space_prefix", 'b', 1, NULL }, { 0 } };
    int code;
    size_t len;
    vocabulary();
    struct tokenizer *t = unigram(N, NULL, 0, GGUF_I8, &code);
    CHECK(code == 0);
    CHECK(IS("ab", TWIN));             /* of twins the later, for its score */
    CHECK(IS("abc", A, BC));           /* ab+c and a+bc are -5 and abc -6: the way found first */
    CHECK(IS("xyz\xc3\xa9", UNK));     /* unknown characters are one; the half of a character leads nowhere */
    CHECK(IS("axxb", A, UNK, B));
    CHECK(IS("x\xffy", UNK));          /* as U+FFFD */
    CHECK(IS("A", UNK));               /* a byte token is no piece */
    CHECK(IS("a<u>x<u>b", A, USER, UNK, USER, B));
    CHECK(IS("</s>a", UNK, A));
    CHECK(IS("dd", SPARE));
    CHECK(IS("a  b", A, SPACE, SPACE, B) && IS("a\xe2\x96\x81 ", A, SPACE, SPACE) && IS(" ", SPACE));
    CHECK(!memcmp(tokenizer_piece(t, SPACE, &len), " ", 1) && len == 1);
    CHECK(tokenizer_eos(t) == END && tokenizer_is_eog(t, END) && tokenizer_bos(t) == -1 && !tokenizer_adds_space(t));
    tokenizer_close(t);
    t = unigram(N, bos, 0, GGUF_I8, &code);
    CHECK(code == 0 && IS("a<u>b", PAD, SPACE, A, USER, SPACE, B) && tokenizer_adds_space(t));
    tokenizer_close(t);
}

/* --- refusals ------------------------------------------------------------------------------ */

static int fails(size_t map_len, const char *text, const char *message)
{
    int code, n, r;
    int32_t *ids;
    struct tokenizer *t = unigram(N, NULL, map_len, GGUF_U8, &code);
    CHECK_MSG(code == 0, "%s", e.msg);
    if (code < 0)
        return 0;
    r = tokenizer_encode(t, text, strlen(text), 0, 0, &ids, &n, &e);
    if (r == 0)
        free(ids);
    tokenizer_close(t);
    return r < 0 && says(message);
}

static void refusals(void)
{
    int code;
    char much[512];
    vocabulary();
    map_clear();
    map_add("a", "b");
    map_finish();
    CHECK(unigram(N, NULL, 4, GGUF_U8, &code) == NULL && code == ERR_FORMAT && says("no room for a size, a trie of"));
    CHECK(unigram(N, NULL, map.len - map.text_len, GGUF_U8, &code) == NULL && code == ERR_FORMAT && says("no room for a size"));
    CHECK(unigram(N, NULL, map.len - 1, GGUF_U8, &code) == NULL && code == ERR_FORMAT && says("does not end with a NUL"));
    CHECK(unigram(N, NULL, map.len & ~3u, GGUF_I32, &code) == NULL && code == ERR_FORMAT && says("is not an array of bytes"));
    CHECK(unigram(2, NULL, 0, GGUF_U8, &code) == NULL && code == ERR_FORMAT && says("no unknown token"));
    scores[A] = -1.0f / 0.0f;
    CHECK(unigram(N, NULL, 0, GGUF_U8, &code) == NULL && code == ERR_FORMAT && says("the score of token 3 is not finite"));
    vocabulary();
    map.node[children('a' ^ 256)] = 1u << 31 | 2; /* the texts have two bytes */
    map_finish();
    CHECK(fails(map.len, "a", "a text at byte 2 of 2"));
    map.node['a' ^ 256] = 'a' | 1u << 9 | 0x1fffffu << 10; /* a base in the form for far blocks */
    map_finish();
    CHECK(fails(map.len, "ab", "a link leads to node"));
    map.node[0] = 0xffffffffu;
    map_finish();
    CHECK(fails(map.len, "a", "a link leads to node"));
    map_clear();
    memset(much, ' ', sizeof much);
    much[sizeof much - 1] = '\0';
    map_add("a", much);
    map_finish();
    CHECK(fails(map.len, "aaaaaaaaaaaaaaaaaaaaaaaa", "more than 16 times as much"));
    map_clear();
    map_add("aa", "b");
    map.node['a' ^ 256] |= 1u << 8; /* "a" ends nowhere but says so: its text is the first */
    map.node[children('a' ^ 256) ^ 'a'] = ('a' | 1u << 8) | (uint32_t)'a' << 10; /* its own child: a^n without an end */
    map_finish();
    struct tokenizer *t = unigram(N, NULL, map.len, GGUF_U8, &code);
    memset(much, 'a', sizeof much);
    CHECK(code == 0 && same(t, much, 511, (const int32_t[]){ B, B }, 2)); /* 256 bytes and the rest */
    tokenizer_close(t);
}

int main(void)
{
    golden();
    rules();
    refusals();
    return test_done();
}
