/* Conversations: what tokens they become, which part of an answer is thought, files. */
#include "runtime/chat/chat.h"
#include "runtime/chat/reader.h"
#include "common/base/file.h"
#include "common/plan/room.h"
#include "tests/test.h"
#include "tests/tiny_gguf.h"

#include <stdlib.h>
#include <string.h>

static struct messages *list(struct chat *c)
{
    return chat_messages(c);
}

static struct err e;

/* Bytes, then these. */
static const char *const more[] = { "<unk>", "<s>", "</s>", "<think>", "</think>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>",
                                    "<|return|>", "<|call|>", "<|channel>", "<channel|>", "<|user|>" };
enum { UNK = 256, BOS, EOS, THINK, THOUGHT, CHANNEL, MESSAGE, START, END, RETURN, CALL, GEMMA, GEMMA_END, USER, N };

static uint8_t *blob; /* the latest vocabulary reads it */

/* A SentencePiece vocabulary of bytes and of the first `n - 256` of those. */
static struct gguf *vocabulary(int n, const char *template, const char *name)
{
    static char texts[N][8];
    static const char *tokens[N];
    static int32_t types[N];
    static float scores[N];
    struct gguf_writer *w;
    struct gguf *g;
    size_t len;
    free(blob);
    for (int i = 0; i < n; i++) {
        snprintf(texts[i], sizeof texts[i], "<0x%02X>", (unsigned)i & 255);
        tokens[i] = i < 256 ? texts[i] : more[i - 256];
        types[i] = i < 256 ? 6 : i == UNK ? 2 : i == THINK || i == THOUGHT ? 4 : 3;
    }
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", "llama", &e), &e);
    if (name)
        tiny_check(gguf_writer_str(w, "general.name", name, &e), &e);
    if (template)
        tiny_check(gguf_writer_str(w, "tokenizer.chat_template", template, &e), &e);
    tiny_check(gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", BOS, &e), &e);
    tiny_check(gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", EOS, &e), &e);
    tiny_check(gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", UNK, &e), &e);
    tiny_check(gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", 0, &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", tokens, n);
    tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    tiny_array32(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    tiny_check(gguf_writer_blob(w, &blob, &len, &e), &e);
    gguf_writer_free(w);
    tiny_check(gguf_parse(blob, len, len, "chat", &g, &e), &e);
    return g;
}

/* Parts of an answer, "T:" and "A:" before the text of each. */
static char out[256];

static int part(void *ctx, enum chat_part part, const char *text, size_t len)
{
    size_t at = strlen(out);
    (void)ctx;
    if (part == CHAT_ANSWER || part == CHAT_THOUGHT)
        snprintf(out + at, sizeof out - at, "%c%.*s", part == CHAT_ANSWER ? 'A' : 'T', (int)len, text);
    return 0;
}

static const char *read_all(const struct tokenizer *t, int thinks, const int32_t *ids, int n)
{
    struct chat_reader r;
    chat_reader_init(&r, t, thinks);
    out[0] = '\0';
    for (int i = 0; i < n; i++)
        CHECK(chat_reader_token(&r, ids[i], part, NULL) == 0);
    CHECK(chat_reader_end(&r, part, NULL) == 0);
    return out;
}
#define READ(thinks, ...) read_all(t, thinks, (const int32_t[]){ __VA_ARGS__ }, (int)(sizeof((const int32_t[]){ __VA_ARGS__ }) / 4))

static void thought(void)
{
    struct tokenizer *t;
    struct gguf *g = vocabulary(CHANNEL, NULL, NULL);
    tiny_check(tokenizer_open(g, &t, &e), &e);
    gguf_close(g);
    CHECK(!strcmp(READ(0, 'a', 'b'), "AaAb"));
    CHECK(!strcmp(READ(0, THINK, '\n', 'a', '\n', THOUGHT, '\n', '\n', 'b', '\n'), "TaT\nAbA\n"));
    CHECK(!strcmp(READ(1, 'a', THOUGHT, 'b'), "TaAb")); /* the template began the thought */
    tokenizer_close(t);
    g = vocabulary(N, NULL, NULL);
    tiny_check(tokenizer_open(g, &t, &e), &e);
    gguf_close(g);
    CHECK(!strcmp(READ(0, CHANNEL, 'a', 'n', MESSAGE, 'x', END, START, 'a', CHANNEL, 'f', 'i', 'n', 'a', 'l', MESSAGE, 'y'), "TxAy"));
    CHECK(tokenizer_is_eog(t, RETURN) && tokenizer_is_eog(t, CALL) && tokenizer_is_eog(t, EOS) && !tokenizer_is_eog(t, END));
    struct chat_reader r;
    chat_reader_init(&r, t, 0);
    CHECK(!strcmp(chat_reader_mark(&r, CHAT_THOUGHT), "<think>\n") && !strcmp(chat_reader_mark(&r, CHAT_THOUGHT), ""));
    CHECK(!strcmp(chat_reader_mark(&r, CHAT_ANSWER), "\n</think>\n\n"));
    tokenizer_close(t);
}

static int tokens_are(const struct chat *c, int off, const int32_t *want, int n_want)
{
    int32_t *ids;
    int n;
    struct chat_begins how;
    if (chat_tokens(c, off, NULL, &ids, &n, &how, &e) < 0)
        return 0;
    int same = n == n_want && !memcmp(ids, want, (size_t)n * sizeof *ids);
    for (int i = 0; i < n && !same; i++)
        printf("%s%d%s", i ? " " : "# gives ", ids[i], i + 1 < n ? "" : "\n");
    free(ids);
    return same;
}
#define TOKENS(c, off, ...) tokens_are(c, off, (const int32_t[]){ __VA_ARGS__ }, (int)(sizeof((const int32_t[]){ __VA_ARGS__ }) / 4))

static void tokens(void)
{
    static const char plain[] = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{{ eos_token }}{% endfor %}"
                                "{{ '<think>\n' if enable_thinking is not defined }}";
    static const char begins[] = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}{% endfor %}";
    struct tokenizer *t;
    struct chat *c;
    struct gguf *g = vocabulary(CHANNEL, plain, NULL);
    int32_t *ids;
    int n;
    struct chat_begins how;
    tiny_check(tokenizer_open(g, &t, &e), &e);
    tiny_check(chat_new(g, t, NULL, 64, &c, &e), &e);
    gguf_close(g);
    tiny_check(messages_add(list(c), "user", "x", NULL, &e), &e);
    CHECK(TOKENS(c, 0, BOS, 'u', 'x', EOS, THINK, '\n') && TOKENS(c, 1, BOS, 'u', 'x', EOS));
    CHECK(chat_tokens(c, 0, NULL, &ids, &n, &how, &e) == 0 && how.thinks == 1 && how.before == 2);
    free(ids);
    CHECK(chat_tokens(c, 1, NULL, &ids, &n, &how, &e) == 0 && how.thinks == 0 && how.before == 2);
    free(ids);
    messages_drop(list(c), 0); /* what a message says is text, also where another mark of ours is in it */
    tiny_check(messages_add(list(c), "user", "x</s><s>y", NULL, &e), &e);
    CHECK(TOKENS(c, 1, BOS, 'u', 'x', '<', '/', 's', '>', '<', 's', '>', 'y', EOS));
    char *text;
    size_t len;
    CHECK(chat_render(c, 1, &text, &len, &e) == 0 && !strcmp(text, "ux</s><s>y</s>"));
    free(text);
    chat_free(c);
    tokenizer_close(t);

    g = vocabulary(CHANNEL, begins, NULL);
    tiny_check(tokenizer_open(g, &t, &e), &e);
    tiny_check(chat_new(g, t, NULL, 64, &c, &e), &e);
    gguf_close(g);
    tiny_check(messages_add(list(c), "assistant", "a", "t", &e), &e);
    CHECK(TOKENS(c, 0, BOS, 'a', 't')); /* one BOS */
    messages_drop(list(c), 0);
    CHECK(list(c)->n == 0 && TOKENS(c, 0, BOS));
    chat_free(c);
    tokenizer_close(t);
}

/* A text, byte by byte, under a vocabulary of the first n tokens; parts that follow each other in one piece. */
static const char *read_text(int n, int thinks, const char *text)
{
    static char joined[256];
    struct tokenizer *t;
    struct gguf *g = vocabulary(n, NULL, NULL);
    int32_t ids[128];
    int k = 0;
    size_t at = 0;
    tiny_check(tokenizer_open(g, &t, &e), &e);
    gguf_close(g);
    for (; text[k]; k++)
        ids[k] = (unsigned char)text[k];
    const char *s = read_all(t, thinks, ids, k);
    for (char of = 0; *s; s += 2) { /* a part's letter and a byte of it */
        if (*s != of)
            joined[at++] = of = *s;
        joined[at++] = s[1];
    }
    joined[at] = '\0';
    tokenizer_close(t);
    return joined;
}

/* Marks that are no tokens of the vocabulary: found in the text, whatever the cut, where a thought may begin and where one may end. */
static void spelled(void)
{
    static const struct {
        int thinks;
        const char *text, *want;
    } cases[] = {
        { 1, "why</think>\n\nbecause", "TwhyAbecause" },
        { 0, "<think>why</think>so", "TwhyAso" },
        { 0, "\n <think>\nwhy</think>so", "A TwhyAso" },
        { 0, "so <think>why</think>", "Aso <think>why</think>" },   /* an answer about marks */
        { 0, "so</think>", "Aso</think>" },
        { 1, "a<<</think></thinker</think>b", "Ta<<A</thinker</think>b" },
        { 1, "a</thin", "Ta</thin" },                                /* the end, while it is held */
        { 1, "a</th\n</think>\nb", "Ta</th\nAb" },
        { 1, "a[/THINK]b</think>c", "Ta[/THINK]bAc" },                /* another pair's end is text */
        { 3, "a</think>b[/THINK]c", "Ta</think>bAc" },
        { 0, "[THINK]a</think>[/THINK]b", "Ta</think>Ab" },
        { 0, "<seed:think>a</seed:think>b", "TaAb" },
        { 1, "a</think><think>b</think>c", "TabAc" },
        { 0, "<", "A<" },
        { 0, "<thinking", "A<thinking" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = read_text(THINK, cases[i].thinks, cases[i].text);
        CHECK_MSG(!strcmp(got, cases[i].want), "'%s' gives '%s'", cases[i].text, got);
    }
    CHECK(!strcmp(read_text(CHANNEL, 1, "a</think>b"), "Ta</think>b")); /* it is a token there: spelled out it is text */
    CHECK(chat_reader_thinks("x<think>\n", 9) == 1 && chat_reader_thinks("[THINK]", 7) == 3 && !chat_reader_thinks("think>", 6));
}

/* Phi 3's special tokens take the white space behind them, all but some. */
static void phi3(void)
{
    struct tokenizer *t;
    struct chat *c;
    struct gguf *g = vocabulary(N, "<|user|>\n {{ messages[0].content }}<|end|>\n<s> x", "Phi-3 mini");
    tiny_check(tokenizer_open(g, &t, &e), &e);
    tiny_check(chat_new(g, t, NULL, 64, &c, &e), &e);
    gguf_close(g);
    tiny_check(messages_add(list(c), "user", "y", NULL, &e), &e);
    CHECK(TOKENS(c, 0, BOS, USER, 'y', END, BOS, 0xe2, 0x96, 0x81, 'x')); /* a vocabulary without U+2581: its bytes */
    chat_free(c);
    tokenizer_close(t);
}

static void files(void)
{
    static const char path[] = "build/test_chat.json";
    struct tokenizer *t;
    struct chat *c;
    struct gguf *g = vocabulary(CHANNEL, "{{ messages | length }}{{ messages[1].reasoning_content }}", NULL);
    tiny_check(tokenizer_open(g, &t, &e), &e);
    tiny_check(chat_new(g, t, NULL, 64, &c, &e), &e);
    tiny_check(messages_add(list(c), "user", "x", NULL, &e), &e);
    tiny_check(messages_add(list(c), "assistant", "y", "h", &e), &e);
    CHECK(messages_save(list(c), path, 0, &e) == 0);
    messages_drop(list(c), 0);
    CHECK(messages_load(list(c), path, &e) == 0 && list(c)->n == 2 && TOKENS(c, 0, BOS, '2', 'h'));
    CHECK(file_replace(path, "{\"messages\": [{\"role\": \"user\"}]}", 32, &e) == 0);
    CHECK(messages_load(list(c), path, &e) == ERR_FORMAT && strstr(e.msg, "message 0") && list(c)->n == 2);
    static const char *const dropped[] = { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\", \"typo\": 1}]}",
                                           "{\"messages\": [], \"tools\": []}" };
    static const char called[] = "{\"messages\": [{\"role\": \"a\", \"tool_calls\": [{\"n\": 1.5}]}, {\"role\": \"tool\", \"content\": "
                                 "[{\"type\": \"text\", \"text\": \"p\"}], \"reasoning\": \"q\", \"name\": \"f\", "
                                 "\"tool_call_id\": \"r\"}]}";
    for (int i = 0; i < 2; i++) {
        CHECK(file_replace(path, dropped[i], strlen(dropped[i]), &e) == 0);
        CHECK(messages_load(list(c), path, &e) == ERR_FORMAT && strstr(e.msg, i ? "no field \"tools\"" : "message 0: there is no field "));
        CHECK(list(c)->n == 2);
    }
    CHECK(file_replace(path, called, strlen(called), &e) == 0);
    for (int i = 0; i < 2; i++) { /* read, saved, read again */
        CHECK(messages_load(list(c), path, &e) == 0 && list(c)->n == 2 && TOKENS(c, 0, BOS, '2', 'q'));
        CHECK(messages_save(list(c), path, 1, &e) == 0);
        char *saved;
        size_t len;
        CHECK(file_slurp(path, 4096, &saved, &len, &e) == 0 && strstr(saved, "\"n\": 1.5") && strstr(saved, "\"tool_call_id\": \"r\""));
        free(saved);
    }
    CHECK(messages_load(list(c), "/nonexistent", &e) == ERR_INPUT && list(c)->n == 2);
    CHECK(file_replace(path, called, strlen(called), &e) == 0);
    CHECK(messages_save(list(c), path, 0, &e) == ERR_USAGE && strstr(e.msg, "no conversation") && file_replace(path, "", 0, &e) == 0);
    CHECK(messages_save(list(c), path, 0, &e) == 0 && messages_save(list(c), path, 0, &e) == 0); /* over an empty file, over its own */
    CHECK(file_replace(path, "{}", 2, &e) == 0 && messages_save(list(c), path, 0, &e) == ERR_USAGE);
    CHECK(messages_save(list(c), path, 1, &e) == 0);
    remove(path);
    chat_free(c);
    gguf_close(g);
    g = vocabulary(CHANNEL, NULL, NULL);
    CHECK(chat_new(g, t, NULL, 64, &c, &e) == ERR_UNSUPPORTED && strstr(e.msg, "'tokenizer.chat_template' is absent"));
    gguf_close(g);
    tokenizer_close(t);
}

/* What no context has room for is refused before it takes memory, and what is forgotten makes room. */
static void room(void)
{
    static const char path[] = "build/test_chat_room.json";
    struct tokenizer *t;
    struct chat *c;
    struct gguf *g = vocabulary(CHANNEL, "{{ messages | length }}", NULL);
    char *text = calloc(1, 4097 + 8 * 64);
    tiny_check(tokenizer_open(g, &t, &e), &e);
    tiny_check(chat_new(g, t, NULL, 64, &c, &e), &e);
    gguf_close(g);
    memset(text, 'x', 4096 + 8 * 64);
    CHECK(messages_add(list(c), "u", text, NULL, &e) == ERR_LIMIT && strstr(e.msg, "4609 bytes, more than the 4608") && list(c)->n == 0);
    for (int i = 0; i < 3; i++) {
        text[4096 + 8 * 64 - 1] = '\0';
        CHECK(messages_add(list(c), "u", text, NULL, &e) == 0 && messages_add(list(c), "u", "", NULL, &e) == ERR_LIMIT);
        messages_drop(list(c), 0);
    }
    for (int i = 0; i < 16 + 64 / 12; i++)
        tiny_check(messages_add(list(c), "u", "x", NULL, &e), &e);
    CHECK(messages_add(list(c), "u", "x", NULL, &e) == ERR_LIMIT && strstr(e.msg, "more than 21 messages") && list(c)->n == 21);
    CHECK(messages_save(list(c), path, 0, &e) == 0 && messages_load(list(c), path, &e) == 0 && list(c)->n == 21);
    CHECK(messages_add(list(c), "u", "x", NULL, &e) == ERR_LIMIT);
    messages_drop(list(c), 20);
    CHECK(messages_add(list(c), "u", text + 4096, NULL, &e) == 0);
    static char calls[4096] = "{\"role\":\"a\",\"tool_calls\":[{\"a\":[0"; /* 264 values, each of which takes memory */
    for (int i = 0; i < 260; i++)
        strcat(calls, ",0");
    strcat(calls, "]}]}");
    struct js *j = js_parse(calls, strlen(calls), "calls", &e);
    messages_drop(list(c), 0);
    CHECK(messages_add_object(list(c), j, "here", NULL, &e) == ERR_LIMIT && strstr(e.msg, "values in \"tool_calls\", more than the 264"));
    CHECK(list(c)->n == 0);
    js_free(j);
    remove(path);
    free(text);
    chat_free(c);
    tokenizer_close(t);
}

/* ---- tools ---- */

/* What a template makes of a call, of tools and of further variables; NULL: it refuses. */
static char *rendered(const char *template, const char *messages, const char *tools, const char *args)
{
    struct tokenizer *t;
    struct chat *c;
    struct gguf *g = vocabulary(CHANNEL, template, NULL);
    char *text = NULL;
    size_t len;
    tiny_check(tokenizer_open(g, &t, &e), &e);
    tiny_check(chat_new(g, t, NULL, 4096, &c, &e), &e);
    gguf_close(g);
    struct js *all = js_parse(messages, strlen(messages), "messages", &e);
    struct js *given = tools ? js_parse(tools, strlen(tools), "tools", &e) : NULL;
    struct js *vars = args ? js_parse(args, strlen(args), "args", &e) : NULL;
    int r = chat_give(c, given, vars, &e);
    for (size_t i = 0; r == 0 && i < js_len(all); i++)
        r = messages_add_object(list(c), js_at(all, i), "a message", NULL, &e);
    if (r == 0)
        chat_render(c, 0, &text, &len, &e);
    js_free(all);
    js_free(given);
    js_free(vars);
    chat_free(c);
    tokenizer_close(t);
    return text;
}

static int renders(const char *want, const char *template, const char *messages, const char *tools, const char *args)
{
    char *text = rendered(template, messages, tools, args);
    int same = text && !strcmp(text, want);
    if (!same)
        printf("# '%s', not '%s'\n", text ? text : e.msg, want);
    free(text);
    return same;
}

#define WEATHER "{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"description\": \"it's <warm>\", \"parameters\": " \
                "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, \"required\": [\"city\"]}}}"
#define CALLED(arguments) "[{\"role\": \"user\", \"content\": \"Rain?\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" \
                          "{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"weather\", \"arguments\": " \
                          arguments "}}]}, " \
                          "{\"role\": \"tool\", \"content\": \"wet\", \"tool_call_id\": \"c1\"}]"

static void tools(void)
{
    static const char qwen[] = /* Qwen 2.5's way: arguments by tojson, so they have to be an object */
        "{%- if tools %}{{- '# Tools' }}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}{{- '\n\n' }}{%- endif %}"
        "{%- for message in messages %}{%- if message.role == 'user' %}{{- 'U:' + message.content }}"
        "{%- elif message.role == 'assistant' %}{%- for tool_call in message.tool_calls %}"
        "{%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}"
        "{{- '{\"name\": \"' }}{{- tool_call.name }}{{- '\", \"arguments\": ' }}{{- tool_call.arguments | tojson }}{{- '}' }}{%- endfor %}"
        "{%- elif message.role == 'tool' %}{{- 'T:' + message.content }}{%- endif %}{%- endfor %}";
    static const char deepseek[] = /* and DeepSeek's: a text, which is put together with others */
        "{%- for m in messages %}{%- if m['role'] == 'assistant' and 'tool_calls' in m %}{%- for tool in m['tool_calls'] %}"
        "{{- tool['type'] + '>' + tool['function']['name'] + '\n' + tool['function']['arguments'] }}{%- endfor %}"
        "{%- else %}{{- m['content'] }}{%- endif %}{%- endfor %}";
    static const char other[] = "{{ effort }}{{ enable_thinking }}{{ add_generation_prompt }}{{ bos_token }}{{ tools is defined }}";
    static const char said[] = "[{\"role\": \"user\", \"content\": \"x\"}]";
    static const char shown[] = "# Tools\n" WEATHER "\n\nU:Rain?{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}T:wet";
    CHECK(renders(shown, qwen, CALLED("{\"city\": \"Oslo\"}"), "[" WEATHER "]", NULL));
    CHECK(renders(shown, qwen, CALLED("\"{\\\"city\\\": \\\"Oslo\\\"}\""), "[" WEATHER "]", NULL));
    CHECK(renders("U:x", qwen, said, "[]", NULL) && renders("U:x", qwen, said, "null", "null"));
    CHECK(renders("Rain?function>weather\n{\"city\": \"Oslo\"}wet", deepseek, CALLED("\"{\\\"city\\\": \\\"Oslo\\\"}\""), NULL, NULL));
    CHECK(renders("U:Rain?{\"name\": \"weather\", \"arguments\": \"no object\"}T:wet", qwen, CALLED("\"no object\""), NULL, NULL));
    CHECK(renders("highFalseTrue<s>False", other, said, NULL, "{\"effort\": \"high\", \"enable_thinking\": false}"));
    CHECK(renders("False!False", other, said, NULL, "{\"add_generation_prompt\": false, \"bos_token\": \"!\"}"));
    CHECK(!rendered(qwen, said, "{}", NULL) && strstr(e.msg, "\"tools\" is not an array"));
    CHECK(!rendered(qwen, said, "[{}, 3]", NULL) && strstr(e.msg, "\"tools\"[1] is not an object"));
    CHECK(!rendered(qwen, said, NULL, "[1]") && strstr(e.msg, "\"template_args\" is not an object"));
    CHECK(!rendered(qwen, said, NULL, "{\"tools\": []}") && strstr(e.msg, "a field of its own"));
    static char many[40000] = "[{\"a\": [0";
    for (int i = 0; i < 1020; i++)
        strcat(many, ",0");
    strcat(many, "]}]");
    CHECK(!rendered(qwen, said, many, NULL) && strstr(e.msg, "have 1025 values, more than 1024"));
    snprintf(many, sizeof many, "[{\"a\":\"%036854d\"}]", 0); /* as many bytes as there is room for */
    CHECK(renders("x", "x", "[]", many, NULL));
    CHECK(!rendered("x", "[{\"role\": \"\", \"content\": \"x\"}]", many, NULL) && strstr(e.msg, "36865 bytes, more than the 36864"));
}

int main(void)
{
    /* A plan for chat keeps what a conversation takes. */
    CHECK(CHAT_BYTES + MESSAGES_READING + (64u << 10) == ROOM_CHAT &&
          CHAT_BYTES_PER_TOKEN + MESSAGES_READING_PER_TOKEN + 12 == ROOM_CHAT_PER_TOKEN); /* and a request (thermo.c) */
    tools();
    room();
    thought();
    spelled();
    tokens();
    phi3();
    files();
    free(blob);
    return test_done();
}
