#!/bin/sh
# How the programs were built: position-independent, relocations read-only before main, no executable stack, checked
# copies, a guarded stack, and how large they are. What the compiler was told is read from the debug information.
. tests/tap.sh
scratch
command -v readelf > /dev/null || { echo "1..0 # SKIP readelf is not installed"; exit 77; }

# elf FILE: what the checks look at.
elf()
{
    readelf -hdlW "$1" > "$tmp/elf" 2> /dev/null
    readelf -sW "$1" > "$tmp/symbols" 2> /dev/null
    [ -s "$tmp/elf" ] && [ -s "$tmp/symbols" ]
}
has() { grep -qE -e "$1" "$tmp/elf" || { cat "$tmp/elf"; return 1; }; }
no_writable_code() { ! grep -E 'LOAD .* RWE |GNU_STACK .* RWE ' "$tmp/elf"; }
uses() { grep -qE -e "$1" "$tmp/symbols"; }

# told FLAG OBJECT: the compiler's flags, kept in the object.
told() { readelf --debug-dump=info "$2" 2> /dev/null | grep -m 1 'DW_AT_producer' | grep -q -e "$1"; }
small() # PROGRAM MOST: bytes without symbols
{
    strip -o "$tmp/small" "$1" && [ "$(stat -c %s "$tmp/small")" -le "$2" ] || { ls -l "$tmp/small"; return 1; }
}
marked() { readelf -nW "$1" 2> /dev/null | grep -q 'IBT, SHSTK'; }

for name in thermo-profile thermo-probe thermo-plan thermo-pack thermo-run thermo-serve thermo-quantize; do
    check "$name is there" elf "$BIN/$name"
    check "$name is position-independent" has 'Type: +DYN'
    check "$name: relocations are read-only" has GNU_RELRO
    check "$name: all symbols are bound at start" has 'FLAGS.*(BIND_NOW|NOW)'
    check "$name: nothing is writable and executable" no_writable_code
    check "$name: a guarded stack" uses '__stack_chk_fail'
    if [ -n "$SANITIZE" ]; then
        skip "$name: checked copies" "sanitizers check them"
    else
        check "$name: checked copies" uses '__(memcpy|snprintf|vsnprintf|fprintf)_chk'
    fi
done
if [ -n "$SANITIZE$UNWIND" ] || ! command -v strip > /dev/null; then
    skip "thermo-run has at most 2 MiB" "with tables for unwinding, or without strip"
else
    check "thermo-run has at most 2 MiB" small "$BIN/thermo-run" 2097152
fi
object=$B/common/base/err.o
if "$CC" --version 2> /dev/null | grep -qi clang; then
    skip "large stack frames are probed" "clang keeps no flags in its objects"
    skip "branch targets are marked" "clang keeps no flags in its objects"
else
    check "large stack frames are probed" told -fstack-clash-protection "$object"
    case $("$CC" -dumpmachine) in
    x86_64-*) check "branch targets are marked" marked "$object" ;;
    aarch64-*) check "branch targets are marked" told -mbranch-protection=standard "$object" ;;
    *) skip "branch targets are marked" "not on this processor" ;;
    esac
fi
done_testing
