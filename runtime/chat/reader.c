/* Tokens come one by one; text that could become a mark is held back until it is one or cannot be one. */
#include "runtime/chat/reader.h"

#include <string.h>

static const struct {
    const char *begin, *end;
} marks[] = {
    { "<think>", "</think>" },
    { "<|channel>", "<channel|>" },
    { "[THINK]", "[/THINK]" },
    { "<seed:think>", "</seed:think>" },
    { "<|START_THINKING|>", "<|END_THINKING|>" },
};
enum { PAIRS = sizeof marks / sizeof marks[0] };

void chat_reader_init(struct chat_reader *r, const struct tokenizer *t, int thinks)
{
    *r = (struct chat_reader){ .tokenizer = t, .part = thinks ? CHAT_THOUGHT : CHAT_ANSWER, .pair = thinks - 1, .fresh = 1, .blank = 1 };
    for (int i = 0; i < PAIRS; i++) {
        r->spelled_begin |= tokenizer_has(t, marks[i].begin) ? 0 : 1u << i;
        r->spelled_end |= tokenizer_has(t, marks[i].end) ? 0 : 1u << i;
    }
    r->channels = tokenizer_find(t, "<|channel|>") >= 0 && tokenizer_find(t, "<|message|>") >= 0;
    if (r->channels)
        r->part = CHAT_HEADER;
}

int chat_reader_thinks(const char *text, size_t len)
{
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    for (int i = 0; i < PAIRS; i++) {
        size_t n = strlen(marks[i].begin);
        if (len >= n && !memcmp(text + len - n, marks[i].begin, n))
            return i + 1;
    }
    return 0;
}

static int is(const char *s, size_t len, const char *text)
{
    return len == strlen(text) && !memcmp(s, text, len);
}

static void begin(struct chat_reader *r, enum chat_part part, int pair)
{
    r->part = part;
    r->pair = part == CHAT_THOUGHT ? pair : -1;
    r->fresh = r->blank = 1;
}

/* Does a token of that text begin a part? */
static int begun(struct chat_reader *r, const char *s, size_t len)
{
    int header = r->channels && (is(s, len, "<|channel|>") || is(s, len, "<|start|>") || is(s, len, "<|end|>"));
    if (header) {
        r->n_header = 0;
        begin(r, CHAT_HEADER, -1);
        return 1;
    }
    if (r->channels && is(s, len, "<|message|>")) {
        begin(r, r->n_header >= 5 && !memcmp(r->header, "final", 5) ? CHAT_ANSWER : CHAT_THOUGHT, -1);
        return 1;
    }
    for (int i = 0; i < PAIRS; i++)
        if (is(s, len, marks[i].begin) || is(s, len, marks[i].end)) {
            begin(r, is(s, len, marks[i].begin) ? CHAT_THOUGHT : CHAT_ANSWER, i);
            return 1;
        }
    return 0;
}

/* The mark that counts where the reader is, if it may be spelled and pair i has one there. */
static const char *spelled(const struct chat_reader *r, int i)
{
    if (r->part == CHAT_ANSWER && r->blank && r->spelled_begin >> i & 1)
        return marks[i].begin;
    return r->part == CHAT_THOUGHT && (r->pair < 0 || r->pair == i) && r->spelled_end >> i & 1 ? marks[i].end : NULL;
}

static int emit(struct chat_reader *r, const char *s, size_t n, chat_sink *sink, void *ctx)
{
    for (; r->fresh && n > 0 && *s == '\n'; s++, n--)
        ;
    r->fresh = r->fresh && n == 0;
    for (size_t i = 0; r->blank && i < n; i++)
        r->blank = s[i] == ' ' || (s[i] >= '\t' && s[i] <= '\r');
    return n ? sink(ctx, r->part, s, n) : 0;
}

/* What is held: a mark, the beginning of one, or text, of which the first byte goes out until the rest is one of those. */
static int decide(struct chat_reader *r, chat_sink *sink, void *ctx)
{
    while (r->n_held > 0) {
        int partial = 0, stop = 0;
        for (int i = 0; i < PAIRS; i++) {
            const char *mark = spelled(r, i);
            size_t n = mark ? strlen(mark) : 0;
            if (n < (size_t)r->n_held || memcmp(mark, r->held, (size_t)r->n_held))
                continue;
            if (n == (size_t)r->n_held) {
                begin(r, r->part == CHAT_ANSWER ? CHAT_THOUGHT : CHAT_ANSWER, i);
                r->n_held = 0;
                return sink(ctx, CHAT_SILENT, mark, n);
            }
            partial = 1;
        }
        if (partial)
            return 0;
        if ((stop = emit(r, r->held, 1, sink, ctx)))
            return stop;
        memmove(r->held, r->held + 1, (size_t)--r->n_held);
    }
    return 0;
}

/* Bytes of s[0..n) that no mark begins with. */
static size_t plain(const struct chat_reader *r, const char *s, size_t n)
{
    for (int i = 0; i < PAIRS; i++) {
        const char *mark = spelled(r, i), *at = mark ? memchr(s, mark[0], n) : NULL;
        n = at ? (size_t)(at - s) : n;
    }
    return n;
}

int chat_reader_end(struct chat_reader *r, chat_sink *sink, void *ctx)
{
    int n = r->n_held;
    r->n_held = 0;
    return n ? emit(r, r->held, (size_t)n, sink, ctx) : 0;
}

int chat_reader_token(struct chat_reader *r, int32_t id, chat_sink *sink, void *ctx)
{
    size_t n, len;
    const char *s = tokenizer_piece(r->tokenizer, id, &n), *text = tokenizer_text(r->tokenizer, id, &len);
    int stop = 0, mark = begun(&(struct chat_reader){ .channels = r->channels }, text, len);
    if (mark || n == 0) {
        if ((stop = chat_reader_end(r, sink, ctx)))
            return stop;
        begun(r, text, len);
        return sink(ctx, CHAT_SILENT, text, len);
    }
    for (size_t i = 0; i < n && r->part == CHAT_HEADER && r->n_header < (int)sizeof r->header; i++)
        r->header[r->n_header++] = s[i];
    if (r->part == CHAT_HEADER)
        return sink(ctx, CHAT_HEADER, s, n);
    while (n > 0 && !stop) {
        size_t k = r->n_held ? 0 : plain(r, s, n);
        if (k) {
            stop = emit(r, s, k, sink, ctx);
        } else {
            r->held[r->n_held++] = *s;
            k = 1;
            stop = decide(r, sink, ctx);
        }
        s += k;
        n -= k;
    }
    return stop;
}

const char *chat_reader_mark(struct chat_reader *r, enum chat_part part)
{
    enum chat_part before = r->shown;
    r->shown = part;
    return part == before ? "" : part == CHAT_THOUGHT ? "<think>\n" : "\n</think>\n\n";
}
