#!/bin/sh
# Documents, help, messages and names keep to the field's terms: tests/words.py has the words that those replaced.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }

# finds FILE TEXT PATTERN: in a file that holds TEXT in its second line, the word is found there, with the term to use.
finds()
{
    printf 'first\n%s\n' "$2" > "$tmp/$1"
    says 1 "^$tmp/$1:2: $3" python3 -B tests/words.py "$tmp/$1"
}
# passes FILE TEXT
passes()
{
    printf 'first\n%s\n' "$2" > "$tmp/$1"
    python3 -B tests/words.py "$tmp/$1"
}

check "no word that a term of the field replaced" python3 -B tests/words.py
check "one in a document is found" finds a.md 'The neurons are foretold.' "'foretold': use predict"
check "one in a manual page" finds a.1 'Reads that it Joins.' "'Joins': use coalesced reads"
check "one in a message" finds a.c 'err_set(e, ERR_NOMEM, "out of memory for false alarms");' "'false alarms': use false positives"
check "one in a name" finds b.c 'static int count_hurdle_bytes;' "'count_hurdle_bytes': use incumbent"
check "a former option" finds b.md 'Say `--weigh 1`.' "'--weigh': use --loss-weighting"
check "a comment of a source is no matter" passes c.c '/* foretold */ int x;'
check "nor is a name in backticks" passes c.md 'The key `exempt` counts them.'
check "nor is a longer word" passes d.md 'The weight of the feedback is joint.'
done_testing
