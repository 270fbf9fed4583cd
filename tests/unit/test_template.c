/* Templates: constructs with what Jinja makes of them under trim_blocks and lstrip_blocks, derived by hand; refusals by name and
 * line; limits. */
#include "common/text/template.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static struct err e;
static size_t most = TEMPLATE_MAX_MEMORY;

static const char vars_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be kind. \"}, {\"role\": \"user\", \"content\": \"Hi\"},"
    " {\"role\": \"assistant\", \"content\": \"<think>hm</think>\\n\\nyes\"}], \"s\": \" a b \", \"n\": 3, \"x\": 2.5, \"yes\": true,"
    " \"none_here\": null, \"list\": [3, \"b\", [1]], \"words\": [\"b\", \"A\", \"c\"], \"d\": {\"b\": 1, \"a\": [1, \"\\u00e9\\n\"]}}";

/* What a template gives, or "!CODE message"; valid until the next call. */
static const char *rendered(const char *text)
{
    static char *out;
    static char failure[600];
    struct template *t;
    size_t len;
    struct js *vars = js_parse(vars_text, sizeof vars_text - 1, "variables", &e);
    free(out);
    out = NULL;
    int r = vars ? template_new(text, strlen(text), "template", most, &t, &e) : e.code;
    if (r == 0) {
        r = template_render(t, vars, 86400 * 365, most, &out, &len, &e);
        template_free(t);
    }
    js_free(vars);
    if (r == 0 && strlen(out) != len)
        return "another length";
    snprintf(failure, sizeof failure, "!%d %s", r, e.msg);
    return r == 0 ? out : failure;
}

static int gives(const char *text, const char *want)
{
    const char *got = rendered(text);
    if (!strcmp(got, want))
        return 1;
    printf("# '%s' gives '%s', not '%s'\n", text, got, want);
    return 0;
}

static int fails(const char *text, int code, const char *why)
{
    const char *got = rendered(text);
    char begin[16];
    snprintf(begin, sizeof begin, "!%d ", code);
    if (!strncmp(got, begin, strlen(begin)) && strstr(got, why))
        return 1;
    printf("# '%.60s' gives '%s', not %d '%s'\n", text, got, code, why);
    return 0;
}

static void white_space(void)
{
    CHECK(gives("a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\nb\nc"));      /* a newline behind a statement goes, one at the end too */
    CHECK(gives("  {% if yes %} b {% endif %}", " b "));                   /* blanks before a statement go at a line's begin */
    CHECK(gives("a {% if yes %} b{% endif %}", "a  b"));                   /* and stay behind text */
    CHECK(gives("a\n  {%- if yes -%}  \n b {%- endif %}", "ab"));
    CHECK(gives("a\n  {%+ if yes %}b{% endif +%}\nc", "a\n  b\nc"));
    CHECK(gives("{{ n }}\n{{- n -}} \n {{ n }}", "333"));
    CHECK(gives("a {#- b -#} c{# d #}\ne", "ac" "e"));
    CHECK(gives("a\r\nb\rc", "a\nb\nc"));
    CHECK(gives("{% raw %} {{ n }} {%- endraw %}!", " {{ n }}!"));
}

static void expressions(void)
{
    CHECK(gives("{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 % 4 }} {{ -7 // 2 }} {{ -7 % 4 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 4 / 2 }}",
                "6 3 -4 1 1024 3.5 2.0"));
    CHECK(gives("{{ 'a' ~ 1 ~ none ~ true }}{{ 'ab' 'cd' }}{{ 'x' * 3 }}", "a1NoneTrueabcdxxx"));
    CHECK(gives("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'b' in 'abc' }} {{ 'x' not in list }} {{ 'b' in d }}", "True False True True True"));
    CHECK(gives("{{ not yes or n == 3 and 'kept' }}{{ none_here or 'other' }}", "keptother"));
    CHECK(gives("{{ 'a' if n > 3 else 'b' }}{{ 'c' if n > 3 }}", "b"));
    CHECK(gives("{{ messages[-1].role }} {{ messages[0]['role'] }} {{ messages[9] }}{{ unknown }}", "assistant system "));
    CHECK(gives("{{ messages[1:] | length }}{{ messages[::-1][0].role }}{{ s[1:2] }}{{ 'abcd'[::-2] }}{{ 'abc'[-2:] }}",
                "2assistantadbbc"));
    CHECK(gives("{{ [1, 'x', 2.0, none, (1,)] }} {{ {'k': [true]} }}", "[1, 'x', 2.0, None, (1,)] {'k': [True]}"));
    CHECK(gives("{{ \"it's\" }} {{ [\"it's\"] }} {{ '\\n\\t\\u00e9\\q' }}", "it's [\"it's\"] \n\t\xc3\xa9\\q"));
    CHECK(gives("{{ 1e20 }} {{ 0.1 }} {{ 1.5e-7 }} {{ 100000000000000000 }}", "1e+20 0.1 1.5e-07 100000000000000000"));
    CHECK(gives("{{ n is odd }}{{ n is divisibleby 3 }}{{ s is string }}{{ d is mapping }}{{ nope is not defined }}{{ none_here is none }}",
                "TrueTrueTrueTrueTrueTrue"));
    CHECK(gives("{{ 5 - list | length }} {{ -1 | abs }}", "2 1"));       /* filters before arithmetic, behind signs */
}

static void statements(void)
{
    CHECK(gives("{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ m.role[0] }} {% endfor %}",
                "1TrueFalses 2FalseFalseu 3FalseTruea "));
    CHECK(gives("{% for m in messages if m.role != 'user' %}{{ loop.index0 }}{{ loop.length }}{{ loop.revindex }};{% endfor %}",
                "022;121;"));
    CHECK(gives("{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}>{{ loop.nextitem is defined }} "
                "{% endfor %}", "->True system>True user>False "));
    CHECK(gives("{% for k, v in d.items() %}{{ k }}={{ v }};{% else %}none{% endfor %}{% for x in [] %}{% else %}none{% endfor %}",
                "b=1;a=[1, '\xc3\xa9\\n'];none"));
    CHECK(gives("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% break %}{% else %}{{ i }}{% endif %}{% endfor %}",
                "023"));
    CHECK(gives("{% set a = 1 %}{% for i in range(3) %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}", "2221")); /* a loop's own */
    CHECK(gives("{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}", "4"));
    CHECK(gives("{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t %} {{ n }} {% endset %}[{{ t }}]{% set u | trim %} x {% endset %}[{{ u }}]",
                "12[ 3 ][x]"));
    CHECK(gives("{% macro f(a, b='B') %}<{{ a }}{{ b }}{{ n }}>{% endmacro %}{{ f(1) }}{{ f(b=2, a=1) }}", "<1B3><123>"));
    CHECK(gives("{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"));
    CHECK(gives("{% filter upper %}a{{ n }}{% endfilter %}{% generation %}g{% endgeneration %}", "A3g"));
    CHECK(gives("{% if not nope %}{{ strftime_now('%Y') }}{% endif %}", "1971"));
}

static void filters_and_methods(void)
{
    CHECK(gives("{{ s | trim }}{{ s | length }}{{ 'aB' | upper }}{{ 'aB' | lower }}{{ 'a-b c' | title }}{{ 'aB' | capitalize }}",
                "a b5ABabA-B CAb"));
    CHECK(gives("{{ d | tojson }} {{ d | tojson(indent=1) }}",
                "{\"b\": 1, \"a\": [1, \"\xc3\xa9\\n\"]} {\n \"b\": 1,\n \"a\": [\n  1,\n  \"\xc3\xa9\\n\"\n ]\n}"));
    CHECK(gives("{{ messages | map(attribute='role') | join(', ') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
                "{{ messages | rejectattr('role', 'in', ['user']) | list | length }}", "system, user, assistant 12"));
    CHECK(gives("{{ words | sort | join }} {{ words | first }}{{ words | last }} {{ nope | default('D') }}{{ '' | default('E', true) }}",
                "Abc bc DE"));
    CHECK(gives("{{ d | dictsort }} {{ d | items | list | length }} {{ ['a', 'A'] | unique | list }}",
                "[('a', [1, '\xc3\xa9\\n']), ('b', 1)] 2 ['a']"));
    CHECK(gives("{{ 'a<' | safe + '<&' + '>' | safe + '\\'\"' }} {{ ('<' | safe) ~ '<' }} {{ '<' + '>' }} {{ 'x<' + '<' | safe }}",
                "a<&lt;&amp;>&#39;&#34; << <> x&lt;<"));
    CHECK(gives("{{ 'ab-cd e\xe2\x80\xa8gH' | title }}", "Ab-Cd E\xe2\x80\xa8Gh"));
    CHECK(gives("{{ '5' | int + 1 }} {{ 2.9 | int }} {{ 'x' | int }} {{ n | string + '!' }} {{ 'abc' | replace('b', '') }} "
                "{{ 'a\nb' | indent(2) }}",
                "6 2 0 3! ac a\n  b"));
    CHECK(gives("{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }}",
                "yes ['a', 'b,c'] ['a', 'b']"));
    CHECK(gives("{{ 'xaxx'.strip('x') }}{{ 'ab'.startswith('a') }}{{ 'ab'.endswith(('x', 'b')) }}"
                "{{ 'hello world'.title() }}{{ 'a'.upper() }}",
                "aTrueTrueHello WorldA"));
    CHECK(gives("{{ d.get('z') }} {{ d.get('z', 0) }} {{ d.keys() | list }} {{ '{}-{k}'.format(1, k='v') }} {{ 'abcb'.rfind('b') }}",
                "None 0 ['b', 'a'] 1-v 3"));
    CHECK(gives("{{ none_here | selectattr('a') | list | length }}", "0"));
}

/* Where Jinja and Python have rules of their own; each was rendered by jinja2 3.1.6. */
static void as_python(void)
{
    static const char *const cases[][2] = {
        /* else: of a loop no turn of which came to its end */
        { "{% for i in [] %}x{% else %}e{% endfor %}", "e" },
        { "{% for i in [1, 2] %}x{% break %}{% else %}e{% endfor %}", "xe" },
        { "{% for i in [1, 2] %}x{% if i == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}", "xx" },
        { "{% for i in [1, 2] %}x{% continue %}{% else %}e{% endfor %}", "xxe" },
        { "{% for i in [1, 2] %}{% if i == 1 %}{% continue %}{% endif %}x{% else %}e{% endfor %}", "x" },
        /* int and float of strings */
        { "{{ ' 7 ' | int }} {{ '1_000' | int }} {{ '1__0' | int }} {{ '_1' | int(5) }} {{ '0x1f' | int }}"
          " {{ '0x1f' | int(0, 16) }}", "7 1000 0 5 0 31" },
        { "{{ '1f' | int(base=16) }} {{ '0b11' | int(0, 0) }} {{ '010' | int(9, 0) }} {{ '-2.9' | int }}"
          " {{ '1e3' | int }}", "31 3 10 -2 1000" },
        { "{{ '' | int }} {{ none | int }} {{ [] | int(4) }} {{ 'x' | int(none) }} {{ ' ' | int }}"
          " {{ 'nan' | int(3) }}", "0 0 4 None 0 3" },
        { "{{ '\\u2003-1_0\\n' | int }} {{ 'a9' | int(0, 36) }} {{ 'inf' | float }} {{ '-Infinity' | float }} {{ '1_0.5' | float }}",
          "-10 369 inf -inf 10.5" },
        { "{{ 'x' | float(2) }} {{ none | float }} {{ '.5' | float }} {{ '5.' | float }} {{ '.' | float }} {{ '0x1' | float }}",
          "2 0.0 0.5 5.0 0.0 0.0" },
        /* lines */
        { "{{ 'a\\u2028b\\u2029c\\x0bd\\x0ce\\x1cf\\x1dg\\x1eh\\x85i\\r\\nj\\rk\\n'.splitlines() | length }}"
          " {{ 'a\\n\\nb'.splitlines(true) }}",
          "11 ['a\\n', '\\n', 'b']" },
        { "{{ 'a\n\nb\n' | indent(2) }}|{{ 'a\nb' | indent('--', true) }}|{{ '' | indent(1, true) }}|{{ 'a\n\nb' | indent(1,"
          " blank=true) }}",
          "a\n\n  b\n|--a\n--b| |a\n \n b" },
        /* JSON */
        { "{{ [1] | tojson(indent='--') }} {{ [1] | tojson(indent=0) }} {{ [1] | tojson(indent=-1) }} {{ [] | tojson(indent=2) }}",
          "[\n--1\n] [\n1\n] [\n1\n] []" },
        { "{{ {none: 1, true: 2, 1.5: 3} | tojson }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ '\\x7f' | tojson }}",
          "{\"null\": 1, \"true\": 2, \"1.5\": 3} [1,2] \"\x7f" "\"" },
        /* white space of raw, text of values, numbers */
        { "{% raw %}\na\n  {% endraw %}\nb", "\na\nb" },
        { "{% raw -%}\n a {% endraw +%}\nb", "a \nb" },
        { "{{ ['\\xa0\\u200b\\u2028\\U000e0001\\u00e9'] }}", "['\\xa0\\u200b\\u2028\\U000e0001\xc3\xa9']" },
        { "{{ 1e100 % 3 }} {{ -7.5 // 2 }} {{ 5 % -3.0 }} {{ -0.0 % 3 }} {{ 1e22 % -5 }}", "1.0 -4.0 -1.0 0.0 -0.0" },
        { "{{ (2 ** 62 - 1 + 2 ** 62) // -5 }} {{ (2 ** 62 - 1 + 2 ** 62) % -5 }} {{ -7 // 7 }} {{ 7 // -2 }}",
          "-1844674407370955162 -3 -1 -4" },
        { "{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }}", "False True" },
        { "{{ 'aXbX'.count('X') }} {{ 'abc'.count('') }} {{ {'a': 1} | attr('a') }}|{{ true | abs }} {{ 2.5 is odd }}", "2 4 |1 False" },
        { "{{ messages | map(attribute='zz.y', default='-') | join }} {{ [[1], [1]] | sort | length }}", "--- 2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(gives(cases[i][0], cases[i][1]));
    CHECK(fails("{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}", ERR_UNSUPPORTED, "'varargs' is not known"));
    CHECK(fails("{{ '\\u0663' | int }}", ERR_UNSUPPORTED, "digits that are not ASCII"));
    CHECK(fails("{{ '99999999999999999999' | int }}", ERR_LIMIT, "past 64 bits"));
    CHECK(fails("{{ [1] | tojson(indent=2.5) }}", ERR_UNSUPPORTED, "indent that is a float"));
    CHECK(fails("{{ [1] | tojson(separators=',') }}", ERR_FORMAT, "separators that are not two strings"));
    CHECK(fails("{{ [1] | tojson(foo=1) }}", ERR_FORMAT, "an argument that it does not have"));
    CHECK(fails("{{ n +}}", ERR_FORMAT, "'the end of the tag' where"));
    CHECK(fails("{{ ','.join([1]) }}", ERR_FORMAT, "join of an integer, element 0"));
    CHECK(fails("{{ 'a'.startswith([]) }}", ERR_FORMAT, "a tuple of them"));
    CHECK(fails("{{ d.get('zz', default=1) }}", ERR_FORMAT, "no named arguments"));
    CHECK(fails("{{ [1, (2,)] | max }}", ERR_FORMAT, "have no order"));
    CHECK(fails("{{ [(1,), [1]] | max }}", ERR_FORMAT, "have no order"));
    CHECK(fails("{{ {[1]: 2} }}", ERR_FORMAT, "a list as a key"));
    CHECK(fails("{{ [[1]] | unique }}", ERR_FORMAT, "unique of a list"));
    CHECK(fails("{{ '{' .format(1) }}", ERR_FORMAT, "'{' alone"));
    CHECK(fails("{{ 'a{'.format(1) }}", ERR_FORMAT, "'{' alone") && fails("{{ 'a{}{1}'.format(1, 2) }}", ERR_FORMAT, "numbered"));
    CHECK(fails("{{ zz | int }}", ERR_FORMAT, "int of what is undefined"));
    CHECK(fails("{{ (-8) ** 0.5 }}", ERR_UNSUPPORTED, "complex"));
    CHECK(fails("{{ '\\u00e9'.isalpha() }}", ERR_UNSUPPORTED, "not ASCII"));
    CHECK(fails("{% filter length %}a{% endfilter %}", ERR_FORMAT, "gives an integer"));
}

static void refusals(void)
{
    CHECK(fails("a\n{% include 'x' %}", ERR_UNSUPPORTED, "line 2: statement 'include' is not known"));
    CHECK(fails("{{ s | wordwrap }}", ERR_UNSUPPORTED, "filter 'wordwrap' is not known"));
    CHECK(gives("{{ s | wordwrap if n == 9 }}", ""));                     /* where it is not reached, it does no harm */
    CHECK(fails("{{ s is escaped }}", ERR_UNSUPPORTED, "test 'escaped' is not known"));
    CHECK(fails("{{ lipsum() }}", ERR_UNSUPPORTED, "'lipsum' is called and is not known"));
    CHECK(fails("{% for x in list recursive %}{% endfor %}", ERR_UNSUPPORTED, "recursive"));
    CHECK(fails("{{ list.append(1) }}", ERR_UNSUPPORTED, "method 'append'"));
    CHECK(fails("\n{{ nope.role }}", ERR_FORMAT, "line 2: 'nope' is undefined"));
    CHECK(fails("{% for x in list %}{{ loop ~ 'a' }}{% endfor %}", ERR_UNSUPPORTED, "a namespace as text"));
    CHECK(fails("{{ 'a' + 1 }}", ERR_FORMAT, "a string + an integer"));
    CHECK(fails("{{ 1 // 0 }}", ERR_FORMAT, "division by zero"));
    CHECK(fails("{{ 9223372036854775 * 10000 }}", ERR_LIMIT, "64 bits"));
    CHECK(fails("{{ raise_exception('Roles must alternate') }}", ERR_USAGE, "the template refuses: Roles must alternate"));
    static const char *const broken[] = { "{% if yes %}", "{{ n", "{{ }}", "{% endif %}", "{% for in x %}{% endfor %}", "{{ 'a }}", "{# ",
                                          "{{ a b }}", "{% set 1 = 2 %}", "{{ f(a=1 }}", "{{ 1 $ 2 }}", "{% raw %}" };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        CHECK(rendered(broken[i])[0] == '!' && (e.code == ERR_FORMAT || e.code == ERR_UNSUPPORTED));
}

static void limits(void)
{
    CHECK(fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ERR_LIMIT, "deep"));
    CHECK(fails("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", ERR_LIMIT, "than"));
    CHECK(fails("{{ 'x' * 99999999999 }}", ERR_LIMIT, "output"));
    char deep[2000];
    memset(deep, '(', sizeof deep);
    memcpy(deep, "{{", 2);
    deep[sizeof deep - 1] = '\0';
    CHECK(fails(deep, ERR_LIMIT, "nested"));
    char *large = calloc(1, TEMPLATE_MAX_SOURCE + 2);
    memset(large, 'a', TEMPLATE_MAX_SOURCE + 1);
    CHECK(fails(large, ERR_LIMIT, "limit"));
    free(large);
    most = 4096;
    CHECK(gives("{{ s * 9 }}", " a b  a b  a b  a b  a b  a b  a b  a b  a b "));
    CHECK(fails("{{ s * 999 }}", ERR_LIMIT, "more than 4096 bytes"));
    CHECK(fails("{% for i in range(999) %}{{ s }}{% endfor %}", ERR_LIMIT, "more than 4096 bytes"));
    char *long_one = calloc(1, 20001);
    memset(long_one, 'a', 20000);
    CHECK(fails(long_one, ERR_LIMIT, "takes more than 4096 bytes"));
    CHECK(fails("{{ [1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9] }}", ERR_LIMIT, "4096"));
    free(long_one);
    most = 300 << 10; /* what is taken out of a text that grew is free again */
    CHECK(!strcmp(rendered("{% for i in range(150) %}{% set x %}{{ s * 40 }}{% endset %}{% endfor %}ok"), "ok"));
    most = TEMPLATE_MAX_MEMORY;
}

int main(void)
{
    as_python();
    setenv("TZ", "UTC", 1);
    white_space();
    expressions();
    statements();
    filters_and_methods();
    refusals();
    limits();
    rendered("");
    return test_done();
}
