/* A vocabulary for SentencePiece merging, made up: control tokens, bytes, the blank, ASCII, then letter groups with a
 * leading blank and without, letters by their frequency in English. A group of n letters can be merged from its
 * first n - 1 and a letter; scores fall with the token number, so short groups form first, English becomes about one
 * token for 2.5 characters, and a word that is a group with a blank becomes that token: texts of such words, drawn
 * evenly, are what prompts for these models are made of. */
#include "datasets/synth/synth.h"

#include "common/base/bytes.h"
#include "common/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANK "\xe2\x96\x81"
enum { TEXT_BYTES = 24, NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };

/* Group number k: 1 letter with a blank, then 2 with and without, 3 with and without, ... Gives whether with. */
static int letters(int k, char *text)
{
    static const char alphabet[] = "etaoinshrdlcumwfgypbvkjxqz";
    int n = 1, blank = 1, count = 26;
    while (k >= count) {
        k -= count;
        if (n == 1 || !blank) {
            n++;
            count *= 26;
            blank = 1;
        } else {
            blank = 0;
        }
    }
    int at = blank ? snprintf(text, TEXT_BYTES, BLANK) : 0;
    for (int j = n - 1; j >= 0; j--, k /= 26)
        text[at + j] = alphabet[k % 26];
    text[at + n] = '\0';
    return blank;
}

static int32_t piece(int id, char text[TEXT_BYTES])
{
    static const char *const first[] = { "<unk>", "<s>", "</s>" };
    int k = id - SYNTH_SPECIAL;
    if (id < 3) {
        snprintf(text, TEXT_BYTES, "%s", first[id]);
        return id == 0 ? UNKNOWN : CONTROL;
    }
    if (k < 0) {
        snprintf(text, TEXT_BYTES, "<0x%02X>", (unsigned)(id - 3));
        return BYTE;
    }
    if (k == 0)
        snprintf(text, TEXT_BYTES, BLANK);
    else if (id < SYNTH_LETTERS)
        snprintf(text, TEXT_BYTES, "%c", '!' + k - 1);
    else
        letters(id - SYNTH_LETTERS, text);
    return NORMAL;
}

static int put_array(struct gguf_writer *w, const char *name, enum gguf_value type, int n, const void *data, size_t len,
                     struct err *e)
{
    struct gguf_key k = { name, GGUF_ARRAY, type, (uint64_t)n, data, len };
    return gguf_writer_kv_raw(w, &k, e);
}

int synth_vocab(struct gguf_writer *w, int n, struct err *e)
{
    size_t len = 0, size = (size_t)n;
    uint8_t *texts = malloc(size * (8 + TEXT_BYTES)), *types = malloc(size * 4), *scores = malloc(size * 4);
    int r = texts && types && scores ? 0 : err_set(e, ERR_NOMEM, "a vocabulary of %d tokens", n);
    for (int i = 0; r == 0 && i < n; i++) {
        char text[TEXT_BYTES];
        float score = (float)(i < SYNTH_SPECIAL ? 0 : SYNTH_SPECIAL - 1 - i);
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        bytes_put32(types + 4 * (size_t)i, (uint32_t)piece(i, text));
        bytes_put32(scores + 4 * (size_t)i, bits);
        size_t k = strlen(text);
        bytes_put64(texts + len, k);
        memcpy(texts + len + 8, text, k);
        len += 8 + k;
    }
    if (r == 0 && (r = gguf_writer_str(w, "tokenizer.ggml.model", "llama", e)) == 0 &&
        (r = gguf_writer_str(w, "tokenizer.ggml.pre", "default", e)) == 0 &&
        (r = put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, n, texts, len, e)) == 0 &&
        (r = put_array(w, "tokenizer.ggml.scores", GGUF_F32, n, scores, 4 * size, e)) == 0 &&
        (r = put_array(w, "tokenizer.ggml.token_type", GGUF_I32, n, types, 4 * size, e)) == 0 &&
        (r = gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0, e)) == 0 &&
        (r = gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", SYNTH_BOS, e)) == 0)
        r = gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2, e);
    free(texts);
    free(types);
    free(scores);
    return r;
}

int synth_is_word(int token)
{
    char text[TEXT_BYTES];
    return token >= SYNTH_LETTERS && letters(token - SYNTH_LETTERS, text);
}

static int whole_text(const struct synth_design *d, struct file_out *o, struct err *e)
{
    char text[TEXT_BYTES], line[2 * TEXT_BYTES];
    int r = file_out_write(o, d->n_route ? "route," : "cycle,", 6, e);
    for (int i = 1; r == 0 && i < d->n_places; i++) {
        letters(d->token[i] - SYNTH_LETTERS, text);
        int n = snprintf(line, sizeof line, "%s%s", text + strlen(BLANK), i + 1 < d->n_places ? " " : "\n");
        r = file_out_write(o, line, (size_t)n, e);
    }
    return r;
}

int synth_prompts(const struct synth_design *d, const char *path, int rows, int words, struct err *e)
{
    struct file_out o;
    char text[TEXT_BYTES], line[2 * TEXT_BYTES];
    int r = file_out_open(&o, path, e);
    if (r < 0)
        return r;
    r = file_out_write(&o, "id,text\n", 8, e);
    if (r == 0 && d->n_places > 0) {
        r = whole_text(d, &o, e);
        rows = d->n_route ? 0 : rows;
    }
    for (int i = 0; r == 0 && i < rows; i++) {
        int n = snprintf(line, sizeof line, "synth-%04d,", i);
        r = file_out_write(&o, line, (size_t)n, e);
        uint64_t at = synth_mix(d->ask.seed ^ 0x70726f6d707473u, (uint64_t)i);
        for (int w = 0; r == 0 && w < words; at++) {
            int id = (int)(synth_mix(at, 1) % (uint64_t)(d->ask.shape.n_vocab - SYNTH_LETTERS));
            if (!letters(id, text))
                continue;
            n = snprintf(line, sizeof line, "%s%s", text + strlen(BLANK), w + 1 < words ? " " : "\n");
            r = file_out_write(&o, line, (size_t)n, e);
            w++;
        }
    }
    if (r == 0)
        return file_out_commit(&o, e);
    file_out_abort(&o);
    return r;
}
