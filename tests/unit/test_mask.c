/* Masks of schemas: texts that a schema accepts and such that it does not,
  byte by byte; masks beside what each token alone says; keywords
 * that are refused; memory for states that is as small as may be. */
#include "runtime/mask/mask.h"
#include "runtime/mask/schema.h"
#include "runtime/mask/states.h"
#include "tests/test.h"

#include <string.h>

static struct err e;

static struct js *parse(const char *text)
{
    struct js *j = js_parse(text, strlen(text), "a schema", &e);
    if (!j) {
        printf("# %s: %s\n", text, e.msg);
        abort();
    }
    return j;
}

/* 1: a text of the schema; 0: it is none. */
static int accepts(const char *schema, const char *text, size_t bytes)
{
    struct js *j = schema ? parse(schema) : NULL;
    struct grammar *g;
    int r = schema_grammar(j, &g, &e);
    js_free(j);
    if (r < 0) {
        printf("# %s: %s\n", schema, e.msg);
        return -1;
    }
    struct states *s = states_new(g, bytes);
    int at = states_first(s), *keep[] = { &at };
    for (const char *c = text; *c && at > 0; c++) {
        int next = states_next(s, at, g->class[(unsigned char)*c]);
        if (next == STATES_FULL) {
            CHECK(states_forget(s, keep, 1) == 0);
            next = states_next(s, at, g->class[(unsigned char)*c]);
        }
        at = next;
    }
    r = at > 0 && states_may_end(s, at);
    states_free(s);
    grammar_free(g);
    return r;
}

#define OBJ "\"type\":\"object\",\"additionalProperties\":false"

static void test_texts(void)
{
    static const struct {
        const char *schema, *yes[10], *no[10];
    } cases[] = {
        { NULL, { "{}", "{\"a\": [1, 2.5, {\"b\": null}]}", "{ \"a\":true,\n    \"b\":\"\\u00e9\\n\"}" }, { "[]", "{\"a\"}", "{\"a\":1,"
          "}", "{", "1" } },
        { "{}", { "1", "\"a\"", "[[], {}]", "-0.5e-3", "null" }, { "01", "+1", "'a'", "nul", "\"\\x\"", "[1 2]" } },
        { "{\"type\":\"string\"}", { "\"\"", "\"a\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\"", "\"\\\"\"" },
          { "\"", "\"\xc3\"", "\"\xff\"", "\"\n\"", "\"\\ud83d\"", "\"\\u0000\"", "1", "\"\xed\xa0\x80\"", "\"\xc0\x80\"" } },
        { "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", { "\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\n\\n\"",
          "\"\\ud83d\\ude00x\"" },
          { "\"a\"", "\"abcd\"", "\"\"" } },
        { "{\"type\":\"string\",\"minLength\":40}", { "\"0123456789012345678901234567890123456789\"" },
          { "\"012345678901234567890123456789012345678\"" } },
        { "{\"type\":\"integer\"}", { "0", "-12", "999999999999999" }, { "1.0", "01", "-", "1e3", "1000000000000000" } },
        { "{\"type\":\"integer\",\"minimum\":-12,\"maximum\":345}", { "-12", "-1", "0", "9", "10", "99", "100", "345" },
          { "-13", "-20", "346", "400", "1000", "-0" } },
        { "{\"type\":\"integer\",\"exclusiveMinimum\":9.5,\"exclusiveMaximum\":12}", { "10", "11" }, { "9", "12", "1", "-10" } },
        { "{\"type\":\"integer\",\"maximum\":-5}", { "-5", "-10" }, { "-4", "0", "5" } },
        { "{\"type\":\"number\"}", { "1", "-1.25", "1e5", "0.001", "2E-10" }, { "1.", ".5", "1e", "00" } },
        { "{\"type\":\"number\",\"minimum\":0}", { "0", "1.5" }, { "-1", "-0.5" } },
        { "{\"type\":[\"null\",\"boolean\"]}", { "null", "true", "false" }, { "0", "\"true\"" } },
        { "{\"enum\":[\"a\",\"ab\",\"abc\",1,null,{\"x\":[1]}]}", { "\"a\"", "\"abc\"", "1", "null", "{\"x\":[1]}" }, { "\"abd\"", "2",
          "\"\"", "{\"x\":[2]}" } },
        { "{\"type\":\"string\",\"enum\":[\"a\",1,\"a\",\"a\"]}", { "\"a\"" }, { "1" } },
        { "{\"const\":\"x\\\"y\"}", { "\"x\\\"y\"" }, { "\"xy\"" } },
        { "{" OBJ ",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"},\"c\":{}},\"required\":[\"b\"]}",
          { "{\"b\":\"\"}", "{\"a\": 1, \"b\": \"x\"}", "{\"b\":\"\",\"c\":[{}]}", "{\n  \"a\": 1,\n  \"b\": \"x\"\n}" },
          { "{}", "{\"a\":1}", "{\"b\":\"\",\"a\":1}", "{\"b\":\"\",\"d\":1}", "{\"b\":\"\"", "{\"b\":\"\",}", "{,\"b\":\"\"}" } },
        { "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"},\"ac\":{}},\"additionalProperties\":{\"type\":\"null\"}}",
          { "{}", "{\"a\":null}", "{\"ab\":1,\"abc\":null,\"x\":null}", "{\"\":null}", "{\"\xc3\xa9\":null}" },
          { "{\"ab\":null}", "{\"x\":1}", "{\"a\":null,\"ab\":null}", "{\"\\u0061b\":null}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{}}}", { "{}", "{\"a\":1}" }, { "{\"b\":1}" } },
        { "{\"type\":\"object\",\"required\":[\"z\"]}", { "{\"z\":1}" }, { "{}" } },
        { "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}", { "[1]", "[1, 2, 3]", "[\n  1,\n  "
          "2\n]" }, { "[]", "[1,2,3,4]", "[\"a\"]", "[1,]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":false}", { "[]", "[1]", "[1,"
          "\"\"]" }, { "[\"\"]", "[1,\"\",1]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},\"minItems\":2}", { "[1,null]",
          "[1,null,null]" }, { "[1]", "[1,1]", "[]" } },
        { "{\"items\":false}", { "[]" }, { "[1]", "1" } },
        { "{\"type\":\"array\",\"maxItems\":0}", { "[]" }, { "[1]" } },
        { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},{\"const\":12}]}", { "12", "[1]",
          "3" }, { "\"\"", "[\"\"]" } },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", { "1", "\"\"" }, { "null" } },
        { "{\"oneOf\":[{" OBJ ",\"properties\":{\"k\":{\"const\":1},\"a\":{}},\"required\":[\"k\"]},{" OBJ ","
          "\"properties\":{\"k\":{\"const\":2},\"b\":{}},"
          "\"required\":[\"k\"]}]}", { "{\"k\":1,\"a\":0}", "{\"k\":2,\"b\":0}", "{\"k\":2}" }, { "{\"k\":1,\"b\":0}", "{\"k\":3}" } },
        { "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"properties\":{\"a\":{\"minimum\":5},"
          "\"b\":{\"type\":\"null\"}}}]}",
          { "{\"a\":5}", "{\"a\":7,\"b\":null}" }, { "{\"a\":4}", "{\"b\":null}" } },
        { "{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{" OBJ ",\"properties\":{\"v\":{\"type\":\"integer\"},"
          "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/node\"},"
          "{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}}}", { "{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,"
          "\"next\":null}}" }, { "{\"v\":1}", "null" } },
        { "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", { "[]", "[[],[[]]]" }, { "[1]" } },
        { "{\"pattern\":\"^[a-c]+\\\\d{2,3}$\"}", { "\"a12\"", "\"abc123\"" }, { "\"12\"", "\"a1\"", "\"a1234\"", "\"d12\"" } },
        { "{\"pattern\":\"b\"}", { "\"b\"", "\"abc\"", "\"\xc3\xa9" "b\"" }, { "\"a\"", "\"\"" } },
        { "{\"pattern\":\"^(x|yz)?[^\\\"a-z]$\"}", { "\"x1\"", "\"yzA\"", "\"\xc3\xa9\"", "\"\\\\\"" }, { "\"\\\"\"", "\"a\"",
          "\"xx1\"" } },
        { "{\"pattern\":\"^\\\\w+@\\\\w+\\\\.(com|org)$\"}", { "\"a_b@c.com\"" }, { "\"a@b\"", "\"@b.org\"" } },
        { "{\"pattern\":\"^.{2}\\u00e9$\"}", { "\"ab\xc3\xa9\"", "\"\xe4\xbd\xa0\xe5\xa5\xbd\xc3\xa9\"" }, { "\"a\xc3\xa9\"" } },
        { "{\"format\":\"date\"}", { "\"2024-02-28\"", "\"1999-12-31\"" }, { "\"2024-02-30\"", "\"2024-13-01\"", "\"2024-04-31\"",
          "\"24-01-01\"" } },
        { "{\"format\":\"date-time\"}", { "\"2024-02-28T23:59:59Z\"", "\"2024-02-28T00:00:00.5+01:30\"" }, { "\"2024-02-28\"",
          "\"2024-02-28T24:00:00Z\"" } },
        { "{\"format\":\"uuid\"}", { "\"123e4567-e89b-12d3-a456-426614174000\"" }, { "\"123e4567\"" } },
        { "{\"format\":\"ipv4\"}", { "\"0.10.255.99\"" }, { "\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\"" } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int k = 0; k < 10 && cases[i].yes[k]; k++)
            for (size_t bytes = STATES_LEAST; bytes <= 1 << 20; bytes *= 4)
                CHECK_MSG(accepts(cases[i].schema, cases[i].yes[k], bytes) == 1, "%s does not accept %s", cases[i].schema,
                  cases[i].yes[k]);
        for (int k = 0; k < 10 && cases[i].no[k]; k++)
            CHECK_MSG(accepts(cases[i].schema, cases[i].no[k], 1 << 20) == 0, "%s accepts %s", cases[i].schema, cases[i].no[k]);
    }
}

static void test_refused(void)
{
    static const struct {
        const char *schema, *says;
        int code;
    } cases[] = {
        { "{\"not\":{}}", "\"not\"", ERR_UNSUPPORTED }, { "{\"if\":{}}", "\"if\"", ERR_UNSUPPORTED },
        { "{\"patternProperties\":{}}", "\"patternProperties\"", ERR_UNSUPPORTED }, { "{\"propertyNames\":{}}", "\"propertyNames\"",
          ERR_UNSUPPORTED },
        { "{\"dependentRequired\":{}}", "\"dependentRequired\"", ERR_UNSUPPORTED }, { "{\"dependentSchemas\":{}}",
          "\"dependentSchemas\"", ERR_UNSUPPORTED },
        { "{\"minProperties\":1}", "\"minProperties\"", ERR_UNSUPPORTED }, { "{\"maxProperties\":1}", "\"maxProperties\"",
          ERR_UNSUPPORTED },
        { "{\"uniqueItems\":true}", "\"uniqueItems\"", ERR_UNSUPPORTED }, { "{\"contains\":{}}", "\"contains\"", ERR_UNSUPPORTED },
        { "{\"unevaluatedProperties\":false}", "\"unevaluatedProperties\"", ERR_UNSUPPORTED }, { "{\"$dynamicRef\":\"#\"}",
          "\"$dynamicRef\"", ERR_UNSUPPORTED },
        { "{\"$anchor\":\"a\"}", "\"$anchor\"", ERR_UNSUPPORTED }, { "{\"contentEncoding\":\"base64\"}", "\"contentEncoding\"",
          ERR_UNSUPPORTED },
        { "{\"additionalItems\":{}}", "\"additionalItems\"", ERR_UNSUPPORTED }, { "{\"dependencies\":{}}", "\"dependencies\"",
          ERR_UNSUPPORTED },
        { "{\"properties\":{\"a\":{\"nope\":1}}}", "\"nope\"", ERR_UNSUPPORTED }, { "{\"multipleOf\":5}", "\"multipleOf\"",
          ERR_UNSUPPORTED },
        { "{\"type\":\"number\",\"maximum\":5}", "\"maximum\"", ERR_UNSUPPORTED }, { "{\"type\":\"number\",\"minimum\":0.5}",
          "\"minimum\"", ERR_UNSUPPORTED },
        { "{\"type\":\"number\",\"multipleOf\":0.1}", "\"multipleOf\"", ERR_UNSUPPORTED }, { "{\"format\":\"email\"}", "\"email\"",
          ERR_UNSUPPORTED },
        { "{\"pattern\":\"a\",\"maxLength\":3}", "\"pattern\"", ERR_UNSUPPORTED }, { "{\"pattern\":\"(?=a)\"}", "look-around",
          ERR_UNSUPPORTED },
        { "{\"pattern\":\"(a)\\\\1\"}", "back reference", ERR_UNSUPPORTED }, { "{\"pattern\":\"\\\\bx\"}", "escape", ERR_UNSUPPORTED },
        { "{\"pattern\":\"a+?\"}", "lazy", ERR_UNSUPPORTED }, { "{\"pattern\":\"(a*)*\"}", "empty", ERR_UNSUPPORTED },
          { "{\"pattern\":\"^a|b$\"}", "group", ERR_UNSUPPORTED },
        { "{\"pattern\":\"(a\"}", "group without", ERR_FORMAT }, { "{\"pattern\":\"[a\"}", "set without", ERR_FORMAT },
          { "{\"pattern\":\"*\"}", "repeat", ERR_FORMAT },
        { "{\"$ref\":\"other.json\"}", "other.json", ERR_UNSUPPORTED }, { "{\"$ref\":\"#/$defs/x\"}", "#/$defs/x", ERR_FORMAT },
        { "{\"$ref\":\"#\"}", "", 0 }, /* it says nothing else: any value */
        { "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "itself", ERR_UNSUPPORTED },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "\"oneOf\"", ERR_UNSUPPORTED }, { "{\"oneOf\":[{\"enum\":[1,2]},"
          "{\"const\":2}]}", "\"oneOf\"", ERR_UNSUPPORTED },
        { "{\"oneOf\":[{\"type\":\"object\"},{\"type\":\"object\"}]}", "\"oneOf\"", ERR_UNSUPPORTED },
        { "{\"allOf\":[{\"minimum\":1},{\"minimum\":2}]}", "\"minimum\"", ERR_UNSUPPORTED },
        { "{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{\"b\":{}}}]}",
          "\"additionalProperties\"", ERR_UNSUPPORTED },
        { "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no integer", ERR_FORMAT }, { "{\"type\":\"text\"}", "\"text\"",
          ERR_FORMAT },
        { "{\"allOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", "\"type\"", ERR_FORMAT }, { "{\"enum\":[]}", "\"enum\"",
          ERR_FORMAT },
        { "{\"type\":\"string\",\"enum\":[1]}", "\"enum\"", ERR_FORMAT }, { "{\"minLength\":3,\"maxLength\":2}", "\"minLength\"",
          ERR_FORMAT },
        { "{\"minItems\":3,\"maxItems\":2}", "\"minItems\"", ERR_FORMAT }, { "{\"enum\":[1],\"minimum\":0}", "\"minimum\"",
          ERR_UNSUPPORTED },
        { "{\"required\":[\"a\"],\"additionalProperties\":false}", "\"a\"", ERR_FORMAT }, { "{\"properties\":{\"a\":false}}",
          "\"false\"", ERR_FORMAT }, { "[]", "schema", ERR_FORMAT },
        { "{\"pattern\":\"^((((a{100}){100}){100}){100}){100}$\"}", "", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct js *j = parse(cases[i].schema);
        struct grammar *g = NULL;
        e = (struct err){ 0 };
        int r = schema_grammar(j, &g, &e);
        CHECK_MSG(r == cases[i].code && strstr(e.msg, cases[i].says), "%s: %d %s", cases[i].schema, r, e.msg);
        if (r == 0)
            grammar_free(g);
        js_free(j);
    }
}

/* ---- masks ---- */

enum { VOCAB = 4000 };
static char pieces[VOCAB][40];
static size_t piece_bytes[VOCAB];

static const char *piece(const void *ctx, int32_t id, size_t *n, int *control)
{
    (void)ctx;
    *control = id >= VOCAB - 3;
    *n = piece_bytes[id];
    return pieces[id];
}

static uint64_t random_state = 1;
static unsigned draw(unsigned n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

/* All bytes, pieces of JSON, and what is cut anywhere. */
static void make_words(void)
{
    static const char *const parts[] = { "\"", "\\", "{", "}", "[", "]", ":", ",", " ", "\n", "true", "null", "a", "b", "name", "1",
      "23", ".5",
                                         "\xc3\xa9", "\xf0\x9f\x98\x80", "\xe4\xbd", "\\u00", "\\n", "e", "-", "0", "value", "    ",
                                         "\": \"", "\", \"" };
    for (int i = 0; i < VOCAB; i++) {
        size_t n = 0;
        if (i < 256)
            pieces[i][n++] = (char)i;
        else if (i % 50)
            for (unsigned k = 1 + draw(6); k > 0; k--) {
                const char *p = parts[draw(sizeof parts / sizeof parts[0])];
                for (; *p && n < 39; p++)
                    pieces[i][n++] = *p;
            }
        piece_bytes[i] = n;
    }
}

static void test_masks(void)
{
    static const char *const schemas[] = {
        "{\"type\":\"string\"}", "{\"type\":\"string\",\"maxLength\":20}", "{\"type\":\"string\",\"minLength\":50,\"maxLength\":100}",
        "{}",
        "{" OBJ ",\"properties\":{\"name\":{\"type\":\"string\"},\"value\":{\"type\":\"number\"},\"a\":{\"type\":\"array\","
        "\"items\":{\"enum\":[\"a\",\"b\",null]}}}}",
        "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":123},\"minItems\":40,\"maxItems\":41}",
        "{\"type\":\"object\",\"additionalProperties\":{\"pattern\":\"^[a-e]+\\\\d?$\"}}",
    };
    struct mask_words *w;
    static uint64_t bits[(VOCAB + 63) / 64];
    make_words();
    CHECK(mask_words_new(piece, NULL, VOCAB, &w, &e) == 0);
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        struct js *j = parse(schemas[i]);
        struct mask *m;
        struct mask_text t = { 0 }, other = { 0 };
        int same = 1, steps = 0, ended = 0;
        CHECK(mask_new(j, w, &m, &e) == 0);
        js_free(j);
        for (int text = 0; text < TEST_CASES(24); text++) {
            CHECK(mask_begin(m, &t, &e) == 0);
            for (int step = 0; step < 120 && same; step++, steps++) {
                int may_end = 0, n = mask_allowed(&t, bits, &may_end, &e), found = 0, allowed[VOCAB];
                ended += may_end;
                for (int id = 0; id < VOCAB && (step % 8 == text % 8 || TEST_SANITIZER == 0); id++) {
                    int bit = (int)(bits[id / 64] >> id % 64 & 1);
                    other = (struct mask_text){ .state = t.state, .mask = m };
                    if (mask_accept(&other, id, &e) != bit)
                        same = (printf("# %s: token %d '%.*s'\n", schemas[i], id, (int)piece_bytes[id], pieces[id]), 0);
                }
                for (int id = VOCAB - 3; id < VOCAB; id++)
                    same = same && !(bits[id / 64] >> id % 64 & 1); /* control tokens */
                for (int id = 0; id < VOCAB; id++)
                    if (bits[id / 64] >> id % 64 & 1)
                        allowed[found++] = id;
                same = same && found == n && (n > 0 || may_end);
                if (n == 0)
                    break;
                CHECK(mask_accept(&t, allowed[draw((unsigned)n)], &e) == 1);
            }
            mask_end(&t);
        }
        CHECK_MSG(same && steps > 10, "%s", schemas[i]);
        (void)ended;
        mask_free(m);
    }
    mask_words_free(w);
}

int main(void)
{
    test_texts();
    test_refused();
    test_masks();
    return test_done();
}
