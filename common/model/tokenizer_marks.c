/* Tokens that mark turns and ends. Converters type them as control tokens, or forget to: then a chat's marks would be spelled in
 * pieces, and its end would be printed. A mark is therefore known by its frame, <|...|>, which no text has as a token; by its name,
 * unless a merge makes that, for then it is text that the vocabulary learned (</s> in Qwen's, from HTML); or by a key that names it,
 * if it is in brackets: eot_token_id of RWKV is an empty line, and padding_token_id is often 0, whatever that is. RWKV's names are
 * text: its vocabulary types what is none. */
#include "common/model/tokenizer_impl.h"

#include <stdio.h>
#include <string.h>

#define BAR "\357\275\234" /* U+FF5C */
#define LOW "\342\226\201" /* U+2581 */

static const struct {
    const char *text;
    bool ends;                 /* a generation ends with it */
} names[] = {
    { "<|eot_id|>", true }, { "<|im_end|>", true }, { "<|end|>", true }, { "<|return|>", true }, { "<|call|>", true },
    { "<|flush|>", true }, { "<|calls|>", true }, { "<end_of_turn>", true }, { "<turn|>", true }, { "<|tool_response>", true },
    { "<|endoftext|>", true }, { "<|eom_id|>", true }, { "<|end_of_text|>", true }, { "<EOT>", true }, { LOW "<EOT>", true },
    { "[EOT]", true }, { "[EOS]", true }, { "<end_of_utterance>", true }, { "[e~[", true },
    { "<" BAR "end" LOW "of" LOW "sentence" BAR ">", true }, { "</s>", true }, { "<eos>", true }, { "<|eos|>", true }, { "<|EOT|>", true },
    { "<|eot|>", true }, { "<|eom|>", true }, { "<|end_of_turn|>", true }, { "<|endofturn|>", true }, { "[|endofturn|]", true },
    { "<|END_OF_TURN_TOKEN|>", true }, { "<|end_of_sentence|>", true }, { "<|assistant_end|>", true }, { "<|role_end|>", true },
    { "<|endofresponse|>", true }, { "<|endofassistant|>", true }, { "<|fim_pad|>", true }, { "<|repo_name|>", true },
    { "<|file_sep|>", true }, { "<seed:eos>", true }, { "<|end_of_msg|>", true }, { "<|plamo:eos|>", true }, { "<|fim_repo|>", true },
    { "<fim-pad>", true }, { "<fim_pad>", true }, { "<PAD>", true }, { "[PAD]", true }, { "<fim-repo>", true }, { "<REPO>", true },
    { "<reponame>", true },
    { "<start_of_turn>", false }, { "<|turn>", false }, { "<|channel>", false }, { "<channel|>", false }, { "[INST]", false },
    { "[/INST]", false }, { "[SYSTEM_PROMPT]", false }, { "[/SYSTEM_PROMPT]", false }, { "[gMASK]", false }, { "<sop>", false },
    { "<s>", false }, { "<bos>", false }, { "<unk>", false }, { "<pad>", false }, { "]~b]", false }, { "<seed:bos>", false },
    { "[|system|]", false }, { "[|user|]", false }, { "[|assistant|]", false },
};
enum { NAMES = sizeof names / sizeof names[0], LONGEST = 64 };
_Static_assert(NAMES <= MARK_NAMES, "room for all");

static int name_of(const char *s, size_t len)
{
    for (int i = 0; i < NAMES; i++)
        if (strlen(names[i].text) == len && !memcmp(names[i].text, s, len))
            return i;
    return -1;
}

/* <|...|> or <U+FF5C...U+FF5C>, with something and no blank in it. */
static bool framed(const char *s, size_t len)
{
    size_t bar = len > 2 && s[1] == '|' ? 1 : sizeof BAR - 1;
    if (len < 2 * bar + 3 || len > LONGEST || s[0] != '<' || s[len - 1] != '>')
        return false;
    if (bar == 1 ? s[len - 2] != '|' : memcmp(s + 1, BAR, bar) || memcmp(s + len - 1 - bar, BAR, bar))
        return false;
    for (size_t i = 1 + bar; i < len - 1 - bar; i++)
        if ((uint8_t)s[i] <= ' ' || (s[i] == '|' && bar == 1))
            return false;
    return true;
}

static bool in_brackets(const char *s, size_t len)
{
    if (len < 3 || len > LONGEST || !((s[0] == '<' && s[len - 1] == '>') || (s[0] == '[' && s[len - 1] == ']')))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)s[i] <= ' ')
            return false;
    return true;
}

/* <s> and </s> are marks where vocabularies begin with them, and HTML in others (Gemma's). */
static bool is_html(const char *s, size_t len)
{
    return s[len - 1] == '>' && s[len - 2] == 's' && (len == 3 || (len == 4 && s[1] == '/'));
}

void tokenizer_marks_init(struct marks *m, const struct gguf *g)
{
    static const char *const keys[] = { "bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "separator", "cls", "mask",
                                        "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle" };
    _Static_assert(sizeof keys / sizeof keys[0] <= MARK_KEYS, "room for all");
    *m = (struct marks){ .g = g };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char key[64];
        uint32_t id;
        struct err not_here;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i]);
        if (gguf_get_u32(g, key, &id, &not_here) > 0)
            m->keyed[m->n_keyed++] = id;
    }
}

/* Names that "LEFT RIGHT" of the file's merges make, once. */
static void scan_merges(struct marks *m)
{
    const struct gguf_key *k = gguf_find(m->g, "tokenizer.ggml.merges");
    const char *s;
    uint64_t len;
    size_t pos = 0;
    m->scanned = true;
    while (k && gguf_array_str(k, &pos, &s, &len)) {
        char whole[LONGEST];
        const char *space = len >= 3 && len <= LONGEST && strchr("<[]>", s[len - 1]) ? memchr(s + 1, ' ', (size_t)len - 1) : NULL;
        if (!space)
            continue;
        size_t left = (size_t)(space - s);
        memcpy(whole, s, left);
        memcpy(whole + left, space + 1, (size_t)len - left - 1);
        int i = name_of(whole, (size_t)len - 1);
        if (i >= 0)
            m->merged[i] = true;
    }
}

static bool is_mark(const struct tokenizer *t, struct marks *m, int32_t id, const char *s, size_t len)
{
    if (len == 0 || !strchr("<[]\342", s[0]))
        return false;
    for (int i = 0; i < m->n_keyed; i++)
        if (m->keyed[i] == (uint32_t)id && in_brackets(s, len))
            return true;
    if (t->kind == TOKENIZER_RWKV)
        return false;
    if (framed(s, len))
        return true;
    int i = name_of(s, len);
    if (i >= 0 && ((is_html(s, len) && id > 3) || t->by_ids)) /* a token among ranks can be merged, whatever it spells */
        return false;
    if (i >= 0 && t->kind == TOKENIZER_BPE && !m->scanned)
        scan_merges(m);
    return i >= 0 && !m->merged[i];
}

size_t tokenizer_marks_spelled(const struct tokenizer *t, struct marks *m, int32_t id, const char *s, size_t len, char *out)
{
    /* U+FF5C as a vocabulary of bytes writes it */
    long n = t->kind == TOKENIZER_BPE && !t->of_characters && len > 2 && len <= 2 * LONGEST && s[0] == '<' && s[1] & 0x80
           ? tokenizer_bpe_bytes(s, len, out) : -1;
    if (n > 0 && framed(out, (size_t)n))
        return (size_t)n;
    if (!is_mark(t, m, id, s, len))
        return 0;
    memmove(out, s, len);
    return len;
}

void tokenizer_marks_note(struct tokenizer *t, int32_t id)
{
    if (t->n_retyped++ < RETYPED)
        t->retyped[t->n_retyped - 1] = id;
}

int tokenizer_retyped(const struct tokenizer *t, char *out, size_t cap)
{
    size_t n = 0;
    if (cap)
        *out = '\0';
    for (int i = 0; i < t->n_retyped && i < RETYPED && n < cap; i++) {
        size_t len;
        const char *s = tokenizer_text(t, t->retyped[i], &len);
        n += (size_t)snprintf(out + n, cap - n, "%s%.*s", i ? ", " : "", (int)len, s);
    }
    if (t->n_retyped > RETYPED && n < cap)
        snprintf(out + n, cap - n, " ...");
    return t->n_retyped;
}

static void mark_end(struct tokenizer *t, int32_t id)
{
    if (id >= 0)
        t->type[id] |= TOKEN_EOG;
}

/* Key, older key, and names; the first that there is counts. */
static const char *const infill[3][9] = {
    { "fim_pre", "prefix", "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<|code_prefix|>", "<｜fim▁begin｜>", "<PRE>", NULL },
    { "fim_suf", "suffix", "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<|code_suffix|>", "<｜fim▁hole｜>", "<SUF>", NULL },
    { "fim_mid", "middle", "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<|code_middle|>", "<｜fim▁end｜>", "<MID>", NULL },
};

static void find_infill(struct tokenizer *t, const struct gguf *g)
{
    for (int i = 0; i < 3; i++) {
        uint32_t id = UINT32_MAX;
        for (int k = 0; infill[i][k] && id >= (uint32_t)t->n_vocab; k++) {
            char key[64];
            struct err none;
            snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", infill[i][k]);
            if (k >= 2)
                id = (uint32_t)tokenizer_find(t, infill[i][k]);
            else if (gguf_get_u32(g, key, &id, &none) <= 0)
                id = UINT32_MAX;
        }
        if (id < (uint32_t)t->n_vocab)
            t->type[id] |= (uint8_t)(TOKEN_INFILL << i);
    }
}

int tokenizer_infill(const struct tokenizer *t, int32_t ids[3])
{
    int found = 0;
    for (int i = 0; i < 3; i++) {
        ids[i] = 0;
        while (ids[i] < t->n_vocab && !(t->type[ids[i]] & (TOKEN_INFILL << i)))
            ids[i]++;
        found += ids[i] < t->n_vocab;
    }
    return found == 3 ? 0 : -1;
}

/* Tokens that end a generation: those the keys name, and those that are known by their text. In gpt-oss a message ends with
 * <|end|> and an answer, which has several, with one of two others. */
int tokenizer_marks_ends(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                        "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
                                        "tokenizer.ggml.fim_sep_token_id" }; /* behind these another file begins */
    find_infill(t, g);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int32_t id;
        int r = tokenizer_special_id(t, g, keys[i], i ? -1 : t->kind == TOKENIZER_SPM ? 2 : t->kind == TOKENIZER_UNIGRAM ? 1 : -1, &id, e);
        if (r < 0)
            return r;
        mark_end(t, id);
        t->eos = i == 0 ? id : t->eos;
    }
    for (int i = 0; i < NAMES; i++) {
        int32_t id = names[i].ends ? tokenizer_find(t, names[i].text) : -1;
        if (id >= 0 && (tokenizer_type(t, id) == TOKEN_CONTROL || !is_html(names[i].text, strlen(names[i].text))))
            mark_end(t, id);
    }
    int32_t end = tokenizer_find(t, "<|end|>");
    bool harmony = tokenizer_find(t, "<|call|>") >= 0 && tokenizer_find(t, "<|return|>") >= 0;
    bool solar = tokenizer_find(t, "<|calls|>") >= 0 && tokenizer_find(t, "<|flush|>") >= 0;
    if (end >= 0 && (harmony || solar))
        t->type[end] &= (uint8_t)~TOKEN_EOG;
    return 0;
}
