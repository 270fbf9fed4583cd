# What --help says as lines with tabs, for manual pages and completions: about TEXT; command NAME TEXT; option HEAD TEXT,
# where HEAD is "-o, --out FILE"; example LINE. Paragraphs are joined to one line.
function flush_row() {
    if (head != "") print kind "\t" head "\t" row
    head = row = ""
}
function begin(name) {
    flush_row()
    if (about != "") print "about\t" about
    about = ""
    part = name
}
BEGIN { part = "usage" }
/^commands:$/ { begin("commands"); next }
/^options:$/ { begin("options"); next }
/^examples:$/ { begin("examples"); next }
/^[^ ].*:/ && part == "options" { begin("other"); next }
part == "usage" && /^  +--?[a-z]/ { begin("options") }
/^ *$/ || part == "other" { next }
part == "usage" {
    if (!/^(usage:| )/) about = about (about == "" ? "" : " ") $0
    next
}
{ s = $0; sub(/^ +/, "", s) }
part == "examples" { print "example\t" s; next }
part == "commands" && !/^  [^ ]/ || part == "options" && !/^ ? ? ? ? ? ?-/ {
    if (/^[^ ]/) begin("other") # the last line of a program's help
    else row = row (row == "" ? "" : " ") s
    next
}
{
    flush_row()
    kind = part == "commands" ? "command" : "option"
    if (match(s, /  +/)) { head = substr(s, 1, RSTART - 1); row = substr(s, RSTART + RLENGTH) }
    else head = s
}
END { begin("") }
