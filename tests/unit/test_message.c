/* Messages of conversations as objects of JSON: what is taken, what has no effect, what is refused, and by which words. */
#include "common/base/fields.h"
#include "runtime/chat/message.h"
#include "tests/test.h"

#include <string.h>

static struct err e;

static const struct {
    const char *text, *want; /* the object that a template gets, or what is said */
} cases[] = {
    { "{'role':'user','content':'x'}", "{'role':'user','content':'x'}" },
    { "{'content':'x'}", "{'role':'user','content':'x'}" },
    { "{'role':null,'content':'x','name':null,'tool_calls':null,'refusal':null,'audio':null}", "{'role':'user','content':'x'}" },
    { "{'content':''}", "{'role':'user','content':''}" },
    { "{'content':'x','name':'Bob'}", "{'role':'user','content':'x','name':'Bob'}" },
    { "{'role':'tool','content':'7','tool_call_id':'c1','name':'f'}", "{'role':'tool','content':'7','name':'f','tool_call_id':'c1'}" },
    { "{'role':'assistant','content':null,'tool_calls':[{'id':'c1','type':'function','function':{'name':'f','arguments':{'a':[1,2.5]}}}]}",
      "{'role':'assistant','content':'','tool_calls':[{'id':'c1','type':'function','function':{'name':'f','arguments':{'a':[1,2.5]}}}]}" },
    { "{'role':'assistant','tool_calls':[{}]}", "{'role':'assistant','content':'','tool_calls':[{}]}" },
    { "{'role':'assistant','content':'x','tool_calls':[]}", "{'role':'assistant','content':'x','tool_calls':[]}" },
    { "{'role':'assistant','content':'x','reasoning_content':'why'}",
      "{'role':'assistant','content':'x','reasoning_content':'why','thinking':'why'}" },
    { "{'role':'assistant','content':'x','thinking':'why','reasoning_content':'why'}",
      "{'role':'assistant','content':'x','reasoning_content':'why','thinking':'why'}" },
    { "{'content':'x','reasoning':'why','name':'B'}",
      "{'role':'user','content':'x','reasoning_content':'why','thinking':'why','name':'B'}" },
    { "{'content':'x','reasoning_content':''}", "{'role':'user','content':'x'}" },
    { "{'content':[{'type':'text','text':'a'},{'type':'text','text':'b','cache_control':{'type':'ephemeral'}}]}",
      "{'role':'user','content':'a\\nb'}" },
    { "{'content':[]}", "{'role':'user','content':''}" },
    { "{'content':'x','cache_control':{'type':'ephemeral'},'annotations':[],'images':[]}", "{'role':'user','content':'x'}" },
    /* refused */
    { "{'content':'x','typo':1}", "there is no field \"typo\"" },
    { "{'content':'x','tool_cals':[]}", "there is no field \"tool_cals\"; the nearest is \"tool_calls\"" },
    { "{'Content':'x'}", "there is no field \"Content\"; the nearest is \"content\"" },
    { "{'contnet':'x'}", "the nearest is \"content\"" },
    { "{'role':'user'}", "no field \"content\", and no \"tool_calls\"" },
    { "{'role':'user','content':null}", "no field \"content\"" },
    { "{'role':7,'content':'x'}", "field \"role\" is not a string" },
    { "{'content':7}", "\"content\" is neither a string nor an array" },
    { "{'content':{'type':'text','text':'a'}}", "\"content\" is neither a string nor an array" },
    { "{'content':['a']}", "\"content\"[0] is not an object with a \"type\"" },
    { "{'content':[{'type':'text','text':'a'},{'type':'image_url','image_url':{'url':'x'}}]}", "\"content\"[1] is of type \"image_url\"" },
    { "{'content':[{'type':'input_audio','input_audio':{}}]}", "\"content\"[0] is of type \"input_audio\"" },
    { "{'content':[{'type':'text'}]}", "\"content\"[0] has no \"text\" that is a string" },
    { "{'content':[{'type':'text','text':'a','txt':'b'}]}", "\"content\"[0]: there is no field \"txt\"; the nearest is \"text\"" },
    { "{'content':'x','tool_calls':{}}", "\"tool_calls\" is not an array" },
    { "{'content':'x','tool_calls':[1]}", "\"tool_calls\"[0] is not an object" },
    { "{'content':'x','tool_call_id':1}", "\"tool_call_id\" is not a string" },
    { "{'content':'x','name':['a']}", "\"name\" is not a string" },
    { "{'content':'x','reasoning_content':'a','thinking':'b'}", "\"reasoning_content\" and \"thinking\" differ" },
    { "{'content':'x','reasoning':1}", "\"reasoning\" is not a string" },
    { "{'content':'x','function_call':{'name':'f'}}", "\"function_call\" is not supported: \"tool_calls\" has calls" },
    { "{'content':'x','audio':{'id':'a'}}", "\"audio\" is not supported" },
    { "{'content':'x','images':['AA']}", "\"images\" is not supported" },
    { "['x']", "here is no JSON object" },
    { "7", "here is no JSON object" },
};

static const char *quoted(const char *text)
{
    static char out[512];
    size_t n = 0;
    for (; *text && n < sizeof out - 1; text++)
        out[n++] = *text == '\'' ? '"' : *text;
    out[n] = '\0';
    return out;
}

/* js_parse refuses a text that is no object or array. */
static struct js *parsed(const char *text)
{
    struct js *j = js_parse(text, strlen(text), "test", &e);
    return j;
}

static void messages(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m = { 0 };
        struct js *j = parsed(quoted(cases[i].text));
        int fine = *cases[i].want == '{';
        int r = j ? message_read(j, "here", "user", &m, &e) : err_set(&e, ERR_FORMAT, "here is no JSON object");
        js_free(j);
        j = r == 0 ? message_for_template(&m, 0) : NULL;
        char *got = j ? js_text(j, 0, 0) : NULL;
        CHECK_MSG(fine ? got && !strcmp(got, quoted(cases[i].want)) : r < 0 && strstr(e.msg, cases[i].want), "%s: %s", cases[i].text,
                  got ? got : e.msg);
        CHECK(r == 0 || (!m.role && !m.content && !m.more && !m.thought));
        free(got);
        js_free(j);
        message_free(&m);
    }
    struct message m;
    struct js *j = parsed("{\"content\":\"x\"}");
    CHECK(message_read(j, "here", NULL, &m, &e) == ERR_FORMAT && strstr(e.msg, "here has no field \"role\""));
    js_free(j);
}

static void tables(void)
{
    static const struct fields table[] = { { "temp", FIELDS_TAKEN, NULL }, { "n", FIELDS_TAKEN, NULL },
                                           { "user", FIELDS_NO_EFFECT, NULL }, { "penalty", FIELDS_IF_EMPTY, "never" },
                                           { "model", FIELDS_REFUSED, "ask" }, { NULL, FIELDS_TAKEN, NULL } };
    static const struct {
        const char *text, *says; /* NULL: accepted */
    } all[] = {
        { "{\"temp\":1,\"n\":2,\"user\":[3]}", NULL },
        { "{\"penalty\":0,\"user\":1}", NULL },
        { "{\"penalty\":null}", NULL },
        { "{\"penalty\":\"\"}", NULL },
        { "{\"penalty\":{}}", NULL },
        { "{\"penalty\":[]}", NULL },
        { "{\"penalty\":false}", NULL },
        { "{}", NULL },
        { "{\"penalty\":0.5}", "of: field \"penalty\" is not supported: never" },
        { "{\"penalty\":true}", "never" },
        { "{\"penalty\":[0]}", "never" },
        { "{\"model\":null}", "of: field \"model\" is not supported: ask" },
        { "{\"tmep\":1}", "of: there is no field \"tmep\"; the nearest is \"temp\"" },
        { "{\"TEMP\":1}", "the nearest is \"temp\"" },
        { "{\"temps\":1}", "the nearest is \"temp\"" },
        { "{\"m\":1}", "the nearest is \"n\"" },
        { "{\"usr\":1}", "of: there is no field \"usr\"" }, /* of what has no effect none is the nearest */
        { "{\"\":1}", "there is no field \"\"" },
        { "{\"something_that_is_longer_than_any_name\":1}", "there is no field \"something_that_is_longer_than_any_name\"" },
        { "[]", "of is no JSON object" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct js *j = parsed(all[i].text);
        int r = fields_check(j, table, sizeof *table, "of", &e);
        CHECK_MSG(all[i].says ? r < 0 && strstr(e.msg, all[i].says) : r == 0, "%s: %s", all[i].text, r < 0 ? e.msg : "");
        js_free(j);
    }
    CHECK(fields_check(NULL, table, sizeof *table, "of", &e) == ERR_FORMAT && !fields_given(NULL));
    struct js *j = parsed("[null, 0, \"\"]");
    CHECK(!fields_given(js_at(j, 0)) && fields_given(js_at(j, 1)) && fields_given(js_at(j, 2)));
    js_free(j);
}

int main(void)
{
    messages();
    tables();
    return test_done();
}
