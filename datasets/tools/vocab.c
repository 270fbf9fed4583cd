/* Vocabularies that are made up, of any size: one for SentencePiece's merging, one for its unigram model, and one of RWKV's kind, whose
 * tokens begin and end within words, runs of blanks and characters. */
#include "datasets/tools/make.h"

#include "common/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 32, NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6, RWKV_EOT = 261 };

/* Number k of all strings of one letter, of two, of three, ... */
static void letters(int k, char *text)
{
    int n = 1;
    for (int count = 26; k >= count; n++, count *= 26)
        k -= count;
    text[n] = '\0';
    for (; n > 0; k /= 26)
        text[--n] = (char)('a' + k % 26);
}

/* Token i for SentencePiece: after the bytes come the blank and the letters; strings of n letters can be merged from one of n - 1 and a
 * letter. */
static int32_t spm_token(int i, char text[TEXT_BYTES], float *score)
{
    static const char *const first[] = { "<unk>", "<s>", "</s>" };
    int k = i - 3 - 256 - 1;
    *score = k < -1 ? 0 : -(float)(k + 2);
    if (i < 3) {
        snprintf(text, TEXT_BYTES, "%s", first[i]);
        return i == 0 ? UNKNOWN : CONTROL;
    }
    if (k < -1) {
        snprintf(text, TEXT_BYTES, "<0x%02X>", (unsigned)(i - 3));
        return BYTE;
    }
    if (k < 0)
        snprintf(text, TEXT_BYTES, "\xe2\x96\x81");
    else
        letters(k, text);
    return NORMAL;
}

/* Token i for the unigram model: signs and characters, then letter groups behind a blank and without one in turn. Scores fall with the
 * logarithm of the place and vary, so that the best cut is neither the longest pieces' nor the fewest's. */
static int32_t unigram_token(int i, int n, char text[TEXT_BYTES], float *score)
{
    static const char *const some[] = {
        "<pad>", "</s>", "<unk>", "\xe2\x96\x81", ".", ",", "!", "?", "'", "\"", "-", "(", ")",
        "\xe2\x96\x81\xe2\x96\x81", "\xc3\xa9", "\xc3\xbc",
        "\xce\xb1", "\xd0\xb0", "\xe4\xb8\xad", "\xe4\xb8\xad\xe5\x9b\xbd", "\xe3\x81\xae", "\xf0\x9f\x98\x80", "\xe2\x80\x99", "0", "1",
        "2", "3", "4", "5", "6", "7", "8", "9", "10", "42", "...", "s.", "A", "E", "I", "O", "T", "<sep>",
    };
    enum { SOME = sizeof some / sizeof some[0] };
    int k = i - SOME, places = 0;
    for (int j = i; j; j /= 2)
        places++;
    *score = i < 3 ? 0 : -(float)(2 + places) - (float)((uint32_t)i * 2654435761u >> 25) / 64;
    if (i >= n - n / 64) {
        snprintf(text, TEXT_BYTES, "<extra_id_%d>", n - 1 - i);
        return UNUSED;
    }
    if (k < 0) {
        snprintf(text, TEXT_BYTES, "%s", some[i]);
        return i == 2 ? UNKNOWN : i < 2 ? CONTROL : k == -1 ? USER : NORMAL;
    }
    memcpy(text, "\xe2\x96\x81", 3);
    letters(k / 2, text + (k % 2 ? 3 : 0));
    return NORMAL;
}

/* As Python writes bytes. */
static void escape(const char *bytes, size_t len, char text[TEXT_BYTES])
{
    static const char named[] = "\t\n\r\\", names[] = "tnr\\";
    size_t at = 0;
    for (size_t i = 0; i < len && at + 5 < TEXT_BYTES; i++) {
        uint8_t c = (uint8_t)bytes[i];
        const char *p = c ? strchr(named, c) : NULL;
        if (p)
            at += (size_t)snprintf(text + at, TEXT_BYTES - at, "\\%c", names[p - named]);
        else if (c >= ' ' && c <= '~')
            text[at++] = (char)c;
        else
            at += (size_t)snprintf(text + at, TEXT_BYTES - at, "\\x%02x", c);
    }
    text[at] = '\0';
}

/* Token i for RWKV, escaped: the end of a text, the bytes, runs of blanks (an empty line is RWKV_EOT), pieces of characters
 * and of signs, letter groups with a blank and without in turn; what stands at the end is padding. */
static int32_t rwkv_token(int i, int n, char text[TEXT_BYTES])
{
    static const char *const some[] = { "\t\t", "\t\n", "\t ", "\n\t", "\n\n", "\n ", "\r\n", " \t", " \n", "  ",
                                        "\\\\", "''", "\"\"", "\\n", "...", "\xc2\xa0", "\xc3\xa9", "\xc3\xbc",
                                        "\xce\xb1", "\xd0\xb0", "\xe2\x80", "\xe2\x80\x99", "\xe3\x81", "\xe3\x81\xae",
                                        "\xe4\xb8", "\xe4\xb8\xad", "\xe4\xb8\xad\xe5\x9b\xbd", "\xf0\x9f",
                                        "\xf0\x9f\x98\x80", "\n\n\n\n", "    ", "        " };
    enum { SOME = sizeof some / sizeof some[0] };
    int k = i - 257;
    if (i == 0) {
        snprintf(text, TEXT_BYTES, "<s>");
        return CONTROL;
    }
    if (k < 0) {
        char byte = (char)(i - 1);
        escape(&byte, 1, text);
    } else if (k < SOME) {
        escape(some[k], strlen(some[k]), text);
    } else if (i >= n - n / 64) {
        snprintf(text, TEXT_BYTES, "[PAD%d]", i);
        return UNUSED;
    } else {
        k -= SOME;
        text[0] = ' ';
        letters(k % 2 ? 26 + k / 2 : k / 2, text + (k % 2 == 0)); /* letters alone are bytes */
    }
    return NORMAL;
}

int make_array(struct make *m, const char *name, enum gguf_value type, int n, const void *data, size_t len, struct err *e)
{
    struct gguf_key k = { name, GGUF_ARRAY, type, (uint64_t)n, data, len };
    return gguf_writer_kv_raw(m->w, &k, e);
}

/* A model that continues a text takes no end of text behind it, which llama.cpp adds unless the file says no. */
static int put_unigram(struct make *m, struct err *e)
{
    int r;
    if ((r = gguf_writer_bool(m->w, "tokenizer.ggml.add_space_prefix", 1, e)) < 0 ||
        (r = gguf_writer_bool(m->w, "tokenizer.ggml.remove_extra_whitespaces", 1, e)) < 0 ||
        (r = gguf_writer_u32(m->w, "tokenizer.ggml.padding_token_id", 0, e)) < 0 ||
        (r = gguf_writer_u32(m->w, "tokenizer.ggml.eos_token_id", 1, e)) < 0 ||
        (r = gguf_writer_u32(m->w, "tokenizer.ggml.unknown_token_id", 2, e)) < 0)
        return r;
    return gguf_writer_bool(m->w, "tokenizer.ggml.add_eos_token", 0, e);
}

static int put_ids(struct make *m, enum make_tokenizer kind, int n, struct err *e)
{
    int r, rwkv = kind == MAKE_RWKV;
    if (kind == MAKE_UNIGRAM)
        return put_unigram(m, e);
    if ((!rwkv && (r = gguf_writer_u32(m->w, "tokenizer.ggml.unknown_token_id", 0, e)) < 0) ||
        (r = gguf_writer_u32(m->w, "tokenizer.ggml.bos_token_id", rwkv ? 0 : 1, e)) < 0 ||
        (r = gguf_writer_u32(m->w, "tokenizer.ggml.eos_token_id", rwkv ? 0 : 2, e)) < 0)
        return r;
    return rwkv && n > RWKV_EOT ? gguf_writer_u32(m->w, "tokenizer.ggml.eot_token_id", RWKV_EOT, e) : 0;
}

int make_vocabulary(struct make *m, enum make_tokenizer kind, int n, struct err *e)
{
    static const char *const names[] = { "llama", "rwkv", "t5" };
    int rwkv = kind == MAKE_RWKV;
    size_t len = 0, size = (size_t)n;
    uint8_t *texts = malloc(size * (8 + TEXT_BYTES)), *types = malloc(size * 4), *scores = malloc(size * 4);
    int r = texts && types && scores ? 0 : err_set(e, ERR_NOMEM, "a vocabulary of %d tokens", n);
    for (int i = 0; r == 0 && i < n; i++) {
        char text[TEXT_BYTES];
        float score = 0;
        uint32_t bits;
        int32_t type = rwkv ? rwkv_token(i, n, text) : kind == MAKE_UNIGRAM ? unigram_token(i, n, text, &score)
                           : spm_token(i, text, &score);
        memcpy(&bits, &score, sizeof bits);
        size_t k = strlen(text);
        bytes_put64(texts + len, k);
        memcpy(texts + len + 8, text, k);
        len += 8 + k;
        bytes_put32(types + 4 * (size_t)i, (uint32_t)type);
        bytes_put32(scores + 4 * (size_t)i, bits);
    }
    if (r == 0 && (r = gguf_writer_str(m->w, "tokenizer.ggml.model", names[kind], e)) == 0 &&
        (rwkv || (r = gguf_writer_str(m->w, "tokenizer.ggml.pre", "default", e)) == 0) &&
        (r = make_array(m, "tokenizer.ggml.tokens", GGUF_STRING, n, texts, len, e)) == 0 &&
        (rwkv || (r = make_array(m, "tokenizer.ggml.scores", GGUF_F32, n, scores, 4 * size, e)) == 0) &&
        (r = make_array(m, "tokenizer.ggml.token_type", GGUF_I32, n, types, 4 * size, e)) == 0)
        r = put_ids(m, kind, n, e);
    free(texts);
    free(types);
    free(scores);
    return r;
}
