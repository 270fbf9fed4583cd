#!/usr/bin/env python3
"""template_oracle.py PROGRAM CASES [SEED [SHOW]]: chat templates made at random, rendered by PROGRAM (tests/tools/template-lines) and by
jinja2 as transformers runs it. They give the same text, or both refuse, or PROGRAM refuses what it says it does not know; anything else is
printed (SHOW of a kind) and fails. Exit status 77: there is no jinja2."""
import collections
import copy
import json
import random
import subprocess
import sys
import warnings

warnings.simplefilter("ignore")
try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    sys.exit(77)

VARS = {
    "e": "", "a": "abc", "b": " a  b\tc ", "lines": "one\ntwo\r\nthree\rfour\n\n", "odd": "x\u2028y\u2029z\x0bv\x0cw\x1c1\x1d2\x1e3\x854",
    "u": "\u00aa中\U0001f600", "up": "\u00aaBC d中f", "quotes": "it's \"q\" \\ \x7f\x01\u00a0\u200b", "html": "<b a='1'>&amp;</b>", "digits": "42",
    "blanks": "  7 ", "hex": "0x1F", "under": "1_000", "real": " 2.50 ", "exp": "1e3", "neg": "-3", "nan": "nan", "inf": "-inf", "arab": "٣",
    "words": "the quick  (brown) fox-trot o'neil", "dots": "a.b.c", "braces": "{} {0} {x}",
    "zero": 0, "one": 1, "n": 7, "m": -5, "big": 2 ** 53, "max": 2 ** 63 - 1, "x": 2.5, "y": -0.1, "tiny": 1e-7, "huge": 1e22, "wide": 123456789.125,
    "nought": -0.0, "six": 1e16, "t": True, "f": False, "none_": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.5, [1], {"k": 1}], "empty": [], "nested": [[1, 2], [3], []],
    "floats": [1.5, 1, True, 0], "dups": ["a", "A", "b", "a", 1, 1.0, True],
    "d": {"b": 1, "a": [1, "中\n"], "C": None, "items": 5, "k-x": "v"}, "d2": {"z": {"y": {"x": [1, {"w": "q"}]}}}, "no": {},
    "ms": [{"role": "system", "content": " Be. ", "n": 2}, {"role": "user", "content": "Hi", "tags": ["p", "q"], "n": 1},
           {"role": "assistant", "content": None, "n": 3, "f": {"g": "h"}}, {"role": "user", "content": "x<y"}],
}


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def by_design(template, ours, theirs):
    """Addresses and names of classes, which no template means, and the case of letters that are not ASCII (docs/chat.md)."""
    if any(x in theirs for x in (" object at 0x", "<function", "<generator", "<dict_reverse", "Markup(", "dict_items(", "dict_keys(", "dict_values(")):
        return True
    cased = any(x in template for x in ("upper", "lower", "title", "capitalize", "sort", "unique", "min", "max"))
    return cased and sorted(ours.upper()) == sorted(theirs.upper()) and not theirs.isascii()


STRINGS = [k for k, v in VARS.items() if isinstance(v, str)]
INTS = ["zero", "one", "n", "m", "big", "max"]
FLOATS = ["x", "y", "tiny", "huge", "wide", "nought", "six"]
LISTS = ["l", "ls", "mixed", "empty", "nested", "floats", "dups", "ms"]
DICTS = ["d", "d2", "no", "ms[0]", "ms[1]", "ms[2]"]
LITERALS = ["''", "'a'", "' '", "'\\n'", "'ab'", "'中'", "','", "'A'", "\"it's\"", "'b'", "'o'", "'\\t'", "'\\\\'", "'\\x41\\u00aa'", "'x' 'y'"]
STRING_METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip()", "title()", "capitalize()", "splitlines()", "split()", "isdigit()",
                  "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "rsplit()", "splitlines(true)", "istitle()", "swapcase()",
                  "casefold()", "isnumeric()", "isdecimal()", "expandtabs()", "zfill(5)", "center(9)", "ljust(5)", "rjust(5)", "encode()"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "iterable", "sequence",
         "callable", "lower", "upper", "odd", "even"]
FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "count", "string", "list", "first", "last", "int", "float", "abs",
           "reverse|list", "sort", "unique|list", "min", "max", "sum", "items|list", "dictsort", "tojson", "join", "indent", "round", "default",
           "urlencode", "wordcount", "escape", "e", "batch(2)", "slice(2)", "random", "pprint", "striptags", "xmlattr", "filesizeformat",
           "groupby('role')", "center", "truncate(5)", "format(1)", "forceescape", "wordwrap(4)"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *of):
        return self.r.choice(of)

    def name(self):
        return self.r.choice(list(VARS))

    def string(self, d):
        k = self.r.randrange(16 if d > 0 else 2)
        if k == 0:
            return self.r.choice(STRINGS)
        if k == 1:
            return self.r.choice(LITERALS)
        s = self.any(d - 1) if self.r.random() < .06 else self.string(d - 1)
        if k == 2:
            return "%s|%s" % (s, self.pick("trim", "upper", "lower", "title", "capitalize", "string", "reverse", "trim('a ')"))
        if k == 3:
            return "(%s).%s" % (s, self.pick("upper()", "lower()", "strip()", "lstrip()", "rstrip()", "title()", "capitalize()"))
        if k == 4:
            return "(%s).%s(%s)" % (s, self.pick("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"), self.string(0))
        if k == 5:
            return "(%s).replace(%s, %s%s)" % (s, self.string(0), self.string(0), self.pick("", "", ", 1", ", -1", ", 0", ", 2"))
        if k == 6:
            return "%s|replace(%s, %s%s)" % (s, self.string(0), self.string(0), self.pick("", "", ", 1", ", none", ", 0", ", count=1"))
        if k == 7:
            return "(%s)[%s]" % (s, self.slice())
        if k == 8:
            return "(%s ~ %s)" % (s, self.any(d - 1))
        if k == 9:
            return "(%s + %s)" % (s, self.string(d - 1))
        if k == 10:
            return "(%s * %s)" % (s, self.pick("0", "2", "-1", "true", "one"))
        if k == 11:
            return "(%s)|join(%s)" % (self.list(d - 1), self.string(0))
        if k == 12:
            return "(%s).join(%s)" % (self.string(0), self.list(d - 1))
        if k == 13:
            return "%s|tojson%s" % (self.any(d - 1), self.json())
        if k == 14:
            return "%s|indent%s" % (s, self.pick("", "(2)", "(2, true)", "(width=3, first=true, blank=true)", "('--')", "(0)", "(1, false, true)"))
        return "%s.format(%s)" % (self.pick("braces", "'{}-{}'", "'{1}{0}'", "'{x}'", "'{{}}'", "'{'", "'{}{1}'"), self.pick(
            "", "1", "1, 2", "a, x=2", "x=none", "l, d", "x", "t, f, x=1"))

    def json(self):
        return self.pick("", "", "", "(indent=2)", "(indent=0)", "(indent=none)", "(indent='--')", "(indent='')", "(indent=true)", "(true)",
                         "(sort_keys=true)", "(separators=(',', ':'))", "(ensure_ascii=true)", "(indent=4, sort_keys=true)", "(indent=-1)",
                         "(indent=1, separators=(',', ': '))", "(false, 2)", "(separators=[',', ':'])", "(indent=2.5)", "(indent=70)",
                         "(separators=(','))", "(separators=none)", "(indent=false)", "(foo=1)")

    def slice(self):
        b = lambda: self.pick("", "", "0", "1", "-1", "2", "-2", "5", "-9", "none", "n", "99")
        if self.r.random() < .35:
            return self.pick("0", "-1", "1", "2", "99", "-4", "n", "true", "'a'", "1.0")
        return b() + ":" + b() + self.pick("", "", ":" + b())

    def int(self, d):
        k = self.r.randrange(9 if d > 0 else 2)
        if k == 0:
            return self.r.choice(INTS)
        if k == 1:
            return self.pick("0", "1", "2", "-1", "10", "3", "1_000", "7")
        if k == 2:
            return "%s|int%s" % (self.any(d - 1), self.pick("", "", "", "(5)", "(default=-1)", "(0, 16)", "(0, 2)", "(base=0)", "(0, 8)"))
        if k == 3:
            return "%s|length" % self.pick(self.list, self.string, self.dict)(d - 1)
        if k == 4:
            return "(%s %s %s)" % (self.int(d - 1), self.pick("+", "-", "*", "//", "%"), self.int(d - 1))
        if k == 5:
            return self.pick("(-%s)", "(%s ** 2)", "(%s ** 0)", "(2 ** -%s)", "(-%s ** 2)") % self.pick("n", "m", "one", "3", "t")
        if k == 6:
            return "%s|abs" % self.number(d - 1)
        if k == 7:
            return "(%s).%s(%s)" % (self.string(d - 1), self.pick("find", "rfind", "count", "index"), self.string(0))
        return "(%s).%s(%s)" % (self.list(d - 1), self.pick("index", "count"), self.any(0))

    def number(self, d):
        k = self.r.randrange(6 if d > 0 else 2)
        if k == 0:
            return self.r.choice(FLOATS)
        if k == 1:
            return self.pick("0.5", "1.0", "2e3", "1.5e-7", "100.25", "3.0", "1e100")
        if k == 2:
            return "%s|float%s" % (self.any(d - 1), self.pick("", "", "(1.5)", "(default=2)"))
        if k == 3:
            return "(%s %s %s)" % (self.number(d - 1), self.pick("+", "-", "*", "/", "//", "%"), self.int(d - 1))
        if k == 4:
            return self.int(d - 1)
        return "%s|round%s" % (self.number(d - 1), self.pick("", "(1)", "(2, 'floor')"))

    def list(self, d):
        k = self.r.randrange(17 if d > 0 else 2)
        if k == 0:
            return self.r.choice(LISTS)
        if k == 1:
            return self.pick("[]", "[1, 2, 3]", "['a', 'B']", "(1, 'x')", "()", "(1,)", "[none, true]", "[[1], (2,)]", "range(3)|list",
                             "range(1, 8, 3)|list", "range(5, 0, -2)|list")
        v = self.any(d - 1) if self.r.random() < .06 else self.list(d - 1)
        if k == 2:
            return "(%s)[%s:%s]" % (v, self.pick("", "1", "-2", "none"), self.pick("", "2", "-1", "9", "::-1"[1:]))
        if k == 3:
            return "(%s)|%s" % (v, self.pick("list", "reverse|list", "sort", "sort(reverse=true)", "unique|list", "sort(case_sensitive=true)",
                                             "sort(true)"))
        if k == 4:
            return "(%s)|%s('%s')|list" % (v, self.pick("select", "reject"), self.r.choice(TESTS))
        if k == 5:
            return "(%s)|%s|list" % (v, self.pick("select", "reject", "select('in', l)", "reject('equalto', 1)", "select('gt', 1)",
                                                  "select('ne', 'a')", "select('divisibleby', 2)"))
        if k == 6:
            return "(%s)|map('%s')|list" % (v, self.r.choice([f for f in FILTERS if "(" not in f and "|" not in f]))
        if k == 7:
            return "ms|%s('%s'%s)|list" % (self.pick("selectattr", "rejectattr"), self.pick("role", "n", "content", "f.g", "zz", "tags"),
                                           self.pick("", ", 'equalto', 'user'", ", 'defined'", ", 'none'", ", 'in', ['user', 1]", ", 'gt', 1"))
        if k == 8:
            return "ms|map(attribute='%s'%s)|list" % (self.pick("role", "n", "f.g", "content", "zz"), self.pick("", ", default='-'"))
        if k == 9:
            return "(%s + %s)" % (v, self.list(d - 1))
        if k == 10:
            return "(%s * %s)" % (v, self.pick("0", "2", "-1", "true"))
        if k == 11:
            return "(%s).%s" % (self.string(d - 1), self.pick("split()", "split(' ')", "split(',', 1)", "split('\\n')", "splitlines()", "rsplit(' ', 1)",
                                                              "rsplit()", "split(none, 1)", "split('')", "split(maxsplit=1)", "splitlines(true)",
                                                              "splitlines(keepends=true)", "rsplit('a')", "partition('b')", "split(sep='b')"))
        if k == 12:
            return "(%s).%s|list" % (self.dict(d - 1), self.pick("items()", "keys()", "values()"))
        if k == 13:
            return "(%s)|%s" % (self.dict(d - 1), self.pick("dictsort", "items|list", "list", "dictsort(true)", "dictsort(by='value')",
                                                            "dictsort(reverse=true)", "sort"))
        if k == 14:
            return "[%s, %s]" % (self.any(d - 1), self.any(d - 1))
        if k == 15:
            return "(%s)|list" % self.string(d - 1)
        return "(%s, %s)" % (self.any(d - 1), self.any(d - 1))

    def dict(self, d):
        k = self.r.randrange(5 if d > 0 else 2)
        if k == 0:
            return self.r.choice(DICTS)
        if k == 1:
            return self.pick("{}", "{'a': 1}", "{'b': [1], 'a': 'x'}", "{1: 2, 'x': none}", "{true: 1, 1: 2}", "{none: 0}", "{'a': 1, 'a': 2}", "{1.5: 1}")
        if k == 2:
            return "{%s: %s}" % (self.string(0), self.any(d - 1))
        if k == 3:
            return "dict(%s)" % self.pick("a=1", "d", "d, z=2", "", "no, b=none")
        return "{'k': %s, 'j': %s}" % (self.any(d - 1), self.any(d - 1))

    def bool(self, d):
        k = self.r.randrange(11 if d > 0 else 1)
        if k == 0:
            return self.pick("true", "false", "t", "f", "True", "False")
        if k == 1:
            return "(%s %s %s)" % (self.any(d - 1), self.pick("==", "!="), self.any(d - 1))
        if k == 2:
            f = self.pick(self.number, self.string, self.int, self.list, self.any)
            return "(%s %s %s)" % (f(d - 1), self.pick("<", "<=", ">", ">="), f(d - 1))
        if k == 3:
            return "(%s %s %s)" % (self.any(d - 1), self.pick("in", "not in"), self.pick(self.list, self.string, self.dict, self.any)(d - 1))
        if k == 4:
            return "(%s is %s%s)" % (self.any(d - 1), self.pick("", "", "not "), self.r.choice(TESTS))
        if k == 5:
            return "(%s is %s%s)" % (self.any(d - 1), self.pick("", "not "), self.pick("divisibleby 3", "in [1, 'a']", "eq 1", "sameas none", "gt 2",
                                     "sameas true", "equalto('a')", "lt(3)", "divisibleby(2)", "ne 1", "==(1)", "in(ls)", "filter", "test"))
        if k == 6:
            return "(%s %s %s)" % (self.bool(d - 1), self.pick("and", "or"), self.bool(d - 1))
        if k == 7:
            return "(not %s)" % self.any(d - 1)
        if k == 8:
            return "(%s).%s(%s)" % (self.string(d - 1), self.pick("startswith", "endswith"), self.pick("'a'", "''", "('a', 'b')", "u", "1", "(1,)", "[]"))
        if k == 9:
            return "(%s).%s" % (self.string(d - 1), self.pick("isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()"))
        return "(%s < %s <= %s)" % (self.int(d - 1), self.int(d - 1), self.number(d - 1))

    def any(self, d):
        k = self.r.randrange(18 if d > 0 else 7)
        if k < 7:
            return [self.string, self.int, self.number, self.list, self.dict, self.bool, lambda _: self.pick("none", "none_", "zz", "None")][k](d)
        if k == 7:
            return "%s|default(%s%s)" % (self.pick("zz", "none_", "e", "d.zz", self.any(d - 1)), self.any(0), self.pick("", ", true", ", boolean=true"))
        if k == 8:
            return "(%s)|%s" % (self.list(d - 1), self.pick("first", "last", "min", "max", "length", "sum", "first|default('-')"))
        if k == 9:
            return "(%s)[%s]" % (self.list(d - 1), self.slice())
        if k == 10:
            return "(%s)%s" % (self.dict(d - 1), self.pick(".a", "['a']", ".get('b')", ".get('zz', 1)", "[1]", ".items", "['items']", ".zz", ".k", ".role",
                                                           "[none]", "['k-x']", ".get('zz', default=1)", ".get(1)", "|attr('a')"))
        if k == 11:
            return "(%s if %s%s)" % (self.any(d - 1), self.bool(d - 1), self.pick("", " else " + self.any(d - 1)))
        if k == 12:
            return "(%s %s %s)" % (self.any(d - 1), self.pick("or", "and"), self.any(d - 1))
        if k == 13:
            return "(%s)|%s" % (self.any(d - 1), self.r.choice(FILTERS))
        if k == 14:
            return "(%s).%s" % (self.string(d - 1), self.r.choice(STRING_METHODS))
        if k == 15:
            return "(%s %s %s)" % (self.any(d - 1), self.pick("+", "-", "/", "%", "//", "~"), self.any(d - 1))
        if k == 16:
            return "d2.z%s" % self.pick(".y.x[1].w", "['y']", ".y.x|length", ".y.x[9]", ".q", ".q.r", "['y'].x[-1]['w']")
        return "%s%s" % (self.pick("-", "+", "not "), self.any(d - 1))

    # ---- statements ----

    def space(self):
        return self.pick("", "", "", " ", "\n", "\n  ", "  ", "\n\n", "\t", "x", "x\n", " y ", "\r\n", "中\n ")

    def tag(self, inner):
        return "{%" + self.pick("", "", "-", "-", "+") + " " + inner + " " + self.pick("", "", "-", "-", "+") + "%}"

    def out(self, d):
        if self.r.random() < .03:
            return "{{ (%s)|safe + %s + %s|safe + html }}" % (self.string(d), self.string(0), self.string(0))
        return "{{" + self.pick("", "", "-", "+") + " " + self.any(d) + " " + self.pick("", "", "-", "+") + "}}"

    def body(self, d, loop=False):
        return "".join(self.space() + self.statement(d, loop) for _ in range(self.r.randrange(1, 4))) + self.space()

    def statement(self, d, loop):
        k = self.r.randrange(13 if d > 0 else 2)
        if k < 2:
            return self.out(2)
        if k == 2:
            mid = self.pick("", "", self.tag("elif " + self.bool(1)) + self.body(d - 1, loop)) + self.pick("", self.tag("else") + self.body(d - 1, loop))
            return self.tag("if " + self.bool(1)) + self.body(d - 1, loop) + mid + self.tag("endif")
        if k in (3, 4):
            head = self.pick("v in ", "v in ", "v, w in ", "(v, w) in ") + self.pick(self.list(1), self.dict(1), self.string(0), "d.items()", "d|dictsort",
                                                                                     "no", "ms", "[]", "range(3)", "d2.z.items()", "{'a': 1}.items()",
                                                                                     "nested", "zz", "none_")
            cond = self.pick("", "", "", " if v", " if v != 1", " if loop.first", " if v is string", " if " + self.bool(1))
            inner = self.body(d - 1, True) + self.pick("", "{{ v }}", "{{ loop.index }}{{ loop.last }}", "{{ loop.revindex0 }}/{{ loop.length }}",
                                                       "{{ loop.previtem }}{{ loop.nextitem }}", "{{ loop.cycle('p', 'q') }}", "{{ v }}{{ w }}",
                                                       "{{ loop.changed(v) }}", "{{ loop.depth }}{{ loop.index0 }}{{ loop.revindex }}")
            other = self.pick("", "", self.tag("else") + self.body(d - 1, loop))
            return self.tag("for " + head + cond) + inner + other + self.tag("endfor")
        if k == 5:
            return self.tag("set %s = %s" % (self.pick("s1", "s2"), self.any(2))) + self.pick("", "{{ s1 }}", "{{ a }}")
        if k == 6:
            return self.tag("set s1" + self.pick("", " | upper", " | trim | length")) + self.body(d - 1) + self.tag("endset") + "{{ s1 }}"
        if k == 7:
            return self.tag("set ns = namespace(%s)" % self.pick("", "c=0", "c='', k=l", "d")) + self.pick(
                self.tag("for i in l") + self.tag("set ns.c = " + self.pick("i", "ns.c", self.any(1))) + self.tag("endfor"), self.tag("set ns.c = 1")) + \
                self.pick("{{ ns.c }}", "{{ ns.k }}", "{{ ns.zz }}", "{{ ns is mapping }}{{ ns.c is defined }}")
        if k == 8:
            return self.tag("macro mm(%s)" % self.pick("", "p", "p, q=2", "p='中', q=p")) + self.body(d - 1).replace("{{ v }}", "{{ p }}") + self.pick("{{ p }}", "{{ q }}", "{{ zz }}") + \
                self.tag("endmacro") + "{{ mm(%s) }}" % self.pick("", "1", "1, 2", "q=3", "p=l", "1, q='x'", "1, 2, 3", "zz=1", "p=1, p=2"[:3])
        if k == 9:
            return self.tag("filter " + self.pick("upper", "trim", "replace('a', 'b')", "length", "indent(2)", "trim|upper")) + self.body(d - 1) + self.tag("endfilter")
        if k == 10:
            return self.pick("{# c #}", "{#- c -#}", "{# c\n #}", "{#+ c +#}", "{# {{ a }} #}", "{% raw %} {{ a }} {% endraw %}", "{%- raw -%} {% if %} {%- endraw -%}", "{% raw %}\n x\n{% endraw %}")
        if k == 11 and loop:
            return self.tag("if " + self.pick("v == 1", "loop.index > 1", "loop.last", "v", self.bool(1))) + self.tag(self.pick("break", "continue")) + self.tag("endif")
        if k == 11:
            return self.tag("generation") + self.body(d - 1) + self.tag("endgeneration") if self.r.random() < 0 else self.out(1)
        return self.tag("with") + self.body(d - 1) + self.tag("endwith") if self.r.random() < .1 else self.out(3)

    def template(self):
        if self.r.random() < .7:
            return "{{ " + self.any(self.r.randrange(1, 4)) + " }}"
        return self.body(self.r.randrange(1, 4))


def main(program, cases, seed=1, show=0):
    env, maker = environment(), Maker(seed)
    kinds, shown, done = collections.Counter(), collections.defaultdict(list), 0
    while done < cases:
        batch = [maker.template() for _ in range(min(2000, cases - done))]
        done += len(batch)
        lines = "".join(json.dumps({"template": t, "vars": VARS}) + "\n" for t in batch)
        answers = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
        assert len(answers) == len(batch)
        for t, line in zip(batch, answers):
            ours = json.loads(line)
            try:
                theirs = env.from_string(t).render(**copy.deepcopy(VARS)) # indent adds to a list before it fails
            except Exception as e: # whatever jinja2 and Python say
                theirs = None
                why = "%s: %s" % (type(e).__name__, e)
            if theirs is None:
                kind = "both refuse" if "error" in ours else "ACCEPTED"
            elif "error" in ours:
                kind = "not supported" if ours["unsupported"] else "REFUSED"
            else:
                kind = "same" if ours["text"] == theirs else "by design" if by_design(t, ours["text"], theirs) else "DIFFERS"
            kinds[kind] += 1
            if kind.isupper() or (show and kind == "not supported"):
                shown[kind].append((len(t), t, ours.get("text", ours.get("message")), theirs if theirs is not None else why))
    print(", ".join("%s: %d" % k for k in sorted(kinds.items())))
    for kind, all_ in shown.items():
        seen = collections.Counter()
        for _, t, ours, theirs in sorted(all_):
            cause = (theirs if kind == "ACCEPTED" else ours if kind != "DIFFERS" else t)[:40]
            seen[cause] += 1
            if seen[cause] > 1 or len(seen) > (show or 5):
                continue
            print("%s %r\n    ours   %r\n    jinja2 %r" % (kind, t, ours[:200], theirs[:200]))
    return 1 if any(k.isupper() for k in kinds) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *[int(x) for x in sys.argv[3:]]))
