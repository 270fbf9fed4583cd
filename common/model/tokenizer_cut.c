/* Where a text can be cut so that its pieces, encoded one by one, give what the whole gives: between a letter and a space before another
 * letter. Merging crosses no such place where no token does, for what is merged is a token, and no two places know of each other; a longest
 * match ends before it; and the patterns that cut BPE's texts into words begin one with that space, or have it within one, which makes
 * no difference then. Not so with unigram models: a path's score is a rounded sum from the text's first byte on. */
#include "common/model/tokenizer_impl.h"

static bool is_ascii_letter(unsigned char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_lead(unsigned char c)
{
    return c >= 0xc3 && c <= 0xdf; /* U+00C0 to U+07FF: no white space among them */
}

static bool is_rest(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* Is the space at s[i], which is neither the first byte nor among the last two, such a place? */
static bool is_place(const unsigned char *s, size_t i)
{
    return (is_ascii_letter(s[i - 1]) || (i > 1 && is_rest(s[i - 1]) && is_lead(s[i - 2]))) &&
           (is_ascii_letter(s[i + 1]) || (is_lead(s[i + 1]) && is_rest(s[i + 2])));
}

size_t tokenizer_cut(const struct tokenizer *t, const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = t->cuts && len > 3 ? len - 3 : 0; i > 0; i--)
        if (s[i] == ' ' && is_place(s, i))
            return i;
    return 0;
}

static bool reaches_over(const unsigned char *s, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        if (s[i + 1] == ' ' && (is_ascii_letter(s[i]) || is_rest(s[i])))
            return true;
    return false;
}

void tokenizer_cut_init(struct tokenizer *t)
{
    t->cuts = t->kind != TOKENIZER_UNIGRAM;
    for (int32_t i = 0; i < t->n_vocab && t->cuts; i++) {
        size_t n = tokenizer_text_len(t, (uint32_t)i);
        const unsigned char *s = (const unsigned char *)t->pool + t->offset[i];
        bool strips = (t->type[i] & TOKEN_RSTRIP) && n > 0 && (is_ascii_letter(s[n - 1]) || is_rest(s[n - 1]));
        t->cuts = tokenizer_type(t, i) == TOKEN_OPAQUE || (!reaches_over(s, n) && !strips);
    }
}
