#!/bin/sh
# page.sh FOLDER: the page of thermo-serve as C, to standard output: PAGE_STYLE and PAGE_SCRIPT, what a Content-Security-Policy calls its
# style and its program by, and the string page_text, page.html with both in it.
set -eu
LC_ALL=C
export LC_ALL
cd "$1"
scripts='markdown.js machine.js talk.js'

# shellcheck disable=SC2086
if cat $scripts page.css | grep -nE '</(script|style)|<!--'; then
    echo "page.sh: what ends a script or a style cannot be in one" >&2
    exit 1
fi
hash_of() { sha256sum | cut -c 1-64 | tr a-f A-F | basenc -d --base16 | base64; }
echo "#define PAGE_STYLE  \"'sha256-$(hash_of < page.css)'\""
# shellcheck disable=SC2086
echo "#define PAGE_SCRIPT \"'sha256-$(cat $scripts | hash_of)'\""
echo 'static const char page_text[] ='
# Between the tags is what was hashed, to the byte: each line is a string with its newline.
while IFS= read -r line; do
    case $line in
    *@STYLE@*) printf '%s' "${line%%@STYLE@*}"; cat page.css; printf '%s\n' "${line#*@STYLE@}" ;;
    # shellcheck disable=SC2086
    *@SCRIPT@*) printf '%s' "${line%%@SCRIPT@*}"; cat $scripts; printf '%s\n' "${line#*@SCRIPT@}" ;;
    *) printf '%s\n' "$line" ;;
    esac
done < page.html | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/'
echo ';'
