#ifndef COMMON_MODEL_TOKENIZER_IMPL_H
#define COMMON_MODEL_TOKENIZER_IMPL_H

/* Shared by tokenizer*.c only. */
#include "common/model/tokenizer.h"

#include <stdbool.h>

enum token_type {
    TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE,
    TOKEN_OPAQUE, /* our own: text that no input can produce; has a piece, is in no table */
    TOKEN_TYPES
};
#define TOKEN_EOG    0x80u /* flags beside the type */
#define TOKEN_RSTRIP 0x40u /* takes the white space behind it */
#define TOKEN_INFILL 0x08u /* what tokenizer_infill has, shifted by its place there */
_Static_assert(TOKEN_TYPES <= TOKEN_INFILL, "flags are above types");

enum tokenizer_kind { TOKENIZER_SPM, TOKENIZER_BPE, TOKENIZER_RWKV, TOKENIZER_UNIGRAM };

#define SPECIAL_MAX_LEN 255u /* bytes of a special token's text */

#define RETYPED 4

struct pre; /* pre-tokenizer pattern */

/* Constant after opening. The arrays and the struct lie in one block. */
struct tokenizer {
    enum tokenizer_kind kind;
    int n_vocab;
    int32_t bos, eos, unk;     /* -1: none */
    bool add_bos, add_space;
    bool cuts;                 /* no token reaches from a letter over a space: texts can be encoded in pieces (tokenizer_cut) */
    size_t block_bytes, max_len; /* max_len: longest text in the table */
    uint32_t *offset;          /* [n_vocab + 1] into pool */
    uint8_t *type;             /* [n_vocab] enum token_type, perhaps with flags */
    float *score;              /* [n_vocab], SPM and unigram */
    uint32_t *order;           /* [n_order] ids by text, RWKV and unigram */
    char *pool;                /* token texts as they appear in plain text, one after the other */
    uint32_t *table;           /* [mask + 1] open addressing by text: id + 1, 0 empty */
    uint32_t mask;
    int32_t byte_id[256];      /* token of a single byte: SPM's <0xNN>, BPE's one-byte tokens; -1 */
    uint8_t special_first[32]; /* bitmaps over the special tokens' texts: first byte, length */
    uint8_t special_len[32];
    int n_retyped;             /* tokens that count as control ones though the file types them as text, */
    int32_t retyped[RETYPED];  /* and the first of them */
    /* BPE */
    bool whole_words;          /* a word that is a token needs no merging */
    bool of_characters;        /* merges begin with characters and not with bytes; U+2581 stands for a space, as in SPM */
    bool by_ids;               /* two neighbours that are a token together merge, the lowest id first, as tiktoken does: no merges */
    bool nfc;                  /* text is composed first (common/base/nfc.h) */
    uint32_t n_merges, merge_mask;
    uint32_t *merge;           /* [n_merges][2] left and right id; the index is the rank */
    uint32_t *merge_table;     /* [merge_mask + 1] open addressing by pair: rank + 1, 0 empty */
    struct pre *pre;
    uint32_t n_order;          /* RWKV and unigram */
    /* Unigram */
    bool merge_spaces;         /* runs of spaces become one, none at the end */
    float unknown_score;
    uint8_t *charsmap;         /* [charsmap_len] table of normalisation as in the file, unaligned */
    size_t charsmap_len, texts_at; /* texts_at: behind the trie, where the texts begin; the last byte is 0 */
    uint32_t trie_nodes;       /* u32 from byte 4 on; 0: no table */
};

static inline enum token_type tokenizer_type(const struct tokenizer *t, int32_t id)
{
    return (enum token_type)(t->type[id] & (TOKEN_INFILL - 1));
}

/* Matched in text as a whole, never made by merging. */
static inline bool tokenizer_type_is_special(enum token_type type)
{
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN;
}

/* The token of that text, among the special ones or among the others; -1 when there is none. */
int32_t tokenizer_lookup(const struct tokenizer *t, const char *text, size_t len, bool special);

/* The token that a key names, or def; -1: none. A token that there is not is ERR_FORMAT. */
int tokenizer_special_id(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t def, int32_t *out, struct err *e);

/* tokenizer_marks.c: tokens that mark turns and ends, by name, by shape and by the ids of the keys. */
#define MARK_KEYS 20
#define MARK_NAMES 80
struct marks {
    const struct gguf *g;
    uint32_t keyed[MARK_KEYS]; /* ids that keys name */
    int n_keyed;
    bool scanned;
    bool merged[MARK_NAMES];   /* names that a merge makes */
};
void tokenizer_marks_init(struct marks *m, const struct gguf *g);
/* Of a token that is typed as text: the length of its text where it is a mark, which is written to out[len]; 0: it is text. */
size_t tokenizer_marks_spelled(const struct tokenizer *t, struct marks *m, int32_t id, const char *s, size_t len, char *out);
void tokenizer_marks_note(struct tokenizer *t, int32_t id);
int tokenizer_marks_ends(struct tokenizer *t, const struct gguf *g, struct err *e); /* flags those that end a generation */

/* A growing list of ids. */
struct ids {
    int32_t *id;
    int n, cap;
};
int tokenizer_push(struct ids *out, int32_t id, struct err *e);

/* Append the ids of a stretch of plain text without special tokens. space: put a space before it. */
int tokenizer_spm_encode(const struct tokenizer *t, const char *text, size_t len, bool space,
                         struct ids *out, struct err *e);
int tokenizer_bpe_encode(const struct tokenizer *t, const char *text, size_t len, struct ids *out,
                         struct err *e);
int tokenizer_rwkv_encode(const struct tokenizer *t, const char *text, size_t len, struct ids *out,
                          struct err *e);

/* The longest token at the beginning of text[0..len), *size bytes long; -1: no token begins so. Time O(*size log n_vocab), or of the
 * longest token's length where another goes on like the text. */
int32_t tokenizer_rwkv_match(const struct tokenizer *t, const char *text, size_t len, size_t *size);
void tokenizer_rwkv_sort(struct tokenizer *t); /* fills order, once the tokens are in the table */

static inline size_t tokenizer_text_len(const struct tokenizer *t, uint32_t id)
{
    return t->offset[id + 1] - t->offset[id];
}

/* tokenizer_cut.c: fills cuts, once the tokens are known. */
void tokenizer_cut_init(struct tokenizer *t);

/* tokenizer_order.c. Sorts order[0..n_order) by text, twins by id. */
void tokenizer_order_sort(struct tokenizer *t);
/* Narrows order[*lo..*hi), texts of more than depth bytes that agree in the first depth, to those whose next byte is c. The one that is
 * no longer than that comes first. */
void tokenizer_order_narrow(const struct tokenizer *t, size_t *lo, size_t *hi, size_t depth, unsigned c);

int tokenizer_unigram_encode(const struct tokenizer *t, const char *text, size_t len, struct ids *out,
                             struct err *e);
void tokenizer_unigram_sort(struct tokenizer *t); /* fills order and unknown_score, once the tokens are in the table */

/* The bytes that an escaped text stands for, into out[len]; -1 when it has an escape that is not known. */
long tokenizer_rwkv_text(const char *text, size_t len, char *out);

/* The bytes that a BPE token's text stands for (GPT-2's mapping of bytes to printable characters), into
 * out[len]; -1 when it holds a character outside the mapping. */
long tokenizer_bpe_bytes(const char *text, size_t len, char *out);
long tokenizer_bpe_text(const struct tokenizer *t, const char *text, size_t len, char *out);

/* U+2581 to a space, into out[len]; how many bytes. A vocabulary text with a space of its own can be produced by no input:
 * *opaque is set. */
size_t tokenizer_spm_text(const char *s, size_t len, char *out, bool *opaque);
int tokenizer_bpe_merges(struct tokenizer *t, const struct gguf *g, struct err *e);

/* A heap of merge candidates shared by both algorithms: the smallest (key, left) first. */
struct candidate {
    float key;                 /* SPM: minus the score; BPE: the rank */
    uint32_t left, size;       /* left node, bytes of the merged text: it is stale when they no longer agree */
};
void tokenizer_heap_push(struct candidate *heap, size_t *n, struct candidate c);
struct candidate tokenizer_heap_pop(struct candidate *heap, size_t *n);

/* A text as a list of pieces being merged. */
struct node {
    uint32_t start, len;       /* len 0: merged into its left neighbour */
    int32_t prev, next;        /* -1: none */
};

/* tokenizer_pre.c: splitting text into words. NULL-safe free. */
#define PRE_HEAP_BOUND (64u << 10)
/* Flags of a name: a word that is a token needs no merging; a text begins with BOS; merges follow from ids; text is composed. */
enum { PRE_WHOLE = 1, PRE_BOS = 2, PRE_IDS = 4, PRE_NFC = 8 };
int pre_flags(const char *name, size_t len); /* -1: no such name */
int pre_new(const char *name, struct pre **out, unsigned *flags, struct err *e);
void pre_free(struct pre *p);
size_t pre_heap_bytes(const struct pre *p);
typedef int pre_word_fn(void *ctx, const char *word, size_t len, struct err *e);
int pre_split(const struct pre *p, const char *text, size_t len, pre_word_fn *word, void *ctx, struct err *e);

#endif
