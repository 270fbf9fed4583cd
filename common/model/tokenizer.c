/* Tokenizers: opening, tables, special tokens. Everything of a vocabulary lies in one block whose
 * size follows from three counts (tokens, bytes of their texts, merges), so that the budget can
 * charge it beforehand: a pool of texts, offsets into it, an open-addressing table of u32 over the
 * texts, and for BPE the merges. Texts are kept as they occur in plain text (SentencePiece's U+2581
 * as a space, BPE's printable characters as bytes), so the pool serves lookups and output alike.
 * Special tokens are found in the text first, the longest first, and what lies between them is
 * handed to tokenizer_spm.c, tokenizer_bpe.c, tokenizer_rwkv.c or tokenizer_unigram.c. */
#include "common/model/tokenizer_impl.h"

#include "common/base/bytes.h"
#include "common/base/ckmath.h"
#include "common/base/file.h"
#include "common/base/nfc.h"
#include "common/model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MERGES (1u << 24) /* ranks are exact in a float */
#define MAX_TEXT   (1u << 30) /* bytes, of a pool and of a text to encode */
#define TOKENIZER_PIECE (16u << 10) /* bytes of a text that are encoded at a time, where it can be cut */
#define TOKENS_KEY "tokenizer.ggml.tokens"
#define MODEL_KEY  "tokenizer.ggml.model"
#define CHARSMAP_KEY "tokenizer.ggml.precompiled_charsmap"

/* --- lists and heaps --------------------------------------------------------------------- */

int tokenizer_push(struct ids *out, int32_t id, struct err *e)
{
    if (out->n == out->cap) {
        int cap = out->cap < 32 ? 64 : out->cap + out->cap / 2;
        int32_t *grown = realloc(out->id, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "%d token ids", cap);
        out->id = grown;
        out->cap = cap;
    }
    out->id[out->n++] = id;
    return file_go_on_at((uint64_t)out->n, e);
}

static bool before(struct candidate a, struct candidate b)
{
    return a.key < b.key || (a.key == b.key && a.left < b.left);
}

void tokenizer_heap_push(struct candidate *heap, size_t *n, struct candidate c)
{
    size_t i = (*n)++;
    while (i > 0 && before(c, heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = c;
}

struct candidate tokenizer_heap_pop(struct candidate *heap, size_t *n)
{
    struct candidate top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n)
            break;
        if (child + 1 < *n && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* --- the table of texts ------------------------------------------------------------------ */

static uint32_t slot_of(const struct tokenizer *t, const char *text, size_t len)
{
    return (uint32_t)hash_64(text, len) & t->mask;
}

static size_t text_len(const struct tokenizer *t, int32_t id)
{
    return t->offset[id + 1] - t->offset[id];
}

int32_t tokenizer_lookup(const struct tokenizer *t, const char *text, size_t len, bool special)
{
    if (len == 0 || len > t->max_len)
        return -1;
    for (uint32_t s = slot_of(t, text, len); t->table[s]; s = (s + 1) & t->mask) {
        int32_t id = (int32_t)(t->table[s] - 1);
        if (tokenizer_type_is_special(tokenizer_type(t, id)) == special && text_len(t, id) == len &&
            !memcmp(t->pool + t->offset[id], text, len))
            return id;
    }
    return -1;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text)
{
    return tokenizer_lookup(t, text, strlen(text), true);
}

int tokenizer_has(const struct tokenizer *t, const char *text)
{
    return tokenizer_find(t, text) >= 0 || tokenizer_lookup(t, text, strlen(text), false) >= 0;
}

/* Of two tokens with one text the later is the one that a text gives. */
static void insert(struct tokenizer *t, int32_t id)
{
    const char *text = t->pool + t->offset[id];
    size_t len = text_len(t, id);
    if (len == 0)
        return;
    int32_t same_text = tokenizer_lookup(t, text, len, tokenizer_type_is_special(tokenizer_type(t, id)));
    uint32_t s = slot_of(t, text, len);
    while (t->table[s] && (int32_t)t->table[s] - 1 != same_text)
        s = (s + 1) & t->mask;
    t->table[s] = (uint32_t)id + 1;
    if (len > t->max_len)
        t->max_len = len;
}

/* --- sizes ------------------------------------------------------------------------------- */

/* A power of two that leaves an open-addressing table of n entries a quarter empty at least. */
static uint64_t table_size(uint64_t n)
{
    uint64_t size = 4;
    while (size / 4 * 3 < n)
        size *= 2;
    return size;
}

struct sizes {
    uint64_t offset, type, score, pool, table, merge, merge_table, total; /* places in the block */
};

static uint64_t take(struct sizes *s, uint64_t bytes)
{
    uint64_t at = s->total;
    s->total = (at + bytes + 15) & ~15ull;
    return at;
}

static struct sizes block_sizes(uint64_t n_vocab, uint64_t text_bytes, uint64_t n_merges)
{
    struct sizes s = { 0 };
    take(&s, sizeof(struct tokenizer));
    s.offset = take(&s, 4 * (n_vocab + 1));
    s.type = take(&s, n_vocab);
    s.score = take(&s, n_merges ? 0 : 4 * n_vocab);
    s.pool = take(&s, text_bytes);
    s.table = take(&s, 4 * table_size(n_vocab));
    s.merge = take(&s, 8 * n_merges);
    s.merge_table = take(&s, n_merges ? 4 * table_size(n_merges) : 0);
    return s;
}

uint64_t tokenizer_heap_bound(uint64_t n_vocab, uint64_t text_bytes, uint64_t n_merges)
{
    uint64_t with = block_sizes(n_vocab, text_bytes, n_merges).total, without = block_sizes(n_vocab, text_bytes, 0).total;
    uint64_t most = with > without ? with : without; /* a file may have merges that its model does not use */
    return most + (n_merges ? PRE_HEAP_BOUND : 0) + 64;
}

size_t tokenizer_heap_bytes(const struct tokenizer *t)
{
    return t->block_bytes + pre_heap_bytes(t->pre);
}

/* --- models ------------------------------------------------------------------------------ */

static const struct model_row {
    struct tokenizer_model m;
    enum tokenizer_kind kind;
    bool of_characters;
} models[] = {
    { { "llama", "SentencePiece BPE" }, TOKENIZER_SPM, false },
    { { "gpt2", "BPE of bytes" }, TOKENIZER_BPE, false },
    { { "gemma4", "BPE of characters" }, TOKENIZER_BPE, true },
    { { "rwkv", "longest match" }, TOKENIZER_RWKV, false },
    { { "t5", "SentencePiece unigram" }, TOKENIZER_UNIGRAM, false },
};
enum { MODELS = sizeof models / sizeof models[0] };

const struct tokenizer_model *tokenizer_model(int i)
{
    return i < MODELS ? &models[i].m : NULL;
}

/* The model that the file names; *out is NULL for one that is not known. */
static int model_of(const struct gguf *g, const struct model_row **out, struct err *e)
{
    char *name;
    int r = gguf_get_str(g, MODEL_KEY, &name, e);
    *out = NULL;
    if (r <= 0)
        return r < 0 ? r : err_set(e, ERR_FORMAT, "'%s': key '" MODEL_KEY "' is absent", gguf_name(g));
    for (int i = 0; i < MODELS; i++)
        if (!strcmp(name, models[i].m.name))
            *out = &models[i];
    if (!*out) {
        char known[128] = "";
        size_t n = 0;
        for (int i = 0; i < MODELS && n < sizeof known; i++)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : i + 1 < MODELS ? ", " : " and ", models[i].m.name);
        err_set(e, ERR_UNSUPPORTED, "'%s': key '" MODEL_KEY "' is '%.64s'%s: only %s are supported", gguf_name(g), name,
                !strcmp(name, "bert") ? " (WordPiece)" : "", known);
    }
    free(name);
    return *out ? 0 : ERR_UNSUPPORTED;
}

/* --- opening ----------------------------------------------------------------------------- */

static int bad(const struct gguf *g, const char *key, const char *what, struct err *e)
{
    return err_set(e, ERR_FORMAT, "'%s': key '%s' %s", gguf_name(g), key, what);
}

uint64_t tokenizer_beside_bytes(const struct gguf *g)
{
    const struct gguf_key *model = gguf_find(g, MODEL_KEY), *tokens = gguf_find(g, TOKENS_KEY), *map = gguf_find(g, CHARSMAP_KEY);
    if (!model || model->type != GGUF_STRING || model->n != 2 || memcmp(model->data, "t5", 2))
        return 0;
    return 16 + (tokens ? 4 * tokens->n : 0) + (map ? map->data_len : 0); /* 16: what alignment takes */
}

/* Has the vocabulary ranks instead of merges? */
static bool is_by_ids(const struct gguf *g)
{
    const struct gguf_key *model = gguf_find(g, MODEL_KEY), *pre = gguf_find(g, TOKENIZER_PRE_KEY);
    return model && model->type == GGUF_STRING && model->n == 4 && !memcmp(model->data, "gpt2", 4) && pre && pre->type == GGUF_STRING &&
           pre_flags(pre->data, (size_t)pre->n) > 0 && pre_flags(pre->data, (size_t)pre->n) & PRE_IDS;
}

static int measure(const struct gguf *g, uint64_t *n_vocab, uint64_t *text_bytes, uint64_t *n_merges, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, TOKENS_KEY), *m = gguf_find(g, "tokenizer.ggml.merges");
    if (!k)
        return bad(g, TOKENS_KEY, "is absent", e);
    if (k->type != GGUF_ARRAY || k->elem_type != GGUF_STRING)
        return bad(g, TOKENS_KEY, "is not an array of strings", e);
    if (k->n < 1 || k->n > MODEL_MAX_VOCAB)
        return err_set(e, ERR_LIMIT, "'%s': key '" TOKENS_KEY "' has %" PRIu64 " elements, outside 1 to %d",
                       gguf_name(g), k->n, MODEL_MAX_VOCAB);
    uint64_t bytes = k->data_len - 8 * k->n;
    if (bytes > MAX_TEXT)
        return err_set(e, ERR_LIMIT, "'%s': key '" TOKENS_KEY "' holds %" PRIu64 " bytes of text, more than the "
                       "limit of %u", gguf_name(g), bytes, MAX_TEXT);
    if (m && (m->type != GGUF_ARRAY || m->elem_type != GGUF_STRING))
        return bad(g, m->name, "is not an array of strings", e);
    if (m && m->n > MAX_MERGES)
        return err_set(e, ERR_LIMIT, "'%s': key '%s' has %" PRIu64 " elements, more than the limit of %u",
                       gguf_name(g), m->name, m->n, MAX_MERGES);
    const struct gguf_key *map = gguf_find(g, CHARSMAP_KEY);
    if (map && map->data_len > MAX_TEXT)
        return err_set(e, ERR_LIMIT, "'%s': key '" CHARSMAP_KEY "' has %zu bytes, more than the limit of %u", gguf_name(g),
                       map->data_len, MAX_TEXT);
    *n_vocab = k->n;
    *text_bytes = bytes;
    *n_merges = is_by_ids(g) ? 1 : m ? m->n : 0; /* 1: none is kept, but it has patterns as others with merges */
    return 0;
}

int tokenizer_measure(const struct gguf *g, uint64_t *n_vocab, uint64_t *text_bytes, uint64_t *n_merges,
                      struct err *e)
{
    int r = measure(g, n_vocab, text_bytes, n_merges, e);
    if (r == 0)
        *text_bytes += tokenizer_beside_bytes(g);
    return r;
}

/* An array of n_vocab 4-byte elements; NULL when absent. */
static int per_token(const struct gguf *g, const char *name, enum gguf_value type, int n_vocab,
                     const uint8_t **out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    *out = NULL;
    if (!k)
        return 0;
    if (k->type != GGUF_ARRAY || (k->elem_type != type && !(type == GGUF_I32 && k->elem_type == GGUF_U32)))
        return bad(g, name, type == GGUF_F32 ? "is not an array of f32" : "is not an array of i32", e);
    if (k->n != (uint64_t)n_vocab)
        return err_set(e, ERR_FORMAT, "'%s': key '%s' has %" PRIu64 " elements for %d tokens", gguf_name(g), name,
                       k->n, n_vocab);
    *out = k->data;
    return 0;
}

/* "<0x41>" -> 0x41; -1 otherwise. */
static int byte_token(const char *s, size_t len)
{
    int v = 0;
    if (len != 6 || memcmp(s, "<0x", 3) || s[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        int c = s[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10
              : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* The text is in the pool already, or is copied there. */
static int special_text(struct tokenizer *t, const struct gguf *g, int32_t id, const char *s, size_t len,
                        struct err *e)
{
    if (len > SPECIAL_MAX_LEN)
        return err_set(e, ERR_LIMIT, "'%s': special token %" PRId32 " has %zu bytes, more than the limit of %u",
                       gguf_name(g), id, len, SPECIAL_MAX_LEN);
    if (len > 0) {
        uint8_t first = (uint8_t)s[0];
        t->special_first[first / 8] |= (uint8_t)(1u << first % 8);
        t->special_len[len / 8] |= (uint8_t)(1u << len % 8);
    }
    memmove(t->pool + t->offset[id], s, len);
    return 0;
}

static bool sentencepiece(const struct tokenizer *t)
{
    return t->kind == TOKENIZER_SPM || t->kind == TOKENIZER_UNIGRAM;
}

/* One token into pool, types and byte tokens; sets the next offset. */
static int add_token(struct tokenizer *t, const struct gguf *g, int32_t id, const char *s, size_t len,
                     int32_t type, struct marks *marks, struct err *e)
{
    char *out = t->pool + t->offset[id];
    bool opaque = false;
    int r = 0;
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return err_set(e, ERR_FORMAT, "'%s': token %" PRId32 " is of unknown type %" PRId32, gguf_name(g), id, type);
    if (t->kind == TOKENIZER_RWKV) { /* tokens of all types are written with escapes */
        long n = tokenizer_rwkv_text(s, len, out);
        if (n < 0)
            return err_set(e, ERR_FORMAT, "'%s': token %" PRId32 ", '%.*s', has an escape that is none of \\t, \\n, \\r, \\xNN, \\\\, "
                           "\\' and \\\"", gguf_name(g), id, len < 64 ? (int)len : 64, s);
        s = out;
        len = (size_t)n;
    }
    if (type == TOKEN_NORMAL || type == TOKEN_UNUSED) {
        size_t n = tokenizer_marks_spelled(t, marks, id, s, len, out);
        if (n) {
            tokenizer_marks_note(t, id);
            type = TOKEN_CONTROL;
            s = out;
            len = n;
        }
    }
    if (tokenizer_type_is_special((enum token_type)type)) {
        if ((r = special_text(t, g, id, s, len, e)) < 0)
            return r;
    } else if (t->kind == TOKENIZER_RWKV) {
        opaque = type == TOKEN_UNUSED;
        type = TOKEN_NORMAL;
    } else if (type == TOKEN_BYTE) {
        int b = byte_token(s, len);
        if (b < 0)
            return err_set(e, ERR_FORMAT, "'%s': byte token %" PRId32 " is not of the form <0xNN>", gguf_name(g), id);
        t->byte_id[b] = id;
        *out = (char)b;
        len = 1;
    } else if (sentencepiece(t)) {
        len = tokenizer_spm_text(s, len, out, &opaque);
    } else {
        long n = tokenizer_bpe_text(t, s, len, out);
        opaque = n < 0;
        if (opaque)
            memcpy(out, s, len);
        else
            len = (size_t)n;
    }
    t->type[id] = (uint8_t)(opaque ? TOKEN_OPAQUE : type);
    t->offset[id + 1] = t->offset[id] + (uint32_t)len;
    return 0;
}

static int read_tokens(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const uint8_t *types, *scores;
    int r;
    if ((r = per_token(g, "tokenizer.ggml.token_type", GGUF_I32, t->n_vocab, &types, e)) < 0 ||
        (r = per_token(g, "tokenizer.ggml.scores", GGUF_F32, t->n_vocab, &scores, e)) < 0)
        return r;
    if (sentencepiece(t) && (!types || !scores))
        return bad(g, types ? "tokenizer.ggml.scores" : "tokenizer.ggml.token_type", "is absent", e);
    if (t->kind == TOKENIZER_RWKV && !types)
        return bad(g, "tokenizer.ggml.token_type", "is absent", e);
    const struct gguf_key *k = gguf_find(g, TOKENS_KEY);
    struct marks marks;
    const char *s;
    uint64_t len;
    size_t pos = 0;
    tokenizer_marks_init(&marks, g);
    for (int32_t id = 0; gguf_array_str(k, &pos, &s, &len); id++) {
        int32_t type = types ? (int32_t)bytes_le32(types + 4 * (size_t)id) : TOKEN_NORMAL;
        if ((r = add_token(t, g, id, s, (size_t)len, type, &marks, e)) < 0)
            return r;
        if (sentencepiece(t)) {
            float score = bytes_lef32(scores + 4 * (size_t)id);
            if (!(score - score == 0))
                return err_set(e, ERR_FORMAT, "'%s': the score of token %" PRId32 " is not finite", gguf_name(g), id);
            t->score[id] = score;
        }
    }
    for (int32_t id = 0; id < t->n_vocab; id++)
        if (t->type[id] != TOKEN_BYTE && t->type[id] != TOKEN_OPAQUE)
            insert(t, id);
    for (int b = 0; t->kind == TOKENIZER_BPE && !t->of_characters && b < 256; b++) {
        char c = (char)b;
        t->byte_id[b] = tokenizer_lookup(t, &c, 1, false);
    }
    if (t->kind == TOKENIZER_RWKV)
        tokenizer_rwkv_sort(t);
    if (t->kind == TOKENIZER_UNIGRAM)
        tokenizer_unigram_sort(t);
    return 0;
}

int tokenizer_special_id(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t def, int32_t *out, struct err *e)
{
    uint32_t v;
    int r = gguf_get_u32(g, key, &v, e);
    *out = def < t->n_vocab ? def : -1;
    if (r <= 0)
        return r;
    if (v >= (uint32_t)t->n_vocab)
        return err_set(e, ERR_FORMAT, "'%s': key '%s' is %" PRIu32 ", but there are %d tokens", gguf_name(g), key, v,
                       t->n_vocab);
    *out = (int32_t)v;
    return 0;
}

/* Phi 3 alone has special tokens that take the white space behind them, and says so nowhere in its file. */
static int read_rstrip(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    char *name;
    int r = gguf_get_str(g, "general.name", &name, e);
    if (r <= 0)
        return r;
    bool phi3 = strcasestr(name, "phi-3") || strcasestr(name, "phi3");
    free(name);
    static const char *const not[] = { "<unk>", "<s>", "<|endoftext|>" };
    for (int32_t id = 0; phi3 && id < t->n_vocab; id++)
        if (tokenizer_type_is_special(tokenizer_type(t, id)))
            t->type[id] |= TOKEN_RSTRIP;
    for (size_t i = 0; phi3 && i < sizeof not / sizeof not[0]; i++) {
        int32_t id = tokenizer_find(t, not[i]);
        if (id >= 0)
            t->type[id] &= (uint8_t)~TOKEN_RSTRIP;
    }
    return 0;
}

static int read_flag(const struct gguf *g, const char *key, bool *out, struct err *e)
{
    int v = *out, r = gguf_get_bool(g, key, &v, e);
    *out = v != 0;
    return r < 0 ? r : 0;
}

static int read_pre(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    char *name = NULL;
    unsigned flags;
    int r = t->of_characters ? 0 : gguf_get_str(g, TOKENIZER_PRE_KEY, &name, e);
    if (r == 0 && !t->of_characters)
        return bad(g, TOKENIZER_PRE_KEY, "is absent: the pattern that cuts words is not known", e);
    if (r < 0)
        return r;
    t->of_characters |= name && !strcmp(name, "gemma4");
    if ((r = pre_new(name ? name : "gemma4", &t->pre, &flags, e)) < 0) {
        err_wrap(e, "'%s'", gguf_name(g));
    } else {
        t->whole_words = flags & PRE_WHOLE;
        t->add_bos = flags & PRE_BOS;
        t->by_ids = flags & PRE_IDS;
        t->nfc = flags & PRE_NFC;
    }
    free(name);
    return r;
}

/* A table of normalisation: u32 how many bytes its trie has, the trie, texts that each end with a NUL. */
static int read_charsmap(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, CHARSMAP_KEY);
    if (!k)
        return 0;
    if (k->type != GGUF_ARRAY || (k->elem_type != GGUF_U8 && k->elem_type != GGUF_I8))
        return bad(g, CHARSMAP_KEY, "is not an array of bytes", e);
    uint32_t trie = k->data_len < 4 ? 0 : bytes_le32(k->data);
    if (k->data_len < 5 || trie > k->data_len - 5)
        return err_set(e, ERR_FORMAT, "'%s': key '" CHARSMAP_KEY "' has %zu bytes, no room for a size, a trie of %" PRIu32
                       " bytes and a text", gguf_name(g), k->data_len, trie);
    if (((const uint8_t *)k->data)[k->data_len - 1] != 0)
        return bad(g, CHARSMAP_KEY, "does not end with a NUL", e);
    memcpy(t->charsmap, k->data, k->data_len);
    t->trie_nodes = trie / 4;
    t->texts_at = 4 + trie;
    t->charsmap_len = k->data_len;
    return 0;
}

static int fill(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    bool spm = t->kind == TOKENIZER_SPM, bpe = t->kind == TOKENIZER_BPE, unigram = t->kind == TOKENIZER_UNIGRAM;
    int r;
    t->add_bos = t->add_space = spm;
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    if (bpe && (r = read_pre(t, g, e)) < 0)
        return r;
    if ((r = tokenizer_special_id(t, g, "tokenizer.ggml.bos_token_id", spm ? 1 : -1, &t->bos, e)) < 0 ||
        (r = tokenizer_special_id(t, g, "tokenizer.ggml.unknown_token_id", spm ? 0 : unigram ? 2 : -1, &t->unk, e)) < 0 ||
        (r = read_flag(g, "tokenizer.ggml.add_bos_token", &t->add_bos, e)) < 0 ||
        (r = read_tokens(t, g, e)) < 0 || (r = tokenizer_marks_ends(t, g, e)) < 0 ||
        (r = read_rstrip(t, g, e)) < 0)
        return r;
    t->add_bos |= t->of_characters; /* files of Gemma 4 that say otherwise are wrong */
    if (bpe) {
        r = tokenizer_bpe_merges(t, g, e);
        return r < 0 ? err_wrap(e, "'%s'", gguf_name(g)) : 0;
    }
    if (unigram) {
        if (t->unk < 0)
            return err_set(e, ERR_FORMAT, "'%s': the vocabulary has no unknown token", gguf_name(g));
        if ((r = read_flag(g, "tokenizer.ggml.remove_extra_whitespaces", &t->merge_spaces, e)) < 0 ||
            (r = read_charsmap(t, g, e)) < 0)
            return r;
    }
    for (int b = 0; t->unk < 0 && b < 256; b++) {
        char c = (char)b;
        size_t size;
        if (spm ? t->byte_id[b] < 0 : tokenizer_rwkv_match(t, &c, 1, &size) < 0)
            return err_set(e, ERR_FORMAT, spm ? "'%s': the vocabulary has neither a token <0x%02X> nor an unknown token"
                                              : "'%s': the vocabulary has neither a token of the byte 0x%02X nor an unknown token",
                           gguf_name(g), (unsigned)b);
    }
    return !spm && !unigram ? 0 : read_flag(g, "tokenizer.ggml.add_space_prefix", &t->add_space, e);
}

int tokenizer_open(const struct gguf *g, struct tokenizer **out, struct err *e)
{
    uint64_t n_vocab, text_bytes, n_merges;
    const struct model_row *model;
    int r = model_of(g, &model, e);
    if (r < 0 || (r = measure(g, &n_vocab, &text_bytes, &n_merges, e)) < 0)
        return r;
    uint64_t beside = tokenizer_beside_bytes(g), order_at = (text_bytes + 3) & ~3ull;
    if (model->kind != TOKENIZER_BPE)
        n_merges = 0;
    else if (n_merges == 0)
        return bad(g, "tokenizer.ggml.merges", "is absent or empty", e);
    struct sizes s = block_sizes(n_vocab, text_bytes + beside, n_merges);
    uint8_t *block = calloc(1, (size_t)s.total);
    if (!block)
        return err_set(e, ERR_NOMEM, "'%s': a vocabulary of %" PRIu64 " bytes", gguf_name(g), s.total);
    struct tokenizer *t = (struct tokenizer *)(void *)block;
    t->kind = model->kind;
    t->of_characters = model->of_characters;
    t->n_vocab = (int)n_vocab;
    t->block_bytes = (size_t)s.total;
    t->offset = (uint32_t *)(void *)(block + s.offset);
    t->type = block + s.type;
    t->score = (float *)(void *)(block + s.score);
    t->pool = (char *)(block + s.pool);
    if (model->kind == TOKENIZER_RWKV)
        t->order = (uint32_t *)(void *)(block + s.score);
    if (model->kind == TOKENIZER_UNIGRAM) {
        t->order = (uint32_t *)(void *)(block + s.pool + order_at);
        t->charsmap = block + s.pool + order_at + 4 * n_vocab;
    }
    t->table = (uint32_t *)(void *)(block + s.table);
    t->mask = (uint32_t)(table_size(n_vocab) - 1);
    t->merge = (uint32_t *)(void *)(block + s.merge);
    t->merge_table = (uint32_t *)(void *)(block + s.merge_table);
    t->merge_mask = (uint32_t)(table_size(n_merges) - 1);
    t->n_merges = (uint32_t)n_merges;
    if ((r = fill(t, g, e)) < 0) {
        tokenizer_close(t);
        return r;
    }
    tokenizer_cut_init(t);
    *out = t;
    return 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    pre_free(t->pre);
    free(t);
}

/* --- encoding ---------------------------------------------------------------------------- */

struct claim { /* a stretch of text that is a special token */
    uint32_t begin, end;
    int32_t id;
};

struct claims {
    struct claim *c;
    size_t n, cap;
};

static bool bit(const uint8_t *map, unsigned i)
{
    return map[i / 8] >> i % 8 & 1;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int put_claim(struct claims *l, struct claim c, struct err *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap + l->cap / 2 : 16;
        struct claim *grown = realloc(l->c, cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "%zu special tokens", cap);
        l->c = grown;
        l->cap = cap;
    }
    l->c[l->n++] = c;
    return 0;
}

/* Which special tokens are looked for. */
struct looked_for {
    bool all;              /* else those that are always found */
    const uint32_t *plain; /* [n]: places that control tokens do not go over */
    size_t n;
};

/* Is there a place of `plain` within (begin, end]? A token of one character ends where it would be marked. */
static bool goes_over(const struct looked_for *f, size_t begin, size_t end)
{
    size_t from = 0, to = f->n;
    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (f->plain[mid] <= begin)
            from = mid + 1;
        else
            to = mid;
    }
    return from < f->n && f->plain[from] <= end;
}

/* Claims every special token of exactly len bytes in what longer ones have left, from left to right:
 * *l becomes a new list, in the order of the text. */
static int claim_length(const struct tokenizer *t, const char *text, size_t n, unsigned len, const struct looked_for *f,
                        struct claims *l, struct err *e)
{
    struct claims fresh = { 0 };
    size_t old = 0; /* claims before it have been passed */
    int r = 0;
    uint64_t step = 0;
    for (size_t pos = 0; r == 0 && pos < n && (r = file_go_on_at(step++, e)) == 0;) {
        if (old < l->n && l->c[old].begin < pos + len) {
            pos = l->c[old].end;
            r = put_claim(&fresh, l->c[old++], e);
            continue;
        }
        int32_t id = pos + len <= n && bit(t->special_first, (uint8_t)text[pos])
                   ? tokenizer_lookup(t, text + pos, len, true) : -1;
        if (id < 0 || (tokenizer_type(t, id) != TOKEN_USER_DEFINED && (!f->all || goes_over(f, pos, pos + len)))) {
            pos++;
            continue;
        }
        size_t end = pos + len, most = old < l->n ? l->c[old].begin : n;
        while (t->type[id] & TOKEN_RSTRIP && end < most && is_space(text[end]))
            end++;
        r = put_claim(&fresh, (struct claim){ (uint32_t)pos, (uint32_t)end, id }, e);
        pos = end;
    }
    free(l->c);
    *l = fresh;
    return r;
}

static int encode_piece(const struct tokenizer *t, const char *text, size_t len, bool space, struct ids *ids, struct err *e)
{
    if (t->nfc) {
        char *composed;
        int r = nfc_text(text, len, &composed, &len, e);
        if (r == 0)
            r = tokenizer_bpe_encode(t, composed ? composed : text, len, ids, e);
        free(composed);
        return r;
    }
    if (t->kind == TOKENIZER_RWKV)
        return tokenizer_rwkv_encode(t, text, len, ids, e);
    if (t->kind == TOKENIZER_UNIGRAM)
        return tokenizer_unigram_encode(t, text, len, ids, e);
    return t->kind == TOKENIZER_SPM ? tokenizer_spm_encode(t, text, len, space && t->add_space, ids, e)
                                    : tokenizer_bpe_encode(t, text, len, ids, e);
}

/* In pieces, so that what a piece takes of the heap is all that a long text takes. */
static int encode_plain(const struct tokenizer *t, const char *text, size_t len, bool space, struct ids *ids, struct err *e)
{
    int r = 0;
    for (size_t most = TOKENIZER_PIECE; r == 0 && len > 0;) {
        size_t n = most < len ? tokenizer_cut(t, text, most) : len;
        if (n == 0) {
            most *= 2;
            continue;
        }
        r = encode_piece(t, text, n, space, ids, e);
        if (r == 0 && n < len)
            r = file_go_on(e);
        space = false;
        text += n;
        len -= n;
        most = TOKENIZER_PIECE;
    }
    return r;
}

static int encode(const struct tokenizer *t, const char *text, size_t len, int bos, const struct looked_for *f, bool space, int32_t **out,
                  int *n, struct err *e)
{
    struct ids ids = { 0 };
    struct claims l = { 0 };
    int r = 0;
    if (len > MAX_TEXT)
        return err_set(e, ERR_LIMIT, "a text of %zu bytes is longer than the limit of %u", len, MAX_TEXT);
    for (unsigned k = SPECIAL_MAX_LEN; r == 0 && k > 0; k--)
        if (bit(t->special_len, k))
            r = claim_length(t, text, len, k, f, &l, e);
    if (r == 0 && bos && t->add_bos && t->bos >= 0)
        r = tokenizer_push(&ids, t->bos, e);
    size_t at = 0;
    for (size_t i = 0; r == 0 && i < l.n; i++) {
        r = encode_plain(t, text + at, l.c[i].begin - at, space || at > 0, &ids, e);
        if (r == 0)
            r = tokenizer_push(&ids, l.c[i].id, e);
        at = l.c[i].end;
    }
    if (r == 0)
        r = encode_plain(t, text + at, len - at, space || at > 0, &ids, e);
    if (r == 0 && !ids.id && !(ids.id = malloc(sizeof *ids.id)))
        r = err_set(e, ERR_NOMEM, "token ids");
    free(l.c);
    if (r < 0) {
        free(ids.id);
        return r;
    }
    *out = ids.id;
    *n = ids.n;
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int bos, int parse_special,
                     int32_t **out, int *n, struct err *e)
{
    return encode(t, text, len, bos, &(struct looked_for){ .all = parse_special }, true, out, n, e);
}

int tokenizer_encode_but(const struct tokenizer *t, const char *text, size_t len, int bos, const uint32_t *plain, size_t n_plain,
                         int32_t **out, int *n, struct err *e)
{
    return encode(t, text, len, bos > 0, &(struct looked_for){ true, plain, n_plain }, bos >= 0, out, n, e);
}

size_t tokenizer_next_control(const struct tokenizer *t, const char *text, size_t len, size_t from, size_t *bytes)
{
    for (; from < len; from++)
        for (unsigned k = SPECIAL_MAX_LEN; bit(t->special_first, (uint8_t)text[from]) && k > 0; k--) {
            int32_t id = bit(t->special_len, k) && k <= len - from ? tokenizer_lookup(t, text + from, k, true) : -1;
            if (id >= 0 && tokenizer_type(t, id) != TOKEN_USER_DEFINED) {
                *bytes = k;
                return from;
            }
        }
    return len;
}

int tokenizer_encode_more(const struct tokenizer *t, const char *text, size_t len, int parse_special, int32_t **out, int *n, struct err *e)
{
    return encode(t, text, len, 0, &(struct looked_for){ .all = parse_special }, false, out, n, e);
}

/* --- pieces ------------------------------------------------------------------------------ */

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *len)
{
    *len = 0;
    if (id < 0 || id >= t->n_vocab)
        return "";
    enum token_type type = tokenizer_type(t, id);
    if (type != TOKEN_CONTROL && type != TOKEN_UNKNOWN)
        *len = text_len(t, id);
    return t->pool + t->offset[id];
}

int tokenizer_adds_space(const struct tokenizer *t)
{
    return t->add_space;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

const char *tokenizer_text(const struct tokenizer *t, int32_t id, size_t *len)
{
    *len = id >= 0 && id < t->n_vocab ? text_len(t, id) : 0;
    return *len ? t->pool + t->offset[id] : "";
}

int tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_vocab && (t->type[id] & TOKEN_EOG) != 0;
}
