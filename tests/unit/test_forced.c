/* Calls that are forced: texts drawn at random by the grammar of each form, marks as control tokens and as text, are one call each, of a
 * tool that may be called, with arguments that its schema accepts; what cannot be forced is refused by name. */
#include "runtime/forced.h"
#include "runtime/mask/mask.h"
#include "runtime/mask/schema.h"
#include "runtime/mask/states.h"
#include "runtime/chat/reader.h"
#include "runtime/schemas.h"
#include "tests/test.h"
#include "tests/tokenizer_sample.h"

#include <string.h>

static struct err e;

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"

/* Tokens behind the 256 bytes: marks, and text that has several bytes. */
static const char *const marks[] = {
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|tool_call|>", "<|/tool_call|>", "<arg_key>", "</arg_key>",
    "<arg_value>", "</arg_value>", "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>",
    "<" BAR "tool" LOW "calls" LOW "begin" BAR ">", "<" BAR "tool" LOW "calls" LOW "end" BAR ">",
    "<" BAR "tool" LOW "call" LOW "begin" BAR ">",
    "<" BAR "tool" LOW "call" LOW "end" BAR ">", "<" BAR "tool" LOW "sep" BAR ">",
};
static const char *const texts[] = { "</parameter>", "</param", "<</", "{\"name\": \"", "\": ", "true", "\xc3\xa9",
                                     "\xe4\xbd", "f\"", "assistant" };
enum { MARKS = sizeof marks / sizeof marks[0], TEXTS = sizeof texts / sizeof texts[0], VOCAB = 256 + MARKS + TEXTS };

static char bytes[256];
static int controls; /* marks are control tokens */

static const char *piece(const void *ctx, int32_t id, size_t *n, int *control)
{
    (void)ctx;
    *control = controls && id >= 256 && id < 256 + MARKS;
    *n = id < 256 ? 1 : strlen(id < 256 + MARKS ? marks[id - 256] : texts[id - 256 - MARKS]);
    return id < 256 ? &bytes[id] : id < 256 + MARKS ? marks[id - 256] : texts[id - 256 - MARKS];
}

static int is_control(const void *ctx, const char *name)
{
    (void)ctx;
    for (int i = 0; controls && i < MARKS; i++)
        if (!strcmp(marks[i], name))
            return 1;
    return 0;
}

static uint64_t random_state = 1;
static unsigned draw(unsigned n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

static struct js *parse(const char *text)
{
    struct js *j = js_parse(text, strlen(text), "tools", &e);
    if (!j) {
        printf("# %s: %s\n", text, e.msg);
        abort();
    }
    return j;
}

static int is_allowed(const uint64_t *bits, int id)
{
    return (int)(bits[id / 64] >> id % 64 & 1);
}

/* One that closes, in time. */
static int closing(enum calls_form form, const uint64_t *bits, const int *allowed, int n)
{
    const char *close = form == CALLS_XML ? "</parameter>" : form == CALLS_GLM ? "</arg_value>" : "<|end|>";
    const char *const in_text[] = { form == CALLS_HARMONY && !controls ? "\"" : close, "\"", NULL };
    static const char *const between[] = { "}", "]", "\"", "0", NULL };
    for (const char *const *want = is_allowed(bits, '!') ? in_text : between; *want; want++)
        for (int i = 0; i < n; i++) {
            size_t len;
            int control;
            const char *s = piece(NULL, allowed[i], &len, &control);
            if (len == strlen(*want) && !memcmp(s, *want, len))
                return allowed[i];
        }
    return allowed[draw((unsigned)n)];
}

struct seen {
    int calls, text;       /* of text what is neither white space nor thought nor header */
    char name[64], args[1 << 16];
};

static int look(void *ctx, const struct calls_out *o)
{
    struct seen *s = ctx;
    if (o->name) {
        s->calls++;
        snprintf(s->name, sizeof s->name, "%s", o->name);
        snprintf(s->args, sizeof s->args, "%.*s", (int)o->n, o->text);
    }
    for (size_t i = 0; !o->name && o->part == CHAT_ANSWER && i < o->n; i++)
        s->text += o->text[i] != '\n';
    return 0;
}

/* As chat/reader.h gives it to calls. */
static void give(struct calls *c, enum calls_form form, int id, enum chat_part *part, struct seen *s)
{
    size_t n;
    int control;
    const char *t = piece(NULL, id, &n, &control);
    if (control && form == CALLS_HARMONY)
        *part = !strcmp(t, "<|message|>") ? CHAT_THOUGHT : strcmp(t, "<|constrain|>") && strcmp(t, "<|call|>") ? CHAT_HEADER : *part;
    calls_put(c, *part, control, t, n, look, s);
}

static int is_of(const struct grammar *g, const char *text)
{
    struct states *s = states_new(g, 1 << 20);
    int at = states_first(s), *keep[] = { &at };
    for (const char *c = text; *c && at > 0; c++) {
        int next = states_next(s, at, g->class[(unsigned char)*c]);
        if (next == STATES_FULL) {
            CHECK(states_forget(s, keep, 1) == 0);
            next = states_next(s, at, g->class[(unsigned char)*c]);
        }
        at = next;
    }
    int r = at > 0 && states_may_end(s, at);
    states_free(s);
    return r;
}

static int accepts(const struct js *schema, const char *text)
{
    struct grammar *g;
    if (schema_grammar(schema, &g, &e) < 0)
        return 0;
    int r = is_of(g, text);
    grammar_free(g);
    return r;
}

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"text\":{\"type\":\"string\",\"description\":\"any\"},\"n\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120},"
    "\"how\":{\"enum\":[\"a\",\"1\",\"<b>\"]},\"on\":{\"type\":\"boolean\"},\"x\":{\"type\":\"number\"}},"
    "\"required\":[\"text\",\"how\"],\"additionalProperties\":false}}},"
    "{\"name\":\"get_time\",\"parameters\":{\"type\":\"object\",\"properties\":{}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"f.2-x\",\"parameters\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":"
    "\"string\"}}}}}]";

static const struct js *schema_of(const struct js *tools, const char *name)
{
    for (size_t i = 0; i < js_len(tools); i++) {
        const struct js *f = js_get(js_at(tools, i), "function");
        f = f ? f : js_at(tools, i);
        if (!strcmp(js_str(js_get(f, "name")), name))
            return js_get(f, "parameters");
    }
    return NULL;
}

static void test_form(enum calls_form form, int variant, const char *only)
{
    struct js *tools = parse(tools_text), *none = parse("{\"type\":\"object\",\"additionalProperties\":false}");
    const struct forced f = { .form = form, .variant = variant, .tools = tools, .name = only, .is_control = is_control };
    struct mask_words *w;
    struct mask *m;
    struct grammar *g;
    static uint64_t bits[(VOCAB + 63) / 64];
    int whole = 0, names = 0, ok = 1;
    CHECK(mask_words_new(piece, NULL, VOCAB, &w, &e) == 0);
    if (forced_grammar(&f, &g, &e) < 0) {
        CHECK_MSG(0, "%s %d: %s", calls_form_names[form], variant, e.msg);
        return;
    }
    CHECK(mask_of(g, w, &m, &e) == 0);
    for (int text = 0; text < TEST_CASES(60) && ok; text++) {
        struct mask_text t = { 0 };
        struct calls *c;
        static struct seen s;
        s = (struct seen){ 0 };
        enum chat_part part = form == CALLS_HARMONY ? CHAT_HEADER : CHAT_ANSWER;
        int may_end = 0, n = 1, allowed[VOCAB];
        char all[16384] = "";
        CHECK(calls_new(form, tools, 1 << 16, 1, &c, &e) == 0);
        CHECK(mask_begin(m, &t, &e) == 0);
        for (int step = 0; step < 2000 && ok; step++) {
            if ((n = mask_allowed(&t, bits, &may_end, &e)) <= 0 || (may_end && draw(2)))
                break;
            n = 0;
            for (int id = 0; id < VOCAB; id++)
                if (is_allowed(bits, id))
                    allowed[n++] = id;
            size_t len;
            int control, id = draw(100) < (step > 150 ? 90u : 12u) ? closing(form, bits, allowed, n) : allowed[draw((unsigned)n)];
            const char *p = piece(NULL, id, &len, &control);
            snprintf(all + strlen(all), sizeof all - strlen(all), "%.*s", (int)len, p);
            ok = mask_accept(&t, id, &e) == 1;
            give(c, form, id, &part, &s);
        }
        ok = ok && n >= 0;
        if (may_end && ok) {
            calls_end(c, look, &s);
            const struct js *schema = schema_of(tools, s.name);
            ok = s.calls == 1 && s.text == 0 && (!only || !strcmp(s.name, only)) &&
                 accepts(!strcmp(s.name, "get_time") ? none : schema, s.args);
            names |= !strcmp(s.name, "f") ? 1 : !strcmp(s.name, "get_time") ? 2 : 4;
            whole++;
        }
        CHECK_MSG(ok, "%s %d, controls %d: %d calls, %d bytes of text, %s(%s) of '%s'", calls_form_names[form], variant, controls, s.calls,
                  s.text, s.name, s.args, all);
        mask_end(&t);
        calls_free(c);
    }
    CHECK_MSG(!ok || (whole > TEST_CASES(60) / 2 && (only || TEST_CASES(60) < 30 || names == 7)), "%s %d: %d whole, names %d",
              calls_form_names[form], variant, whole, names);
    mask_free(m);
    mask_words_free(w);
    js_free(tools);
    js_free(none);
}

static const struct {
    enum calls_form form;
    int variant;
} forms[] = {
    { CALLS_HERMES, 0 }, { CALLS_LLAMA, 0 }, { CALLS_MISTRAL, 0 }, { CALLS_MISTRAL, 1 }, { CALLS_DEEPSEEK, 0 }, { CALLS_DEEPSEEK, 1 },
    { CALLS_LIST, 0 }, { CALLS_LIST, 1 }, { CALLS_HARMONY, 0 }, { CALLS_XML, 0 }, { CALLS_GLM, 0 },
};

static void test_forms(void)
{
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (controls = forms[i].form == CALLS_HARMONY; controls < 2; controls++) { /* the reader knows channels by their tokens alone */
            test_form(forms[i].form, forms[i].variant, NULL);
            test_form(forms[i].form, forms[i].variant, "f");
        }
    controls = 0;
}

#define TOOL(name, rest) "[{\"type\":\"function\",\"function\":{\"name\":\"" name "\"" rest "}}]"
#define PARAMETERS(of) ",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":" of "}}"

static void test_refused(void)
{
    static const struct {
        enum calls_form form;
        const char *tools, *name;
        int code;
        const char *says;
    } cases[] = {
        { CALLS_NONE, TOOL("f", ""), NULL, ERR_UNSUPPORTED, "not known" },
        { CALLS_HERMES, "[]", NULL, ERR_FORMAT, "no \"tools\"" },
        { CALLS_HERMES, TOOL("f", ""), "g", ERR_FORMAT, "has no \"g\"" },
        { CALLS_HERMES, TOOL("f g", ""), NULL, ERR_UNSUPPORTED, "\"tools\": \"f g\": a tool that is forced" },
        { CALLS_HERMES, TOOL("f", ",\"strict\":true" PARAMETERS("{\"not\":{}}")), NULL, ERR_UNSUPPORTED,
          "\"tools\": \"f\": schema: not supported: \"not\"" },
        { CALLS_HERMES, TOOL("f", PARAMETERS("{\"not\":{}}")), NULL, 0, "" }, /* any object */
        { CALLS_HERMES, TOOL("f", PARAMETERS("{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}")), NULL, ERR_FORMAT, "no integer" },
        { CALLS_HERMES, TOOL("f", ",\"parameters\":{\"type\":\"array\"}"), NULL, ERR_FORMAT, "\"type\"" },
        { CALLS_HERMES, TOOL("f", ",\"parameters\":3"), NULL, ERR_FORMAT, "\"parameters\" is not an object" },
        { CALLS_HERMES, TOOL("f", ",\"parameters\":null"), NULL, 0, "" },
        { CALLS_XML, TOOL("f", PARAMETERS("{\"type\":\"array\"}")), NULL, ERR_UNSUPPORTED,
          "\"a\" is none of them; in this model's form of calls, xml" },
        { CALLS_XML, TOOL("f", PARAMETERS("{\"type\":[\"string\",\"null\"]}")), NULL, ERR_UNSUPPORTED, "\"a\"" },
        { CALLS_XML, TOOL("f", PARAMETERS("{\"type\":\"string\",\"maxLength\":3}")), NULL, ERR_UNSUPPORTED, "more is said" },
        { CALLS_XML, TOOL("f", PARAMETERS("{\"enum\":[\"</parameter>\"]}")), NULL, ERR_UNSUPPORTED, "cannot be written" },
        { CALLS_GLM, TOOL("f", PARAMETERS("{\"enum\":[\"</parameter>\"]}")), NULL, 0, "" },
        { CALLS_GLM, TOOL("f", ",\"parameters\":{\"properties\":{\"a b\":{\"type\":\"string\"}}}"), NULL, ERR_UNSUPPORTED,
          "\"a b\" is a name" },
        { CALLS_GLM, TOOL("f", ",\"parameters\":{\"anyOf\":[]}"), NULL, ERR_UNSUPPORTED, "\"anyOf\" stands" },
        { CALLS_GLM, TOOL("f", ",\"parameters\":{\"required\":[\"z\"]}"), NULL, ERR_UNSUPPORTED, "names a parameter" },
        { CALLS_GLM, TOOL("f", PARAMETERS("{\"type\":\"integer\",\"multipleOf\":2}")), NULL, ERR_UNSUPPORTED, "multipleOf" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct js *tools = parse(cases[i].tools);
        struct grammar *g;
        e = (struct err){ 0 };
        int r = forced_grammar(&(struct forced){ .form = cases[i].form, .tools = tools, .name = cases[i].name }, &g, &e);
        CHECK_MSG(r == cases[i].code && strstr(e.msg, cases[i].says), "%zu: %d '%s'", i, r, e.msg);
        if (r == 0)
            grammar_free(g);
        js_free(tools);
    }
    static char many[FORCED_TOOLS * 40 + 100] = "[";
    for (int i = 0; i <= FORCED_TOOLS; i++)
        snprintf(many + strlen(many), 40, "%s{\"name\":\"f%d\"}", i ? "," : "", i);
    struct js *tools = parse(strcat(many, "]"));
    struct grammar *g;
    CHECK(forced_grammar(&(struct forced){ .form = CALLS_HERMES, .tools = tools }, &g, &e) == ERR_LIMIT && strstr(e.msg, "at most 128"));
    js_free(tools);
}

/* Each of as many tools as there may be can be called. */
static void test_many(void)
{
    static char many[FORCED_TOOLS * 40 + 100] = "[", text[100];
    for (int i = 0; i < FORCED_TOOLS; i++)
        snprintf(many + strlen(many), 40, "%s{\"name\":\"f%d\"}", i ? "," : "", i);
    struct js *tools = parse(strcat(many, "]"));
    struct grammar *g = NULL;
    CHECK(forced_grammar(&(struct forced){ .form = CALLS_HERMES, .tools = tools }, &g, &e) == 0);
    for (int i = 0; i < FORCED_TOOLS; i++) {
        snprintf(text, sizeof text, "<tool_call>\n{\"name\": \"f%d\", \"arguments\": {}}\n</tool_call>", i);
        CHECK_MSG(is_of(g, text), "%s", text);
    }
    grammar_free(g);
    js_free(tools);
}

/* ---- a vocabulary of a file, the reader of its answers, masks that requests share ---- */

static const char *const more[] = { "<unk>", "</s>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "<|call|>",
                                    "<|return|>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]" };
enum { EOS = 257, END = 261, CONSTRAIN = 262, TOOL_CALL = 265, TOOL_CALLS = 267, N = 256 + sizeof more / sizeof more[0] };

/* tool_calls: the type of <tool_call> and the next: 3 control, 4 user-defined. channels: answers have them. */
static struct tokenizer *vocabulary(int tool_calls, int channels)
{
    static char names[256][8];
    static const char *tokens[N];
    static int32_t types[N];
    static float scores[N];
    struct gguf_writer *w;
    int code;
    for (int i = 0; i < N; i++) {
        if (i < 256)
            snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        tokens[i] = i < 256 ? names[i] : i == EOS + 1 && !channels ? "<|other|>" : more[i - 256];
        types[i] = i < 256 ? 6 : i == 256 ? 2 : i == TOOL_CALL || i == TOOL_CALL + 1 ? tool_calls : 3;
    }
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", "llama", &e), &e);
    tiny_check(gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", EOS, &e), &e);
    tiny_check(gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 256, &e), &e);
    tiny_check(gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", 0, &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", tokens, N);
    tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, N);
    tiny_array32(w, "tokenizer.ggml.scores", GGUF_F32, scores, N);
    return sample_tokenizer(w, "forced", &code, &e);
}

struct answer {
    struct chat_reader reader;
    struct calls *calls;
    struct seen seen;
};

static int take_part(void *ctx, enum chat_part part, const char *text, size_t n)
{
    struct answer *a = ctx;
    return calls_put(a->calls, part == CHAT_SILENT ? a->reader.part : part, part == CHAT_SILENT, text, n, look, &a->seen);
}

static void test_tokens(enum calls_form form, int type)
{
    struct tokenizer *t = vocabulary(type, form == CALLS_HARMONY);
    struct js *tools = parse(tools_text);
    const struct forced f = { .form = form, .tools = tools, .name = "f" };
    static struct answer a;
    struct schemas *s;
    int32_t eog[N], n_eog = 0;
    int thoughts = 0, marked = 0, whole = 0;
    for (int32_t id = 0; id < N; id++)
        if (tokenizer_is_eog(t, id))
            eog[n_eog++] = id;
    CHECK(n_eog > 0 && schemas_new(t, N, eog, n_eog, 1, &s, &e) == 0);
    for (int i = 0; i < TEST_CASES(40); i++) {
        struct schemas_text text = { 0 };
        const uint64_t *bits;
        int ended = 0, last = -1;
        a = (struct answer){ 0 };
        e = (struct err){ 0 };
        chat_reader_init(&a.reader, t, 0);
        CHECK(calls_new(form, tools, 1 << 16, 1, &a.calls, &e) == 0);
        CHECK(schemas_take_call(s, &f, &text, &e) == 0); /* of one place: the same each time */
        for (int step = 0; step < 3000 && !ended && (bits = schemas_allowed(&text, 1, -1, &e)); step++) {
            int32_t allowed[N], n = 0;
            for (int32_t id = 0; id < N; id++)
                if (is_allowed(bits, id))
                    allowed[n++] = id;
            int id = allowed[draw((unsigned)n)];
            if (draw(100) < (step > 150 ? 90u : 12u))
                id = is_allowed(bits, END) ? END : is_allowed(bits, '"') ? '"' : is_allowed(bits, '}') ? '}' : id;
            last = id;
            ended = tokenizer_is_eog(t, id);
            if (!ended)
                chat_reader_token(&a.reader, id, take_part, &a);
            thoughts += id == END;
            marked += id == TOOL_CALL || id == TOOL_CALLS || id == CONSTRAIN;
            CHECK(ended || schemas_accept(&text, id, &e) == 0);
        }
        CHECK_MSG(e.code == 0, "%s", e.msg);
        calls_end(a.calls, look, &a.seen);
        if (ended) {
            whole++;
            CHECK_MSG(a.seen.calls == 1 && a.seen.text == 0 && accepts(schema_of(tools, "f"), a.seen.args),
                      "%s %d, ended by %d: %d calls, %d, %s", calls_form_names[form], type, last, a.seen.calls, a.seen.text, a.seen.args);
        }
        calls_free(a.calls);
        schemas_give(&text);
    }
    CHECK_MSG(whole > TEST_CASES(40) / 2 && (type == 4 || marked >= whole) && (form != CALLS_HARMONY || thoughts > 0),
              "%s %d: %d whole, %d marked, %d thoughts", calls_form_names[form], type, whole, marked, thoughts);
    schemas_free(s);
    tokenizer_close(t);
    js_free(tools);
}

int main(void)
{
    test_forms();
    test_tokens(CALLS_HERMES, 3);
    test_tokens(CALLS_HERMES, 4);
    test_tokens(CALLS_MISTRAL, 3);
    test_tokens(CALLS_HARMONY, 3);
    test_refused();
    test_many();
    return test_done();
}
