/* A vocabulary for SentencePiece merging, made up: control tokens, bytes, the blank, ASCII, then letter groups with a
 * leading blank and without, letters by their frequency in English. A group of n letters can be merged from its
 * first n - 1 and a letter; scores fall with the token number, so short groups form first, English becomes about one
 * token for 2.5 characters, and a word that is a group with a blank becomes that token: texts of such words, drawn
 * evenly, are what prompts for these models are made of.
 * The same groups as a BPE vocabulary: a merge for each way in which merging by rank comes to its last step. Letters after a word's
 * second merge in pairs before its third is taken in, so a word of four is made of two and two. */
#include "datasets/synth/synth.h"

#include "common/base/bytes.h"
#include "common/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANK "\xe2\x96\x81"
enum { TEXT_BYTES = 32, NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6, MERGES = 2 };
enum form { SENTENCEPIECE, OF_CHARACTERS, OF_BYTES };

static enum form form_of(const char *pre)
{
    return !pre ? SENTENCEPIECE : strcmp(pre, "gemma4") ? OF_BYTES : OF_CHARACTERS;
}

/* GPT-2's character for a byte, in UTF-8. */
static void byte_text(int byte, char text[TEXT_BYTES])
{
    int c = 256;
    for (int b = 0; b < byte; b++) /* those that are no characters by themselves are numbered from 256 on */
        c += b < '!' || (b > '~' && b < 0xa1) || b == 0xad;
    if ((byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad))
        c = byte;
    snprintf(text, TEXT_BYTES, c < 128 ? "%c" : "%c%c", c < 128 ? c : 0xc0 | c >> 6, 0x80 | (c & 0x3f));
}

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

/* A blank within a token as BPE of bytes writes it. */
static const char *blank_of(enum form f)
{
    return f == OF_BYTES ? "\xc4\xa0" : BLANK;
}

/* How token `id` is merged, "left right" each; their number. */
static int merges(int id, enum form f, char text[MERGES][TEXT_BYTES])
{
    char group[TEXT_BYTES];
    if (f == SENTENCEPIECE || id < SYNTH_LETTERS)
        return 0;
    int blank = letters(id - SYNTH_LETTERS, group), first = blank ? (int)strlen(BLANK) : 0, n = (int)strlen(group) - first, count = 0;
    const char *x = group + first, *b = blank ? blank_of(f) : "";
    if (blank && n == 4)
        snprintf(text[count++], TEXT_BYTES, "%s%.2s %.2s", b, x, x + 2);
    else if (n > 1)
        snprintf(text[count++], TEXT_BYTES, "%s%.*s %.1s", b, n - 1 < 8 ? n - 1 : 8, x, x + n - 1);
    else
        snprintf(text[count++], TEXT_BYTES, "%s %.1s", b, x);
    if (!blank && n > 2)
        snprintf(text[count++], TEXT_BYTES, "%.1s %.8s", x, x + 1);
    return count;
}

static int32_t piece(int id, enum form f, char text[TEXT_BYTES])
{
    static const char *const first[] = { "<unk>", "<s>", "</s>" };
    int k = id - SYNTH_SPECIAL;
    if (id < 3) {
        snprintf(text, TEXT_BYTES, "%s", first[id]);
        return id == 0 ? UNKNOWN : CONTROL;
    }
    if (k < 0 && f == OF_BYTES) {
        byte_text(id - 3, text);
        return NORMAL;
    }
    if (k < 0) {
        snprintf(text, TEXT_BYTES, "<0x%02X>", (unsigned)(id - 3));
        return BYTE;
    }
    if (id < SYNTH_LETTERS && f == OF_BYTES) { /* the bytes have these */
        snprintf(text, TEXT_BYTES, "<|reserved_%d|>", k);
        return CONTROL;
    }
    if (k == 0)
        snprintf(text, TEXT_BYTES, BLANK);
    else if (id < SYNTH_LETTERS)
        snprintf(text, TEXT_BYTES, "%c", '!' + k - 1);
    else if (letters(id - SYNTH_LETTERS, text) && f == OF_BYTES) {
        char group[TEXT_BYTES];
        memcpy(group, text, TEXT_BYTES);
        snprintf(text, TEXT_BYTES, "%s%.*s", blank_of(f), TEXT_BYTES - 8, group + strlen(BLANK));
    }
    return NORMAL;
}

static int put_array(struct gguf_writer *w, const char *name, enum gguf_value type, int n, const void *data, size_t len,
                     struct err *e)
{
    struct gguf_key k = { name, GGUF_ARRAY, type, (uint64_t)n, data, len };
    return gguf_writer_kv_raw(w, &k, e);
}

static size_t put_string(uint8_t *to, const char *text)
{
    size_t n = strlen(text);
    bytes_put64(to, n);
    memcpy(to + 8, text, n);
    return 8 + n;
}

static int put_merges(struct gguf_writer *w, int n, enum form f, struct err *e)
{
    uint8_t *texts = malloc((size_t)n * MERGES * (8 + TEXT_BYTES));
    size_t len = 0;
    int count = 0, r;
    if (!texts)
        return err_set(e, ERR_NOMEM, "merges of %d tokens", n);
    for (int i = 0; i < n; i++) {
        char text[MERGES][TEXT_BYTES];
        int k = merges(i, f, text);
        for (int m = 0; m < k; m++, count++)
            len += put_string(texts + len, text[m]);
    }
    r = put_array(w, "tokenizer.ggml.merges", GGUF_STRING, count, texts, len, e);
    free(texts);
    return r;
}

int synth_vocab(struct gguf_writer *w, int n, const char *pre, struct err *e)
{
    static const char *const models[] = { "llama", "gemma4", "gpt2" };
    enum form f = form_of(pre);
    size_t len = 0, size = (size_t)n;
    uint8_t *texts = malloc(size * (8 + TEXT_BYTES)), *types = malloc(size * 4), *scores = malloc(size * 4);
    int r = texts && types && scores ? 0 : err_set(e, ERR_NOMEM, "a vocabulary of %d tokens", n);
    for (int i = 0; r == 0 && i < n; i++) {
        char text[TEXT_BYTES];
        float score = (float)(i < SYNTH_SPECIAL ? 0 : SYNTH_SPECIAL - 1 - i);
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        bytes_put32(types + 4 * (size_t)i, (uint32_t)piece(i, f, text));
        bytes_put32(scores + 4 * (size_t)i, bits);
        len += put_string(texts + len, text);
    }
    if (r == 0 && (r = gguf_writer_str(w, "tokenizer.ggml.model", models[f], e)) == 0 &&
        (f == OF_CHARACTERS || (r = gguf_writer_str(w, "tokenizer.ggml.pre", pre ? pre : "default", e)) == 0) &&
        (r = put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, n, texts, len, e)) == 0 &&
        (f == OF_BYTES || (r = put_array(w, "tokenizer.ggml.scores", GGUF_F32, n, scores, 4 * size, e)) == 0) &&
        (r = put_array(w, "tokenizer.ggml.token_type", GGUF_I32, n, types, 4 * size, e)) == 0 &&
        (f == SENTENCEPIECE || (r = put_merges(w, n, f, e)) == 0) &&
        (f != SENTENCEPIECE || (r = gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0, e)) == 0) &&
        (r = gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", SYNTH_BOS, e)) == 0 &&
        (f == SENTENCEPIECE || (r = gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", 1, e)) == 0) &&
        (f != OF_CHARACTERS || (r = gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", 0, e)) == 0))
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

/* BPE puts no blank before a text: there the text begins with one, and in a CSV quotes keep it. */
static const char *opening(const struct synth_design *d)
{
    return d->ask.pre ? "\" " : "";
}

static const char *closing(const struct synth_design *d)
{
    return d->ask.pre ? "\"\n" : "\n";
}

static int whole_text(const struct synth_design *d, struct file_out *o, struct err *e)
{
    char text[TEXT_BYTES], line[2 * TEXT_BYTES];
    int r = file_out_write(o, d->n_route ? "route," : "cycle,", 6, e);
    if (r == 0)
        r = file_out_write(o, opening(d), strlen(opening(d)), e);
    for (int i = 1; r == 0 && i < d->n_places; i++) {
        letters(d->token[i] - SYNTH_LETTERS, text);
        int n = snprintf(line, sizeof line, "%s%s", text + strlen(BLANK), i + 1 < d->n_places ? " " : closing(d));
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
        int n = snprintf(line, sizeof line, "synth-%04d,%s", i, opening(d));
        r = file_out_write(&o, line, (size_t)n, e);
        uint64_t at = synth_mix(d->ask.seed ^ 0x70726f6d707473u, (uint64_t)i);
        for (int w = 0; r == 0 && w < words; at++) {
            int id = (int)(synth_mix(at, 1) % (uint64_t)(d->ask.shape.n_vocab - SYNTH_LETTERS));
            if (!letters(id, text))
                continue;
            n = snprintf(line, sizeof line, "%s%s", text + strlen(BLANK), w + 1 < words ? " " : closing(d));
            r = file_out_write(&o, line, (size_t)n, e);
            w++;
        }
    }
    if (r == 0)
        return file_out_commit(&o, e);
    file_out_abort(&o);
    return r;
}
