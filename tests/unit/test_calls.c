/* Calls of tools in the forms of a dozen families of models: whole, split at every byte and byte by byte they give the same; what is not
 * whole stays the text that it is; no byte is lost. */
#include "runtime/chat/calls.h"
#include "common/base/json_text.h"
#include "tests/test.h"

#include <string.h>

static struct err e;

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"city\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"on\": {\"type\": \"boolean\"}, \"list\": {\"type\": \"array\"},"
    "\"maybe\": {\"type\": [\"string\", \"null\"]}, \"any\": {}, \"one\": {\"enum\": [\"1\", \"2\"]},"
    "\"either\": {\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"string\"}]}}}}},"
    " {\"name\": \"get_time\"}]";

/* In a text: \1 begins a control token and \2 ends it; \3 a thought, \4 the answer, \5 a header. In what comes of it: text; (thought);
 * /header/; [control token]; <name:arguments>; NULL: the text as it is. */
static const struct {
    enum calls_form form;
    const char *text, *want;
} cases[] = {
    { CALLS_NONE, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", NULL },
    /* Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3 */
    { CALLS_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"K\xc3\xb6ln\"}}\n</tool_call>", "<f:{\"city\": "
      "\"K\xc3\xb6ln\"}>" },
    { CALLS_HERMES, "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>\n<tool_call>\n{\"arguments\": "
      "{}, \"name\": \"get_time\"}\n</tool_call>\n", "Let me see.<f:{\"n\": 1}><get_time:{}>" },
    { CALLS_HERMES, "\3Should I write <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>?\4<tool_call>{\"name\": \"f\", "
      "\"arguments\": {\"a\": \"</tool_call>\"}}</tool_call>",
      "(Should I write <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>?)<f:{\"a\": \"</tool_call>\"}>" },
    { CALLS_HERMES, "\1<tool_call>\2\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"{\"}}\n\1</tool_call>\2", "<f:{\"a\": "
      "\"}\\\"{\"}>" },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> done", "<f:{}> done" },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "<f:{}>" },       /* the closing mark alone is missing */
    { CALLS_HERMES, "a <tool_call> is <b> ", NULL },
    { CALLS_HERMES, "<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<tool_call><f:{}>" },
    { CALLS_HERMES, "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>", NULL },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", NULL },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {1}}</tool_call>", NULL },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {]}}</tool_call>", NULL },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\"}</tool_call>", NULL },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"x\": 1}</tool_call>", NULL },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}} and", NULL },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"cut", NULL },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\xff\"}}</tool_call>", NULL },
    { CALLS_HERMES, "\1<tool_call>\2{\"name\": 1}\1</tool_call>\2", "[<tool_call>]{\"name\": 1}[</tool_call>]" },
    { CALLS_HERMES, "<tool_call>{\"name\": \"f\", \3\"arguments\": {}}</tool_call>", "<tool_call>{\"name\": \"f\", (\"arguments\": "
      "{}}</tool_call>)" },
    /* Qwen3-Coder, Qwen 3.5 */
    { CALLS_XML, "Now.\n\n<tool_call>\n<function=f>\n<parameter=city>\nA\nB\n</parameter>\n<parameter=n>\n42\n</parameter>"
      "\n<parameter=on>\nTrue\n"
      "</parameter>\n</function>\n</tool_call>", "Now.<f:{\"city\": \"A\\nB\", \"n\": 42, \"on\": true}>" },
    { CALLS_XML, "<tool_call>\n<function=get_time>\n</function>\n</tool_call>\n<tool_call>\n<function=f>\n<parameter=list>\n[1, "
      "\"b\"]\n</parameter>\n"
      "</function>\n</tool_call>", "<get_time:{}><f:{\"list\": [1, \"b\"]}>" },
    { CALLS_XML, "<function=f>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>", "<f:{\"city\": \"12\"}>" },
    { CALLS_XML, "<tool_call><function=f><parameter=maybe>\nnull\n</parameter><parameter=any>\n7\n</parameter><parameter=one>"
      "\n1\n</parameter>"
      "<parameter=either>\nx \"y\"\n</parameter><parameter=n>\nmany\n</parameter></function></tool_call>",
      "<f:{\"maybe\": null, \"any\": 7, \"one\": \"1\", \"either\": \"x \\\"y\\\"\", \"n\": \"many\"}>" },
    { CALLS_XML, "<tool_call><function=f><parameter=city>\n<b>\n\n</parameter></function></tool_call>", "<f:{\"city\": \"<b>\\n\"}>" },
    { CALLS_XML, "<function=g>\n</function>", NULL },
    { CALLS_XML, "<function=f> x </function>", NULL },
    { CALLS_XML, "<function=f><parameter=n>1</parameter><parameter=n>2</parameter></function>", NULL },
    /* GLM 4.5 and later */
    { CALLS_GLM, "\n<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>A B</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>"
      "\n</tool_call>",
      "<f:{\"city\": \"A B\", \"n\": 3}>" },
    { CALLS_GLM, "<tool_call>get_time</tool_call><tool_call>f<arg_key>on</arg_key><arg_value>false</arg_value></tool_call>",
      "<get_time:{}><f:{\"on\": false}>" },
    { CALLS_GLM, "<tool_call>g</tool_call>", NULL },
    { CALLS_GLM, "<tool_call>f<arg_key>n</arg_key>3</tool_call>", NULL },
    /* Llama 3 */
    { CALLS_LLAMA, "{\"name\": \"f\", \"parameters\": {\"n\": \"5\"}}", "<f:{\"n\": \"5\"}>" },
    { CALLS_LLAMA, "\1<|python_tag|>\2{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"get_time\", "
      "\"parameters\": {}}", "<f:{}><get_time:{}>" },
    { CALLS_LLAMA, "{\"name\": \"Ada\", \"age\": 36}", NULL },
    { CALLS_LLAMA, "Use {\"name\": \"f\", \"parameters\": {}}", NULL },
    { CALLS_LLAMA, "\1<|python_tag|>\2print(1)", "[<|python_tag|>]print(1)" },
    /* Mistral */
    { CALLS_MISTRAL, "\1[TOOL_CALLS]\2[{\"name\": \"f\", \"arguments\": {\"n\": 1}, \"id\": \"123456789\"}, {\"name\": \"get_time\", "
      "\"arguments\": {}}]",
      "<f#123456789:{\"n\": 1}><get_time:{}>" },
    { CALLS_MISTRAL, "Yes.\1[TOOL_CALLS]\2f\1[ARGS]\2{\"n\": 1}\1[TOOL_CALLS]\2get_time\1[ARGS]\2{}", "Yes.<f:{\"n\": 1}><get_time:{}>" },
    { CALLS_MISTRAL, "\1[TOOL_CALLS]\2f\1[CALL_ID]\2abcDEF123\1[ARGS]\2{\"n\": 1}", "<f#abcDEF123:{\"n\": 1}>" },
    { CALLS_MISTRAL, "[TOOL_CALLS]f{\"n\": 1}", "<f:{\"n\": 1}>" },
    { CALLS_MISTRAL, "\1[TOOL_CALLS]\2[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
      "[[TOOL_CALLS]][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]" },
    { CALLS_MISTRAL, "\1[TOOL_CALLS]\2[]", "[[TOOL_CALLS]][]" },
    /* DeepSeek V3, R1 and V3.1 */
    { CALLS_DEEPSEEK, "<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">"
      "function<" BAR "tool" LOW "sep" BAR ">f\n"
      "```json\n{\"n\": 1}\n```<" BAR "tool" LOW "call" LOW "end" BAR ">\n<" BAR "tool" LOW "call" LOW "begin" BAR ">"
      "function<" BAR "tool" LOW "sep" BAR
      ">get_time\n```json\n{}\n```<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW "calls" LOW "end" BAR ">", "<f:{\"n\": 1}>"
      "<get_time:{}>" },
    { CALLS_DEEPSEEK, "So.\1<" BAR "tool" LOW "calls" LOW "begin" BAR ">\2\1<" BAR "tool" LOW "call" LOW "begin" BAR ">"
      "\2f\1<" BAR "tool" LOW "sep" BAR
      ">\2{\"n\": 1}\1<" BAR "tool" LOW "call" LOW "end" BAR ">\2\1<" BAR "tool" LOW "calls" LOW "end" BAR ">\2", "So.<f:{\"n\": 1}>" },
    { CALLS_DEEPSEEK, "<" BAR "tool" LOW "calls" LOW "begin" BAR "> none", NULL },
    /* Granite 3, Phi 4 */
    { CALLS_LIST, "\1<|tool_call|>\2[{\"name\": \"f\", \"arguments\": {\"n\": 1}}]", "<f:{\"n\": 1}>" },
    { CALLS_LIST, "<tool_call>[{\"arguments\": {\"n\": 1}, \"name\": \"f\"}]", "<f:{\"n\": 1}>" },
    { CALLS_LIST, "\1<|tool_call|>\2[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"get_time\", \"arguments\": {}}]\1<|/tool_call|>"
      "\2", "<f:{}><get_time:{}>" },
    { CALLS_LIST, "functools[{\"name\": \"f\", \"arguments\": {\"n\": 1}}]", "<f:{\"n\": 1}>" },
    { CALLS_LIST, "functools is a module", NULL },
    /* gpt-oss */
    { CALLS_HARMONY, "\5\1<|channel|>\2analysis\3\1<|message|>\2Hm.\5\1<|end|>\2\1<|start|>\2assistant\1<|channel|>\2commentary "
      "to=functions.f "
      "\1<|constrain|>\2json\3\1<|message|>\2{\"n\": 1}\1<|call|>\2",
      "[<|channel|>]/analysis/[<|message|>](Hm.)[<|end|><|start|>]/assistant/[<|channel|>]/commentary /<f:{\"n\": 1}>[<|call|>]" },
    { CALLS_HARMONY, "\5 to=functions.f\1<|channel|>\2commentary\3\1<|message|>\2{}", "/ /<f:{}>" },
    { CALLS_HARMONY, "\5\1<|channel|>\2commentary to=functions.f\3\1<|message|>\2{}", "[<|channel|>]/commentary /<f:{}>" },
    { CALLS_HARMONY, "\5\1<|channel|>\2commentary to=functions.g\3\1<|message|>\2{}", "[<|channel|>]/commentary "
      "to=functions.g/[<|message|>]({})" },
    { CALLS_HARMONY, "\5\1<|channel|>\2final\4\1<|message|>\2to=functions.f {}", "[<|channel|>]/final/[<|message|>]to=functions.f {}" },
};
enum { CASES = sizeof cases / sizeof cases[0] };

struct seen {
    char text[4096], id[64];
    size_t n;
    int part, last;
};

static void add(struct seen *s, const char *text, size_t n)
{
    if (s->n + n < sizeof s->text)
        memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n < sizeof s->text ? s->n : sizeof s->text - 1] = 0;
}

static void close_part(struct seen *s)
{
    static const char *const closes[] = { "", "]", ")", "]", "/", "]" };
    add(s, closes[s->last], strlen(closes[s->last]));
    s->last = 0;
}

static int look(void *ctx, const struct calls_out *o)
{
    static const char *const opens[] = { "", "[", "(", "[", "/", "[" };
    struct seen *s = ctx;
    int now = o->silent ? 1 : o->part == CHAT_THOUGHT ? 2 : o->part == CHAT_HEADER ? 4 : 0;
    if (o->name)
        now = 0;
    if (now != s->last) {
        close_part(s);
        add(s, opens[now], strlen(opens[now]));
        s->last = now;
    }
    if (!o->name) {
        add(s, o->text, o->n);
        return 0;
    }
    if (strlen(o->id) != 9)
        CHECK_MSG(0, "id '%s'", o->id);
    add(s, "<", 1);
    add(s, o->name, strlen(o->name));
    if (!strcmp(o->id, "123456789") || !strcmp(o->id, "abcDEF123")) {
        add(s, "#", 1);
        add(s, o->id, strlen(o->id));
    }
    snprintf(s->id, sizeof s->id, "%s", o->id);
    add(s, ":", 1);
    add(s, o->text, o->n);
    add(s, ">", 1);
    return 0;
}

/* text[0..n) with its marks, in pieces that end at `at` and, where by is not 0, after that many bytes. */
static void put(struct calls *c, const char *text, size_t at, size_t by, struct seen *s)
{
    enum chat_part part = CHAT_ANSWER;
    int silent = 0;
    for (size_t i = 0, k; text[i]; i += k) {
        k = 1;
        if (text[i] > 5 || text[i] < 0) {
            while (text[i + k] && (text[i + k] > 5 || text[i + k] < 0) && i + k != at && k != by)
                k++;
            calls_put(c, part, silent, text + i, k, look, s);
        } else if (text[i] <= 2) {
            silent = text[i] == 1;
        } else {
            part = text[i] == 3 ? CHAT_THOUGHT : text[i] == 4 ? CHAT_ANSWER : CHAT_HEADER;
        }
    }
    calls_end(c, look, s);
    close_part(s);
}

static struct seen one(enum calls_form form, const struct js *tools, const char *text, size_t at, size_t by, size_t most)
{
    struct seen s = { 0 };
    struct calls *c;
    if (calls_new(form, tools, most, 7, &c, &e) < 0)
        abort();
    put(c, text, at, by, &s);
    calls_free(c);
    return s;
}

static void test_forms(const struct js *tools)
{
    for (int i = 0; i < CASES; i++) {
        const char *want = cases[i].want ? cases[i].want : cases[i].text;
        struct seen s = one(cases[i].form, tools, cases[i].text, 0, 0, 2000);
        CHECK_MSG(!strcmp(s.text, want), "%s: '%s' gives\n# '%s', not\n# '%s'", calls_form_names[cases[i].form],
          cases[i].text, s.text, want);
        int same = 1;
        char id[64];
        snprintf(id, sizeof id, "%s", s.id);
        for (size_t at = 0; same && at <= strlen(cases[i].text); at++) {
            s = one(cases[i].form, tools, cases[i].text, at, at ? 0 : 1, 2000);
            if (strcmp(s.text, want) || strcmp(s.id, id))
                same = (printf("# split at %zu: '%s'\n", at, s.text), 0);
        }
        CHECK(same);
    }
}

/* More than there is memory for is text, and what follows is looked at again. */
static void test_bound(const struct js *tools)
{
    char text[4096];
    snprintf(text, sizeof text, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"%0500d\"}}</tool_call>", 0);
    struct seen s = one(CALLS_HERMES, tools, text, 0, 0, 1000);
    CHECK(!strncmp(s.text, "<f:", 3));
    s = one(CALLS_HERMES, tools, text, 0, 1, 256);
    CHECK(!strcmp(s.text, text));
    snprintf(text, sizeof text, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"%01500d\"}}</tool_call> <tool_call>{\"name\": "
      "\"f\", \"arguments\": "
             "{}}</tool_call>", 0);
    s = one(CALLS_HERMES, tools, text, 0, 7, 256);
    CHECK_MSG(s.n > 1500 && !strcmp(s.text + s.n - 6, "<f:{}>"), "%s", s.text);
    for (size_t i = 0; i < 3000; i++)
        text[i] = ' ';
    text[3000] = 0;
    s = one(CALLS_HERMES, tools, text, 0, 7, 256);
    CHECK(!strcmp(s.text, text));
}

static void test_any_name(void)
{
    struct seen s = one(CALLS_HERMES, NULL, "<tool_call>{\"name\": \"any.name-1\", \"arguments\": {}}</tool_call>", 0, 0, 1000);
    CHECK(!strcmp(s.text, "<any.name-1:{}>"));
    s = one(CALLS_HERMES, NULL, "<tool_call>{\"name\": \"no name\", \"arguments\": {}}</tool_call>", 0, 0, 1000);
    CHECK(s.text[1] == 't');
}

static void test_tools(void)
{
    static const char *const bad[] = { "[1]", "[{\"function\": {}}]", "[{\"name\": \"\"}]", "[{\"name\": 3}]" };
    struct calls *c;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct js *j = js_parse(bad[i], strlen(bad[i]), "tools", &e);
        CHECK(calls_new(CALLS_HERMES, j, 1000, 0, &c, &e) == ERR_FORMAT);
        js_free(j);
    }
    struct js *none = js_parse("[]", 2, "tools", &e);
    CHECK(one(CALLS_HERMES, none, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", 0, 0, 1000).text[1] == 't');
    js_free(none);
}

static void test_ids(const struct js *tools)
{
    static const char text[] = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    struct seen a = one(CALLS_HERMES, tools, text, 0, 0, 1000), b = { 0 };
    struct calls *c;
    char first[64];
    CHECK(calls_new(CALLS_HERMES, tools, 1000, 7, &c, &e) == 0);
    calls_put(c, CHAT_ANSWER, 0, text, strlen(text), look, &b);
    CHECK(!strcmp(a.id, b.id) && calls_count(c) == 1);
    memcpy(first, b.id, sizeof first);
    calls_put(c, CHAT_ANSWER, 0, text, strlen(text), look, &b);
    CHECK(strcmp(first, b.id) && calls_count(c) == 2);
    calls_free(c);
    CHECK(calls_new(CALLS_HERMES, tools, 1000, 8, &c, &e) == 0);
    calls_put(c, CHAT_ANSWER, 0, text, strlen(text), look, &b);
    CHECK(strcmp(first, b.id));
    calls_free(c);
}

/* What templates have in them that tells their form. */
static void test_detection(void)
{
    static const struct {
        const char *template, *arch;
        enum calls_form want;
    } all[] = {
        { "{{ '<tool_call>\\n{\"name\": \"' }}", "qwen3", CALLS_HERMES },
        { "<tool_call>\\n<function=' + name + '>\\n<parameter=", "qwen3next", CALLS_XML },
        { "<tool_call>' + name }}<arg_key>", NULL, CALLS_GLM },
        { "[AVAILABLE_TOOLS] [TOOL_CALLS]", "llama", CALLS_MISTRAL },
        { "Environment: ipython ... '\"parameters\": '", "llama", CALLS_LLAMA },
        { "'<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">'", "deepseek2", CALLS_DEEPSEEK },
        { "respond only with <|tool_call|> followed by a JSON list", "granite", CALLS_LIST },
        { "<|system|> <|tool|>' + message['tools'] + '<|/tool|>", "phi3", CALLS_LIST },
        { "<|start|>assistant to=functions. <|channel|>commentary", "gpt-oss", CALLS_HARMONY },
        { "xml_tools", "smollm3", CALLS_HERMES },
        { "{{ message.content }}", "llama", CALLS_NONE }, { "{{ message.content }}", "qwen35", CALLS_XML }, { NULL, "gpt-oss",
          CALLS_HARMONY },
        { NULL, NULL, CALLS_NONE },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK_MSG(calls_form_of(all[i].template, all[i].arch) == all[i].want, "%s", all[i].template ? all[i].template : "no template");
}

static void test_json_text(void)
{
    static const char *const good[] = { "0", "-1.5e+3", " {} ", "[1, [2, {\"a\": null}]]", "\"\\u00e9\\n\"", "true", "\"\xc3\xa9\"" };
    static const char *const bad[] = { "", "01", "1.", ".5", "1e", "{a: 1}", "[1,]", "{\"a\" 1}", "\"\\x\"", "\"\n\"", "\"\xc3\"",
      "tru", "[", "\"", "\"\\u12g4\"", "-" };
    char deep[200];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK_MSG(json_text_is(good[i], strlen(good[i])), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_MSG(!json_text_is(bad[i], strlen(bad[i])), "%s", bad[i]);
    for (int n = JSON_TEXT_DEPTH; n <= JSON_TEXT_DEPTH + 1; n++) {
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        CHECK(json_text_is(deep, 2 * (size_t)n) == (n == JSON_TEXT_DEPTH));
    }
}

int main(void)
{
    struct js *tools = js_parse(tools_text, strlen(tools_text), "tools", &e);
    if (!tools)
        abort();
    test_json_text();
    test_forms(tools);
    test_bound(tools);
    test_any_name();
    test_tools();
    test_ids(tools);
    test_detection();
    js_free(tools);
    return test_done();
}
