/* Any bytes as a prompt for the embedded model: byte fallback must bring every byte back. (All but U+2581, which
 * SentencePiece uses for the blank and cannot tell from one.) Behind a line "rwkv" they are a vocabulary of RWKV's kind, a token a
 * line beside those of the bytes, and behind an empty line a prompt for it: there each piece must be the longest that fits, too.
 * Behind a line "unigram" come a byte of flags, hexadecimal digits to the end of the line (a table of normalisation), tokens, a line each,
 * "U" before a user-defined one, and behind an empty line a prompt. Of any bytes NFC is made, too. */
#include "common/base/bytes.h"
#include "common/base/nfc.h"
#include "common/model/gguf.h"
#include "common/model/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tokenizer *open_once(void)
{
    static struct gguf *g;
    static struct tokenizer *t;
    struct err e;
    if (!t && (gguf_open("datasets/models/reglu-tales-10m-f16.gguf", &g, &e) < 0 || tokenizer_open(g, &t, &e) < 0)) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
    return t;
}

/* The text of ids is the input behind the one blank that the tokenizer puts before it. */
static void compare(const struct tokenizer *tokenizer, const uint8_t *data, size_t size, const int32_t *ids, int n)
{
    size_t at = 0, skip = size && tokenizer_adds_space(tokenizer) ? 1 : 0;
    for (int i = 0; i < n; i++) {
        size_t len;
        const char *piece = tokenizer_piece(tokenizer, ids[i], &len);
        for (size_t k = 0; k < len; k++) {
            if (skip) {
                skip--;
                continue;
            }
            if (at >= size || (uint8_t)piece[k] != data[at++])
                abort();
        }
    }
    if (at != size)
        abort();
}

enum { TOKENS = 320, BYTES = 256, TEXT = 256 }; /* the first are the bytes; what is longer is cut */

static size_t put(uint8_t *to, const void *text, size_t len)
{
    bytes_put64(to, len);
    memcpy(to + 8, text, len);
    return 8 + len;
}

/* Opens the vocabulary of the lines from *at on, up to an empty one; *at is behind it. NULL: it is refused. */
static struct tokenizer *open_lines(const uint8_t *data, size_t size, size_t *at)
{
    static uint8_t texts[TOKENS * (8 + TEXT)], types[TOKENS * 4];
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    uint8_t *blob = NULL;
    struct err e;
    size_t used = 0, len, n = 0;
    for (; n < BYTES; n++) {
        char text[8];
        used += put(texts + used, text, (size_t)snprintf(text, sizeof text, "\\x%02x", (unsigned)n));
    }
    while (*at < size && n < TOKENS) {
        const uint8_t *line = data + *at, *end = memchr(line, '\n', size - *at);
        len = end ? (size_t)(end - line) : size - *at;
        *at += len + (end != NULL);
        if (len == 0)
            break;
        used += put(texts + used, line, len < TEXT ? len : TEXT);
        n++;
    }
    for (size_t i = 0; i < n; i++)
        bytes_put32(types + 4 * i, 1);
    struct gguf_key tokens = { "tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING, n, texts, used };
    struct gguf_key kinds = { "tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32, n, types, 4 * n };
    if (gguf_writer_new(&w, &e) == 0 && gguf_writer_str(w, "tokenizer.ggml.model", "rwkv", &e) == 0 &&
        gguf_writer_kv_raw(w, &tokens, &e) == 0 && gguf_writer_kv_raw(w, &kinds, &e) == 0 && gguf_writer_blob(w, &blob, &len, &e) == 0 &&
        gguf_parse(blob, len, len, "lines", &g, &e) == 0 && tokenizer_open(g, &t, &e) < 0)
        t = NULL;
    gguf_close(g);
    gguf_writer_free(w);
    free(blob);
    return t;
}

/* No other piece that fits at the same place is longer. */
static void longest(const struct tokenizer *t, const uint8_t *data, size_t size, const int32_t *ids, int n)
{
    for (size_t at = 0; n > 0; n--, ids++) {
        size_t len, more;
        tokenizer_piece(t, *ids, &len);
        for (int32_t id = 0; id < TOKENS; id++) {
            const char *piece = tokenizer_piece(t, id, &more);
            if (more > len && more <= size - at && !memcmp(piece, data + at, more))
                abort();
        }
        at += len;
    }
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static struct tokenizer *open_unigram(const uint8_t *data, size_t size, size_t *at)
{
    static uint8_t texts[TOKENS * (8 + TEXT)], types[TOKENS * 4], scores[TOKENS * 4], table[1 << 16];
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    uint8_t *blob = NULL, flags = *at < size ? data[*at] : 0;
    struct err e;
    size_t used = 0, len, n = 0, n_table = 0;
    for (*at += *at < size; *at + 1 < size && n_table < sizeof table && hex(data[*at]) >= 0 && hex(data[*at + 1]) >= 0; *at += 2)
        table[n_table++] = (uint8_t)(hex(data[*at]) * 16 + hex(data[*at + 1]));
    *at += *at < size;
    for (; *at < size && n < TOKENS; n++) {
        const uint8_t *line = data + *at, *end = memchr(line, '\n', size - *at);
        float score = -(float)((n * 37) % 64) / 8;
        uint32_t bits;
        len = end ? (size_t)(end - line) : size - *at;
        *at += len + (end != NULL);
        if (len == 0)
            break;
        int user = *line == 'U' && len > 1;
        bytes_put32(types + 4 * n, n == 2 ? 2 : user ? 4 : 1);
        memcpy(&bits, &score, sizeof bits);
        bytes_put32(scores + 4 * n, bits);
        used += put(texts + used, line + user, len - (size_t)user < TEXT ? len - (size_t)user : TEXT);
    }
    struct gguf_key tokens = { "tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING, n, texts, used };
    struct gguf_key kinds = { "tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32, n, types, 4 * n };
    struct gguf_key sums = { "tokenizer.ggml.scores", GGUF_ARRAY, GGUF_F32, n, scores, 4 * n };
    struct gguf_key map = { "tokenizer.ggml.precompiled_charsmap", GGUF_ARRAY, GGUF_U8, n_table, table, n_table };
    if (gguf_writer_new(&w, &e) == 0 && gguf_writer_str(w, "tokenizer.ggml.model", "t5", &e) == 0 &&
        gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", flags & 1, &e) == 0 &&
        gguf_writer_bool(w, "tokenizer.ggml.remove_extra_whitespaces", flags >> 1 & 1, &e) == 0 &&
        gguf_writer_kv_raw(w, &tokens, &e) == 0 && gguf_writer_kv_raw(w, &kinds, &e) == 0 && gguf_writer_kv_raw(w, &sums, &e) == 0 &&
        (n_table == 0 || gguf_writer_kv_raw(w, &map, &e) == 0) && gguf_writer_blob(w, &blob, &len, &e) == 0 &&
        gguf_parse(blob, len, len, "unigram", &g, &e) == 0 && tokenizer_open(g, &t, &e) < 0)
        t = NULL;
    gguf_close(g);
    gguf_writer_free(w);
    free(blob);
    return t;
}

/* Every id is a token, and no two unknown ones (2) are neighbours within a text without user-defined tokens. */
static void encode_unigram(const struct tokenizer *t, const uint8_t *data, size_t size)
{
    struct err e;
    int32_t *ids;
    int n;
    size_t len;
    if (tokenizer_encode(t, (const char *)data, size, 1, 1, &ids, &n, &e) < 0)
        return;
    for (int i = 0; i < n; i++) {
        tokenizer_text(t, ids[i], &len);
        if (len == 0 || (i && ids[i] == 2 && ids[i - 1] == 2 && !memmem(data, size, tokenizer_text(t, 2, &len), len)))
            abort();
    }
    free(ids);
}

static void encode(const struct tokenizer *t, int of_lines, const uint8_t *data, size_t size)
{
    struct err e;
    int32_t *ids;
    int n;
    if (tokenizer_encode(t, (const char *)data, size, 0, 0, &ids, &n, &e) < 0)
        return;
    if (of_lines || !memmem(data, size, "\xe2\x96\x81", 3))
        compare(t, data, size, ids, n);
    if (of_lines)
        longest(t, data, size, ids, size < 4096 ? n : 0);
    free(ids);
}

/* What is composed stays as it is. */
static void compose(const uint8_t *data, size_t size)
{
    struct err e;
    char *once, *twice;
    size_t n = size, m;
    if (nfc_text((const char *)data, size, &once, &n, &e) < 0 || !once)
        return;
    m = n;
    if (n > 3 * size || nfc_text(once, n, &twice, &m, &e) < 0 || (twice && (m != n || memcmp(once, twice, n))))
        abort();
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t at = 8;
    compose(data, size);
    if (size >= at && !memcmp(data, "unigram\n", at)) {
        struct tokenizer *u = open_unigram(data, size, &at);
        if (u)
            encode_unigram(u, data + at, size - at);
        tokenizer_close(u);
        return 0;
    }
    at = 5;
    if (size < at || memcmp(data, "rwkv\n", at)) {
        encode(open_once(), 0, data, size);
        return 0;
    }
    struct tokenizer *t = open_lines(data, size, &at);
    if (t)
        encode(t, 1, data + at, size - at);
    tokenizer_close(t);
    return 0;
}
