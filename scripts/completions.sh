#!/bin/sh
# completions.sh bash|zsh|fish PROGRAM: what a shell reads to complete PROGRAM's subcommands, options and values, made
# from the program's option tables (--help=table) and help texts. A script without tables is asked for its --help.
shell=$1 program=$2
name=$(basename "$program")
tab=$(printf '\t')

# described COMMAND TABLE HELP: lines of the fields command, kind, name, short, value, choices, text. value is none
# (a flag), file, folder, choice or other.
described()
{
    awk -F '\t' -v OFS='\t' -v command="$1" '
    FILENAME == ARGV[1] { # help: what is said of each option
        if ($1 != "option") next
        n = split($2, words, /,? +/)
        text = $3
        sub(/\. .*/, "", text); sub(/\.$/, "", text)
        if (length(text) > 72) { text = substr(text, 1, 72); sub(/ [^ ]*$/, " ...", text) }
        short = ""; many = 0
        for (i = 1; i <= n; i++) {
            if (words[i] ~ /^-[^-]/) short = substr(words[i], 2)
            if (words[i] ~ /^--/) { option = substr(words[i], 3); named[++many] = option; says[option] = text; arg[option] = "" }
            else if (words[i] !~ /^-/ && many) arg[option] = words[i]
        }
        for (i = 1; i <= many; i++) { order[++rows] = named[i]; shorts[named[i]] = short }
        next
    }
    $1 == "argument" { print command, "argument", "", "", "file", "", "" }
    $1 == "option" { table[$2] = 1; kind($2, $3, $4, $5, $6, $12) }
    function kind(option, short, type, what, file, choices,   v) {
        v = type == "flag" ? "none" : type == "choice" ? "choice" : file ~ /^(read|write|update)/ ? "file" : \
            what ~ /^(DIR|FOLDER)/ ? "folder" : what ~ /FILE/ ? "file" : "other"
        gsub(/,/, " ", choices)
        print command, "option", option, short == "-" ? "" : short, v, choices == "-" ? "" : choices, says[option]
    }
    END {
        for (i = 1; i <= rows; i++)
            if (!(order[i] in table))
                kind(order[i], shorts[order[i]], arg[order[i]] == "" ? "flag" : "", arg[order[i]], "", "")
    }' "$3" "$2"
}

collected()
{
    if ! "$program" --help=table > "$scratch/table" 2> /dev/null; then
        : > "$scratch/table"
        "$program" --help | awk -f scripts/help.awk > "$scratch/help" && described '' "$scratch/table" "$scratch/help"
        return
    fi
    if ! grep -q "^command$tab" "$scratch/table"; then
        "$program" --help | awk -f scripts/help.awk > "$scratch/help" && described '' "$scratch/table" "$scratch/help"
        return
    fi
    "$program" --help | awk -f scripts/help.awk | awk -F '\t' -v OFS='\t' '$1 == "command" { print $2, "command", $2, "", "", "", $3 }'
    for c in $(sed -n "s/^command$tab//p" "$scratch/table"); do
        "$program" "$c" --help=table > "$scratch/rows" && "$program" "$c" --help | awk -f scripts/help.awk > "$scratch/help" &&
            described "$c" "$scratch/rows" "$scratch/help"
    done
}

for_bash()
{
    awk -F '\t' -v name="$name" '
    function done_command() {
        if (!started) return
        print "        options=\"" substr(options, 2) "\""
        print "        case $previous in"
        for (i = 1; i <= keys; i++) {
            v = key[i]
            print "        " substr(values[v], 2) ") " (v == "file" || v == "folder" ? "return" : v == "other" ? "none=1" : "words=\"" v "\"") " ;;"
        }
        print "        esac\n        files=" files "\n        ;;"
        split("", values); keys = 0; options = ""; files = ""
    }
    function option_name(long, short) { return " --" long (short == "" ? "" : " -" short) }
    BEGIN {
        f = name; gsub(/-/, "_", f)
        print "# bash completion of " name ", made from its option tables.\n_" f "()\n{"
        print "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options= words= files= none="
        print "    COMPREPLY=()\n    # --option=value comes as three words"
        print "    if [ \"$current\" = = ]; then current=; elif [ \"$previous\" = = ]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi"
    }
    $2 == "command" { commands = commands " " $3; next }
    NR > 1 && !head || NR == 1 && $2 != "command" {
        head = 1
        if (commands != "") {
            print "    if [ \"$COMP_CWORD\" = 1 ]; then\n        compopt +o default"
            print "        mapfile -t COMPREPLY < <(compgen -W \"" substr(commands, 2) " --help --version\" -- \"$current\")"
            print "        return\n    fi"
        }
        print "    case " (commands == "" ? "x" : "${COMP_WORDS[1]}") " in"
    }
    $1 != command || !started { done_command(); command = $1; started = 1; print "    " (command == "" ? "x" : command) ")" }
    $2 == "argument" { files = 1 }
    $2 == "option" {
        options = options option_name($3, $4)
        v = $5 == "choice" ? $6 : $5
        if ($5 != "none" && !(v in values)) key[++keys] = v
        if ($5 != "none") values[v] = values[v] "|--" $3 ($4 == "" ? "" : "|-" $4)
    }
    END {
        done_command()
        print "    esac"
        print "    if [ -n \"$none\" ]; then compopt +o default; return; fi"
        print "    if [ -z \"$words\" ]; then\n        case $current in\n        -*) words=$options ;;"
        print "        *) [ -n \"$files\" ] || compopt +o default; return ;;\n        esac\n    fi"
        print "    compopt +o default\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n}"
        print "complete -o default -F _" f " " name
    }'
}

for_zsh()
{
    awk -F '\t' -v name="$name" '
    function quoted(s) { gsub(/\047/, "\047\\\047\047", s); return s }
    function plain(s) { gsub(/\\/, "\\\\", s); gsub(/:/, "\\:", s); gsub(/\[/, "\\[", s); gsub(/\]/, "\\]", s); return quoted(s) }
    function done_command() { if (started) print "        ;;" }
    BEGIN { print "#compdef " name "\n# zsh completion of " name ", made from its option tables.\n"; print "_" name "()\n{" }
    $2 == "command" { if (!commands++) print "    local -a commands=("; print "        \047" $3 ":" quoted($7) "\047"; next }
    !head {
        head = 1
        if (commands) {
            print "    )\n    if (( CURRENT == 2 )); then"
            print "        if [[ $words[2] == -* ]]; then compadd -- --help --version; else _describe -t commands command commands; fi"
            print "        return\n    fi\n    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in"
        } else print "    case x in"
    }
    $1 != command || !started { done_command(); command = $1; started = 1; print "    " (command == "" ? "x" : command) ") _arguments -s -S \\" }
    $2 == "argument" { print "        \047*:file:_files\047 \\"; next }
    {
        action = $5 == "file" ? "_files" : $5 == "folder" ? "_files -/" : $5 == "choice" ? "(" $6 ")" : " "
        value = $5 == "none" ? "" : ":value:" action
        print "        \047--" $3 ($5 == "none" ? "" : "=") "[" plain($7) "]" value "\047 \\"
        if ($4 != "") print "        \047-" $4 ($5 == "none" ? "" : "+") "[" plain($7) "]" value "\047 \\"
    }
    END { print "        ;;\n    esac\n}\n\n_" name " \"$@\"" }' | awk '
    # No backslash before what ends a command line.
    NR > 1 { if ($0 ~ /^ *;;/) sub(/ \\$/, "", held); print held }
    { held = $0 }
    END { print held }'
}

for_fish()
{
    awk -F '\t' -v name="$name" '
    function quoted(s) { gsub(/[\\\047]/, "\\\\&", s); return "\047" s "\047" }
    BEGIN { print "# fish completion of " name ", made from its option tables.\ncomplete -c " name " -f" }
    $2 == "command" {
        commands = 1
        print "complete -c " name " -n __fish_use_subcommand -a " $3 " -d " quoted($7)
        next
    }
    {
        if (commands && !said++) {
            print "complete -c " name " -n __fish_use_subcommand -l help -d " quoted("Describe the program")
            print "complete -c " name " -n __fish_use_subcommand -l version -d " quoted("Print versions")
        }
        when = $1 == "" ? "" : " -n \047__fish_seen_subcommand_from " $1 "\047"
    }
    $2 == "argument" { print "complete -c " name when " -F"; next }
    {
        value = $5 == "none" ? "" : $5 == "file" || $5 == "folder" ? " -r -F" : $5 == "choice" ? " -x -a " quoted($6) : " -x"
        print "complete -c " name when " -l " $3 ($4 == "" ? "" : " -s " $4) value ($7 == "" ? "" : " -d " quoted($7))
    }'
}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
collected > "$scratch/all"
[ -s "$scratch/all" ] || { echo "completions.sh: $program says nothing of its options" >&2; exit 1; }
case $shell in
bash) for_bash < "$scratch/all" ;;
zsh) for_zsh < "$scratch/all" ;;
fish) for_fish < "$scratch/all" ;;
*) echo "usage: completions.sh bash|zsh|fish PROGRAM" >&2; exit 2 ;;
esac
