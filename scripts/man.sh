#!/bin/sh
# man.sh TEMPLATE: a manual page (mdoc) on stdout, from docs/man/TEMPLATE. Lines of a template that begin with @:
#   @synopsis PROGRAM    a line for each subcommand      @commands PROGRAM    subcommands and options, from --help
#   @options PROGRAM     of a program without subcommands, from its --help      @include FILE       a file of docs/man
#   @header FILE         a header, without its guard       @models               architectures and types, from thermo-profile models
# In text: @VERSION@ @DATE@ @PREFIX@ @PACK_REVISION@ ... From the environment: BIN, PREFIX.
template=$1 folder=$(dirname "$1")
bin=${BIN:-build/bin}
version=common/base/version.h
date=$(sed -n 's/^\.\\" Changed: //p' "$template" | head -n 1)

revision() { sed -n "s/^#define $1_REVISION //p" "$version"; }
commands() { "$bin/$1" --help=table | sed -n 's/^command	//p'; }

# What --help says, as mdoc: the paragraph about it, then a list of options, then examples.
help_to_mdoc()
{
    awk -f scripts/help.awk | awk -F '\t' '
    function escape(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); gsub(/\047/, "\\(aq", s); return s }
    # Sentences on lines of their own; options are not to be broken at their dashes.
    function text(s,   out, i, c, before) {
        gsub(/\\/, "\\e", s)
        for (i = 1; i <= length(s); i++) {
            c = substr(s, i, 1)
            before = i > 1 ? substr(s, i - 1, 1) : " "
            out = out (c == "-" && (before !~ /[A-Za-z0-9]/ || substr(s, i + 1, 1) == "-") ? "\\-" : c)
        }
        while (match(out, /[A-Za-z0-9)][.?!] +[A-Z]/))
            out = substr(out, 1, RSTART + 1) "\n" substr(out, RSTART + RLENGTH - 1)
        return guard(out)
    }
    function guard(s) { return (s ~ /^[.\047]/ ? "\\&" : "") s }
    function list(on) { if (on != listing) print on ? ".Bl -tag -width Ds" : ".El"; listing = on }
    $1 == "about" { print text($2) }
    $1 == "option" {
        list(1)
        n = split($2, words, /,? +/)
        line = ".It"
        for (i = 1; i <= n; i++)
            if (words[i] ~ /^-/)
                line = line (i > 1 ? " , " : " ") "Fl " (words[i] ~ /^--/ ? escape(substr(words[i], 2)) : substr(words[i], 2))
            else
                line = line " Ar " escape(words[i])
        print line
        print text($3)
    }
    $1 == "example" {
        list(0)
        if (!examples++) print ".Pp\nExamples:\n.Bd -literal -offset Ds"
        s = escape($2)
        while (length(s) > 74 && match(substr(s, 1, 74), /[^ ].* \\-/)) { # continued before an option, as one would type it
            at = RSTART + RLENGTH - 2
            print guard(substr(s, 1, at - 1) "\\e")
            s = "    " substr(s, at)
        }
        print guard(s)
    }
    END { list(0); if (examples) print ".Ed" }'
}

# The types, and a list of the architectures.
models_to_mdoc()
{
    awk -F ' [|] ' '
    { gsub(/`/, ""); gsub(/-/, "\\-") }
    /^Types of matrices/ { types = $0 }
    /^[|] [a-z0-9_\\-]+ [|]/ { if (!n++) print ".Bl -tag -width granitehybrid -compact"; sub(/^[|] /, "", $1); sub(/ *[|]$/, "", $2); print ".It " $1; print $2 }
    END { print ".El\n.Pp\n" types }'
}

expand()
{
    while IFS= read -r line; do
        case $line in
        '@synopsis '*)
            p=${line#* }
            for c in $(commands "$p"); do
                rest=$("$bin/$p" "$c" --help | sed -n '1s/^usage: [a-z-]* [a-z-]* \[options\] *//p' | sed 's/-/\\-/g')
                printf '.Nm\n.Cm %s\n.Op Ar options\n' "$c"
                [ -z "$rest" ] || printf '.Ar %s\n' "$rest"
            done
            ;;
        '@commands '*)
            p=${line#* }
            for c in $(commands "$p"); do
                printf '.Ss %s %s\n' "$p" "$c"
                "$bin/$p" "$c" --help | help_to_mdoc
            done
            ;;
        @models) "$bin/thermo-profile" models | models_to_mdoc ;;
        '@options '*) "$bin/${line#* }" --help | sed '1,/^options:$/d' | help_to_mdoc ;;
        # A header as it is, from the end of its guard on: declarations with what they say.
        '@header '*)
            printf '.Bd -literal\n'
            sed -e '1,/^#define/d' -e '/^#ifdef __cplusplus/,/^#endif/d' -e '$d' -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^[.']/\\\\\&&/" "${line#* }"
            printf '.Ed\n'
            ;;
        '@include '*) expand < "$folder/${line#* }" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done
}

expand < "$template" | sed \
    -e '/^\.\\" Changed: /d' \
    -e "s|@DATE@|$date|g" -e "s|@PREFIX@|${PREFIX:-/usr/local}|g" \
    -e "s|@VERSION@|$(sed -n 's/^#define THERMO_VERSION "\(.*\)"/\1/p' $version)|g" \
    -e "s|@TRACE_REVISION@|$(revision TRACE)|g" -e "s|@HWDB_REVISION@|$(revision HWDB)|g" \
    -e "s|@PLAN_REVISION@|$(revision PLAN)|g" -e "s|@PACK_REVISION@|$(revision PACK)|g" | awk '
    # Lines of text are broken before column 80; macros and examples stay as they are.
    /^\.Bd/ { literal = 1 }
    /^\.Ed/ { literal = 0 }
    { sub(/ +$/, literal ? "&" : "") }
    !literal && !/^\./ {
        while (length($0) > 78 && match(substr($0, 1, 78), /.* [^ .\047]/)) {
            print substr($0, 1, RLENGTH - 2)
            $0 = substr($0, RLENGTH)
        }
    }
    { print }'
