#!/usr/bin/env python3
"""Words that the field's terms have replaced, and must not come back in what users read or in names. words.py [FILE...]: each
place as file:line, with the word and the term to use; exit status 1 when there is any. Without FILE: all of the repository.

What is looked at: documents, manual pages and scripts whole, but for names in `backticks`; of C files string literals and
identifiers, no comments."""
import fnmatch
import os
import re
import subprocess
import sys

# Word (a regular expression, whole words, any case), term. In documents, messages and help.
PROSE = [
    (r'fore(?:tells?|telling|told)', 'predict, predicted'),
    (r'(?:false )?alarms?', 'false positives'),
    (r'join(?:s|ed|ing)', 'coalesced reads; of files: merge'),
    (r'ways? to run', 'variants'),
    (r'alike', 'equivalent, the same'),
    (r'sketch(?:es|ed)?', 'subsampled estimate'),
    (r'speaks? for|speakers?', 'representative layer'),
    (r'settle[sd]?', 'rounding'),
    (r'hurdles?', 'incumbent'),
    (r'exempt', 'always computed'),
    (r'feeders?', 'predictor prefetch'),
    (r'advice|advised?', 'infeasibility diagnosis'),
    (r'tax', 'I/O CPU time'),
    (r'keeping', 'cache overhead'),
    (r'picks?|picked', 'input selection; select'),
    (r'weigh(?:s|ed|ing)?', 'loss weighting; weight'),
    (r'told', 'predicted; stated'),
    (r'costs? in quality', 'loss of quality'),
    (r'layer (?:%d|%zu),? block (?:%d|%zu)', 'expert'),
]

# Former names of options and commands: nowhere in documents, help and messages.
OPTIONS = [
    (r'--weigh(?![a-z-])', '--loss-weighting'),
    (r'--method columns', '--method select'),
    (r'--method (?:keep|import)', 'predictors-measure, predictors-import'),
    (r'--route-memory', '--route-persistence'),
]

# Part of an identifier, between underscores. In C sources of programs and libraries.
NAMES = [
    (r'fore(?:tell|told)', 'predict, predicted'),
    (r'told', 'predicted; known'),
    (r'alarms?', 'false_positives'),
    (r'joins', 'coalesce'),
    (r'ways', 'variants'),
    (r'alike|likes', 'equivalent'),
    (r'sketch', 'estimate'),
    (r'speakers?', 'representative'),
    (r'settled?', 'round'),
    (r'keeps', 'residencies'),
    (r'advice|advised', 'diagnosis'),
    (r'hurdle', 'incumbent'),
    (r'exempt', 'always'),
    (r'feeder', 'predictor_prefetch'),
    (r'turns', 'contention'),
    (r'keeping', 'cache_overhead'),
    (r'rates_ease', 'rates_relax'),
    (r'picks', 'selected'),
    (r'weigh', 'loss_weighting'),
    (r'twins?', 'siblings'),
    (r'wish', 'options'),
    (r'story', 'message'),
]

# (file, word, why it may stay there)
PERMITTED = [
    # names in formats, which have revisions of their own
    ('common/plan/plan*.c', r'exempt|joins', 'keys of the plan, and messages that name them'),
    ('planner/check/*.c', r'exempt|joins', 'keys of the plan'),
    ('schemas/plan.schema.json', r'exempt|joins', 'keys of the plan'),
    ('common/offline/trace/trace_predict.c', r'weigh', 'attribute of the trace'),
    ('schemas/trace.md', r'weigh', 'attribute of the trace'),
    ('profiler/show/show_predictors.c', r'weigh', 'key of the JSON'),
    ('packer/build.c', r'weigh', "key of the pack's metadata"),
    ('planner/cmd_solve.c', r'asked', 'key of the JSON'),
    ('planner/report/explain_lines.c', r'exempt|foretold', 'keys of the JSON'),
    ('planner/planning/planning.c', r'exempt|costs in quality', "a note of the plan: plans keep their bytes"),
    ('common/hwdb/*', r'turns?', 'key of the hardware database'),
    ('schemas/hwdb.sql', r'join|turn|tell', 'SQL'),
    ('common/model/predict.c', r'picked', "a value of the JSON"),
    ('profiler/cmd_predictors.c', r'weigh', 'former name of an option'),
    ('scripts/*', r'exempt|joins', 'keys of the plan'),
    # words of other fields
    ('tests/*', r'.*', 'tests'),
    ('CHANGELOG.md', r'--', 'names former options'),
]
SKIP = ('tests/*', 'debian/*', '*.svg', '*.json', '*.csv', 'datasets/models/training/*', 'datasets/heldout/*.txt', 'LICENSE', 'docs/accuracy.*')
TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def rules(table, whole):
    return [(re.compile(whole % word, re.I), term) for word, term in table]


WORDS = rules(PROSE, r'\b(?:%s)\b')
FLAGS = rules(OPTIONS, '%s')
PARTS = rules(NAMES, r'(?:^|_)(?:%s)(?:_|$)')


def permitted(path, word):
    return any(fnmatch.fnmatch(path, p) and re.search(w, word, re.I) for p, w, _ in PERMITTED)


def prose(path, text, first=1):
    bare = re.sub(r'`[^`\n]+`', lambda m: ' ' * len(m.group(0)), text) if path.endswith('.md') else text
    for rule, term in WORDS + FLAGS:
        for m in rule.finditer(text if (rule, term) in FLAGS else bare):
            if not permitted(path, m.group(0)):
                yield path, first + text.count('\n', 0, m.start()), m.group(0), term


def c_source(path, text):
    for m in TOKENS.finditer(text):
        if m.group(0)[0] == '"':
            yield from prose(path, m.group(0), 1 + text.count('\n', 0, m.start()))
    bare = TOKENS.sub(lambda m: re.sub(r'[^\n]', ' ', m.group(0)), text)
    for m in re.finditer(r'[A-Za-z_]\w*', bare):
        for rule, term in PARTS:
            if rule.search(m.group(0)) and not permitted(path, m.group(0)):
                yield path, 1 + bare.count('\n', 0, m.start()), m.group(0), term


def found(path):
    with open(path, encoding='utf-8') as f:
        text = f.read()
    return sorted(set(c_source(path, text) if path.endswith(('.c', '.h')) else prose(path, text)), key=lambda x: x[1])


def files():
    try:
        listed = subprocess.run(['git', 'ls-files'], capture_output=True, text=True, check=True).stdout.split('\n')
    except (OSError, subprocess.CalledProcessError):
        listed = [os.path.relpath(os.path.join(at, n)) for at, _, names in os.walk('.') if not at.startswith('./build') for n in names]
    return [p for p in listed if p.endswith(('.c', '.h', '.md', '.sh', '.py', '.sql', '.txt', '.sbatch')) or p.startswith(('docs/man/', 'schemas/'))
            if not any(fnmatch.fnmatch(p, s) for s in SKIP)]


if __name__ == '__main__':
    bad = [x for path in sys.argv[1:] or files() for x in found(path)]
    for path, line, word, term in bad:
        print(f"{path}:{line}: '{word}': use {term}")
    sys.exit(1 if bad else 0)
