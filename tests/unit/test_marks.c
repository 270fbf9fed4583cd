/* Marks of chats that a file types as text: they count as control tokens, whatever the kind of the vocabulary; text that looks like
 * one does not. What ends a generation; stop strings that name a control token. */
#include "common/model/tokenizer.h"
#include "runtime/output.h"
#include "tests/test.h"
#include "tests/tiny_gguf.h"
#include "tests/tokenizer_sample.h"

#include <string.h>

static struct err e;

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"

/* Of the families' published vocabularies. ends: 1 a generation ends with it. */
static const struct {
    const char *text;
    int ends;
} marks[] = {
    { "<unk>", 0 }, { "<s>", 0 }, { "</s>", 1 }, /* where vocabularies begin with them */
    { "<|im_start|>", 0 }, { "<|im_end|>", 1 }, { "<|im_sep|>", 0 }, { "<|eot_id|>", 1 }, { "<|start_header_id|>", 0 },
    { "<|end_header_id|>", 0 }, { "<|eom_id|>", 1 }, { "<|begin_of_text|>", 0 }, { "<|end_of_text|>", 1 }, { "<|python_tag|>", 0 },
    { "<start_of_turn>", 0 }, { "<end_of_turn>", 1 }, { "<bos>", 0 }, { "<eos>", 1 }, { "<|turn>", 0 }, { "<turn|>", 1 },
    { "<|channel>", 0 }, { "<channel|>", 0 }, { "<|end|>", 1 }, { "<|user|>", 0 }, { "<|assistant|>", 0 }, { "<|system|>", 0 },
    { "<|observation|>", 0 }, { "<" BAR "begin" LOW "of" LOW "sentence" BAR ">", 0 }, { "<" BAR "User" BAR ">", 0 },
    { "<" BAR "Assistant" BAR ">", 0 }, { "<" BAR "end" LOW "of" LOW "sentence" BAR ">", 1 }, { "[INST]", 0 }, { "[/INST]", 0 },
    { "<|start|>", 0 }, { "<|message|>", 0 }, { "<|channel|>", 0 }, { "<|constrain|>", 0 }, { "<|end_of_turn|>", 1 },
    { "<|endoftext|>", 1 }, { "<|EOT|>", 1 }, { "<|eot|>", 1 }, { "<|eom|>", 1 }, { "<|END_OF_TURN_TOKEN|>", 1 },
    { "<|START_OF_TURN_TOKEN|>", 0 }, { "<|CHATBOT_TOKEN|>", 0 }, { "[gMASK]", 0 }, { "<sop>", 0 }, { "[EOS]", 1 }, { "[EOT]", 1 },
    { "[|endofturn|]", 1 }, { "<|role_end|>", 1 }, { "<|return|>", 1 }, { "<|file_sep|>", 1 }, { "<|fim_pad|>", 1 },
    { "<|fim_prefix|>", 0 }, { "<seed:eos>", 1 }, { "<end_of_utterance>", 1 }, { "<|end_of_msg|>", 1 }, { "<|plamo:eos|>", 1 },
    { "<|fim_repo|>", 1 }, { "<fim-pad>", 1 }, { "<fim_pad>", 1 }, { "<PAD>", 1 }, { "[PAD]", 1 }, { "<fim-repo>", 1 }, { "<REPO>", 1 },
    { "<reponame>", 1 },
};
enum { MARKS = sizeof marks / sizeof marks[0], BYTES = MARKS, MORE = BYTES + 256, MOST = MORE + 16 };

struct vocabulary {
    const char *model, *tokens[MOST];
    int32_t types[MOST];
    int n, no_types;
    const char *merges[8];
    int n_merges;
    struct tiny_edit edits[4];
};

static void printable(int b, char *out)
{
    int c = b;
    if (!((b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae)) {
        c = 256;
        for (int k = 0; k < b; k++)
            c += !((k >= '!' && k <= '~') || (k >= 0xa1 && k <= 0xac) || k >= 0xae);
    }
    snprintf(out, 4, c < 0x80 ? "%c" : "%c%c", c < 0x80 ? c : 0xc0 | c >> 6, 0x80 | (c & 0x3f));
}

/* Marks, all typed as `type`, then bytes. */
static void fill(struct vocabulary *v, const char *model, int type)
{
    static char bytes[256][8];
    int spm = strcmp(model, "gpt2") != 0;
    *v = (struct vocabulary){ .model = model, .n = MORE };
    for (int i = 0; i < MARKS; i++) {
        v->tokens[i] = marks[i].text;
        v->types[i] = type;
    }
    for (int i = 0; i < 256; i++) {
        if (spm)
            snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)i);
        else
            printable(i, bytes[i]);
        v->tokens[BYTES + i] = bytes[i];
        v->types[BYTES + i] = spm ? 6 : 1;
    }
    if (!spm) {
        v->merges[v->n_merges++] = "a b";
        v->types[v->n] = 1;
        v->tokens[v->n++] = "ab";
    }
}

static struct tokenizer *made(const struct vocabulary *v)
{
    static const float scores[MOST];
    struct gguf_writer *w;
    int code;
    int bpe = !strcmp(v->model, "gpt2");
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", v->model, &e), &e);
    if (bpe)
        tiny_check(gguf_writer_str(w, "tokenizer.ggml.pre", "qwen2", &e), &e);
    else
        tiny_check(gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", 0, &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", v->tokens, v->n);
    if (!v->no_types)
        tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, v->types, v->n);
    if (bpe)
        tiny_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    else
        tiny_array32(w, "tokenizer.ggml.scores", GGUF_F32, scores, v->n);
    for (const struct tiny_edit *ed = v->edits; ed->key; ed++)
        tiny_edited(w, ed, ed->key);
    struct tokenizer *t = sample_tokenizer(w, "marks", &code, &e);
    if (!t)
        printf("Bail out! %s\n", e.msg);
    return t;
}

/* Is a token a control one: found in a chat, not in a text, with nothing to print? */
static int control(const struct tokenizer *t, int32_t id)
{
    size_t len, piece;
    const char *s = tokenizer_text(t, id, &len);
    int32_t *ids;
    int n, plain;
    tokenizer_piece(t, id, &piece);
    tiny_check(tokenizer_encode(t, s, len, 0, 0, &ids, &n, &e), &e);
    plain = n == 1;
    free(ids);
    return !plain && piece == 0 && sample_ids(t, s, len, 0, 1, &id, 1, &e);
}

static void typed_as(const char *model, int type, int no_types)
{
    struct vocabulary v;
    char names[256];
    fill(&v, model, type);
    v.no_types = no_types;
    struct tokenizer *t = made(&v);
    for (int i = 0; i < MARKS; i++)
        CHECK_MSG(control(t, i) && tokenizer_is_eog(t, i) == marks[i].ends, "%s, type %d: '%s'", model, type, marks[i].text);
    for (int i = BYTES; i < v.n; i++)
        CHECK_MSG(!tokenizer_is_eog(t, i), "%s: token %d ends", model, i);
    int n = tokenizer_retyped(t, names, sizeof names);
    if (type == 3)
        CHECK(n == 0 && !*names);
    else
        CHECK_MSG(n == MARKS && !strcmp(names, "<unk>, <s>, </s>, <|im_start|> ..."), "%d: %s", n, names);
    CHECK(tokenizer_retyped(t, names, 9) == n && strlen(names) == (n ? 8 : 0));
    tokenizer_close(t);
}

/* What is text stays text. */
static void text_stays(void)
{
    static const char *const texts[] = { "<|>", "<||>", "<| |>", "<|a", "a|>", "<a>", "[a]", "<think>", "<|a|b|>", "<table>", "<|a\n|>",
                                         "<" BAR BAR ">" };
    struct vocabulary v;
    fill(&v, "gpt2", 1);
    v.tokens[v.n] = "</", v.types[v.n++] = 1; /* </s> of HTML: a merge makes it */
    v.tokens[v.n] = "s>", v.types[v.n++] = 1;
    v.merges[v.n_merges++] = "< /", v.merges[v.n_merges++] = "s >", v.merges[v.n_merges++] = "</ s>";
    v.edits[0] = (struct tiny_edit){ "tokenizer.ggml.padding_token_id", 'u', BYTES + '!', NULL };
    v.edits[1] = (struct tiny_edit){ "tokenizer.ggml.eot_token_id", 'u', BYTES + '\n', NULL };
    v.edits[2] = (struct tiny_edit){ "tokenizer.ggml.seperator_token_id", 'u', 1 << 30, NULL }; /* none: no matter */
    struct tokenizer *t = made(&v);
    int32_t html = 2;
    CHECK(!tokenizer_is_eog(t, html) && !control(t, html));
    CHECK(!control(t, BYTES + '!') && !control(t, BYTES + '\n') && tokenizer_is_eog(t, BYTES + '\n'));
    tokenizer_close(t);

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fill(&v, "llama", 1);
        int32_t id = v.n;
        v.tokens[v.n] = texts[i], v.types[v.n++] = 1;
        v.tokens[v.n] = "<s>", v.types[v.n++] = 1; /* Gemma's: HTML, for it is not at the beginning */
        v.tokens[1] = "<|x|>";
        t = made(&v);
        CHECK_MSG(!control(t, id) && !control(t, id + 1), "'%s'", texts[i]);
        tokenizer_close(t);
    }
}

/* A key's token is a control one if it is in brackets; a merge with a control token in it makes nothing. */
static void keyed(void)
{
    struct vocabulary v;
    fill(&v, "gpt2", 1);
    int32_t pad = v.n;
    v.tokens[v.n] = "<my:pad>", v.types[v.n++] = 1;
    v.tokens[v.n] = "<|", v.types[v.n++] = 1;
    v.tokens[v.n] = "x|>", v.types[v.n++] = 1;
    int32_t framed = v.n;
    v.tokens[v.n] = "<|x|>", v.types[v.n++] = 1;
    v.merges[v.n_merges++] = "< |", v.merges[v.n_merges++] = "<| x|>";
    struct tokenizer *t = made(&v);
    CHECK(!control(t, pad) && control(t, framed));
    tokenizer_close(t);
    v.edits[0] = (struct tiny_edit){ "tokenizer.ggml.padding_token_id", 'u', pad, NULL };
    t = made(&v);
    CHECK(control(t, pad) && control(t, framed) && !tokenizer_is_eog(t, pad));
    tokenizer_close(t);
#define ID(name) "tokenizer.ggml." name "_token_id"
    static const char *const ends[] = { ID("eos"), ID("eot"), ID("eom"), ID("fim_pad"), ID("fim_rep"), ID("fim_sep") };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        v.edits[0] = (struct tiny_edit){ ends[i], 'u', pad, NULL };
        t = made(&v);
        CHECK_MSG(control(t, pad) && tokenizer_is_eog(t, pad), "%s", ends[i]);
        tokenizer_close(t);
    }
    /* U+FF5C as a vocabulary of bytes spells it */
    v.tokens[pad] = "<\xc3\xaf\xc2\xbd\xc4\xbe" "a\xc3\xaf\xc2\xbd\xc4\xbe>";
    t = made(&v);
    CHECK(control(t, pad) && sample_ids(t, "<" BAR "a" BAR ">", 9, 0, 1, &pad, 1, &e));
    tokenizer_close(t);
}

/* ---- stop strings ---- */

struct shown {
    char text[256];
    size_t n;
    const struct output *parts; /* or NULL; else "A:" and "T:" before what each part begins with */
    int part;
};

static void sink(void *ctx, const char *text, size_t len)
{
    struct shown *to = ctx;
    if (to->parts && to->part != (int)to->parts->now) {
        to->part = (int)to->parts->now;
        memcpy(to->text + to->n, to->part == CHAT_ANSWER ? "A:" : "T:", 2);
        to->n += 2;
    }
    memcpy(to->text + to->n, text, len);
    to->n += len;
}

/* Does this come out of tokens until a stop string ends it, or "..." behind it where none does? chat 2: by parts. */
static int shows(const struct tokenizer *t, const char *want, int chat, int hide, const char *stop, const char *text)
{
    struct shown to = { .parts = NULL, .part = -1 };
    struct output o;
    int32_t *ids;
    int n, stopped = 0;
    tiny_check(output_init(&o, &stop, 1, sink, &to, &e), &e);
    o.parts = chat == 2;
    to.parts = chat == 2 ? &o : NULL;
    output_begin(&o, t, chat > 0, 0, hide);
    tiny_check(tokenizer_encode(t, text, strlen(text), 0, 1, &ids, &n, &e), &e);
    for (int i = 0; i < n && !stopped; i++)
        stopped = output_token(&o, ids[i]);
    output_end(&o);
    output_done(&o);
    free(ids);
    to.parts = NULL;
    if (!stopped)
        sink(&to, "...", 3);
    int same = to.n == strlen(want) && !memcmp(to.text, want, to.n);
    if (!same)
        printf("# '%.*s' instead of '%s'\n", (int)to.n, to.text, want);
    return same;
}
#define SHOWS(want, ...) CHECK(shows(t, want, __VA_ARGS__))

static void stops(void)
{
    struct vocabulary v;
    fill(&v, "llama", 3);
    for (int i = 0; i < MARKS; i++) /* with channels text begins with the name of one */
        if (!strcmp(marks[i].text, "<|channel|>"))
            v.tokens[i] = "<|other|>";
    struct tokenizer *t = made(&v);
    for (int chat = 0; chat < 2; chat++) {
        SHOWS("one", chat, 0, "<|end_of_turn|>", "one<|end_of_turn|>two");
        SHOWS("onetwo...", chat, 0, "<|im_start|>", "one<|end_of_turn|>two");
        SHOWS("on", chat, 0, "e<|im_start|>t", "one<|im_start|>two");
        SHOWS("oneuse", chat, 0, "<|im_start|>user", "one<|im_start|>use<|im_start|>user");
        SHOWS("oneuse...", chat, 0, "<|im_start|>user", "one<|im_start|>use"); /* held, then printed without the mark */
        SHOWS("", chat, 0, "|><|", "<|im_start|><|im_end|>x");
        SHOWS("one", chat, 0, "two", "one<|im_end|>two");
    }
    SHOWS("", 1, 1, "</think>", "<think>why</think>so");
    SHOWS("so...", 1, 1, "x", "<think>why</think>so");
    SHOWS("<think>\nwhy\n</think>\n\nso...", 1, 0, "x", "<think>why</think>so");
    SHOWS("<think>\nwhy\n</think>\n\nso</thi...", 1, 0, "x", "<|channel>why<channel|>so</thi");
    SHOWS("<think>\nwhy</thi...", 1, 0, "x", "<think>why</thi");
    SHOWS("A:one", 2, 0, "<|end_of_turn|>", "one<|end_of_turn|>two");
    SHOWS("T:whyA:so...", 2, 0, "x", "<think>why</think>so");
    SHOWS("T:why", 2, 0, "</think>", "<think>why</think>so");
    SHOWS("T:whyA:so...", 2, 0, "ys", "<think>why</think>so"); /* held as long as the thought goes on */
    SHOWS("T:whA:s", 2, 0, "o", "<think>wh</think>so");
    SHOWS("T:wh", 2, 0, "y", "<think>why</think>so");
    SHOWS("T:why</thi...", 2, 0, "x", "<think>why</thi");
    SHOWS("A:so...", 2, 1, "x", "<think>why</think>so");
    tokenizer_close(t);
}

int main(void)
{
    for (int type = 1; type <= 5; type += 2) { /* text, control, unused */
        typed_as("llama", type, 0);
        typed_as("gpt2", type, 0);
    }
    typed_as("gpt2", 1, 1); /* a file without types */
    text_stays();
    keyed();
    stops();
    return test_done();
}
