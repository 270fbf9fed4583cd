#!/bin/bash
# The makefiles on a tree of their own with few and small sources: flags are part of what objects and programs depend on,
# a second make does nothing, and whoever sets CFLAGS loses no flag that the sources need.
. tests/tap.sh
scratch
tree=$tmp/tree
mkdir -p "$tree"/{common/{base,offline},profiler/probe,planner,packer,runtime/io,server,driver,quantizer,datasets/{tools,synth},schemas,tests,scripts}
for f in GNUmakefile */module.mk */*/module.mk scripts/*.mk common/base/version.h; do
    [ ! -e "$f" ] || cp "$f" "$tree/$f"
done
echo 'int err_none(void); int err_none(void) { return 0; }' > "$tree/common/base/err.c"
echo 'int io_kind(void);' > "$tree/runtime/io/io.h"
cat > "$tree/runtime/io/io.c" << 'END'
#include "runtime/io/io.h"
#ifndef NO_URING
#include <liburing.h>
#endif
int io_kind(void)
{
#ifdef NO_URING
    return 0;
#else
    struct io_uring r;
    io_uring_queue_init(1, &r, 0);
    return 1;
#endif
}
END
cat > "$tree/runtime/main.c" << 'END'
#include "runtime/io/io.h"
#include <stdio.h>
#ifndef SAYS
#define SAYS "nothing"
#endif
int main(void)
{
    printf("%s, %s, %s\n", io_kind() ? "io_uring" : "pread", SAYS,
#ifdef __OPTIMIZE__
           "optimised");
#else
           "plain");
#endif
    return 0;
}
END
prog=$tree/build/bin/thermo-run

# What the surrounding make was told is no part of this.
mk() { (cd "$tree" && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u CC -u CFLAGS -u CPPFLAGS -u LDFLAGS -u WERROR -u SANITIZE -u NO_URING -u STATIC -u HARDEN \
    -u V -u B -u BIN "${MAKE:-make}" --no-print-directory "$@" runtime) > "$tmp/out" 2>&1 || { cat "$tmp/out"; return 1; }; }
says() { mk "${@:2}" && [ "$("$prog")" = "$1" ] || { cat "$tmp/out"; "$prog"; return 1; }; }
files() { find "$tree" -type f -printf '%p %T@\n' | sort; }
nothing() # ARGS...: make says nothing and changes no file
{
    files > "$tmp/before"
    mk "$@" || return
    sed '/^make.*Nothing to be done/d' "$tmp/out" | grep . && { echo "it did the above"; return 1; }
    files | diff "$tmp/before" -
}
did() { grep -q "$1" "$tmp/out" || { echo "no '$1' in:"; cat "$tmp/out"; return 1; }; }
uring() { readelf -d "$prog" | grep -q liburing; }

has=io_uring
echo '#include <liburing.h>' | cc -E -x c - > /dev/null 2>&1 || has=
if [ -z "$has" ]; then
    echo "1..0 # SKIP no liburing"
    exit 77
fi
check "builds" says "io_uring, nothing, optimised"
cp "$prog" "$tmp/first"
check "a second make does nothing" nothing
check "nor does a third, with the same flags said" nothing CFLAGS='-O2 -g' WERROR=-Werror
check "NO_URING=1 after that" says "pread, nothing, optimised" NO_URING=1
check "links no liburing" eval '! uring'
check "again does nothing" nothing NO_URING=1
check "and back" eval 'says "io_uring, nothing, optimised" && uring'
check "other CFLAGS" says "io_uring, nothing, plain" CFLAGS=-O0
check "other CPPFLAGS, with spaces and quotes" says "io_uring, two words, optimised" CPPFLAGS="-DSAYS='\"two words\"'"
check "do nothing the second time" nothing CPPFLAGS="-DSAYS='\"two words\"'"
from_environment() { (cd "$tree" && env -u MAKEFLAGS CC=cc CFLAGS=-O0 "${MAKE:-make}" -s runtime) > "$tmp/out" 2>&1 && [ "$("$prog")" = "io_uring, nothing, plain" ]; }
check "CFLAGS from the environment" from_environment
check "and back to the first bytes" eval 'mk && cmp "$prog" "$tmp/first"'
check "other LDFLAGS" mk LDFLAGS=-Wl,-O1
check "link, and compile nothing" eval 'did "LD .*thermo-run" && ! did "^  CC" > /dev/null'
check "the reason is said" did 'FLAGS .*link.flags'
flags() { mk V=1 CFLAGS=-O3 CPPFLAGS=-DOWN LDFLAGS=-Wl,-O1 && for f in -std=c11 -ffp-contract=off -Wall -Wextra -Werror -O3 -DOWN -I. -D_GNU_SOURCE -Wl,--as-needed -Wl,-O1; do
    did "\\$f " || return; done; }
check "CFLAGS, CPPFLAGS and LDFLAGS stand beside what is needed" flags
check "back again" mk
echo 'static int unused(void) { return 1; }' >> "$tree/runtime/io/io.c"
check "a warning is an error with CFLAGS too" eval '! mk CFLAGS=-O1 > /dev/null && grep -q Werror "$tmp/out"'
check "and with WERROR= it is none" mk CFLAGS=-O1 WERROR=
sed -i '$d' "$tree/runtime/io/io.c"

mkdir "$tmp/bin"
printf '#!/bin/sh\n: > "%s/cached"\nexec "$@"\n' "$tmp" > "$tmp/bin/ccache"
chmod +x "$tmp/bin/ccache"
PATH=$tmp/bin:$PATH
check "CC=gcc" mk CC=gcc
check "CC='ccache gcc' has nothing to do after that" nothing CC='ccache gcc'
check "and builds in the same folder" eval 'touch "$tree/runtime/io/io.c" && mk CC="ccache gcc" && did "CC .*runtime/io/io.c" && [ -e "$tmp/cached" ] &&
    [ "$(ls "$tree/build" | wc -l)" -eq 2 ]'
check "SANITIZE has a folder of its own" eval 'mk && mk SANITIZE=undefined && nothing'
check "and so has B=" eval 'cp "$prog" "$tmp/kept" && mk B="$tmp/elsewhere" CFLAGS=-O0 && "$tmp/elsewhere/bin/thermo-run" | grep -q plain && cmp "$prog" "$tmp/kept" && nothing'
done_testing
