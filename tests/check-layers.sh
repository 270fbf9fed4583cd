#!/bin/bash
# The include graph against docs/ARCHITECTURE.md: program -> common/offline -> common, never back, never
# sideways; each third-party library behind its one wrapper; the runtime linked with none of the offline ones.
. tests/tap.sh

# includes FILE...: "file header" for each #include.
includes()
{
    grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+' "$@" |
        sed -E 's/:[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]/ /'
}

# layer DIR ALLOWED-REGEX [LEFT-OUT]: quoted includes of the sources below DIR stay within ALLOWED.
layer()
{
    local found
    found=$(find "$1" -name '*.[ch]' ! -path "$3" -exec grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]+' {} + |
        sed -E 's/:[[:space:]]*#[[:space:]]*include[[:space:]]*"/ /' | grep -vE "^[^ ]+ ($2)" |
        grep -vE '(_sql|_fields|opencl_kernels|server_page)\.inc$') # a published schema and its fields, a source of kernels, or a page, as a string, made at build time
    [ -z "$found" ] || { echo "may include only $2:"; echo "$found"; return 1; }
}

# only HEADER-REGEX FILE-REGEX: nobody but FILE (one module's files) includes HEADER.
only()
{
    local found
    found=$(includes $(find common profiler planner packer runtime server quantizer driver datasets -name '*.[ch]') | grep -E " ($1)\$" |
        cut -d ' ' -f 1 | sort -u | grep -vxE "$2")
    [ -z "$found" ] || { echo "$1 belongs to $2:"; echo "$found"; return 1; }
}

# Offline headers must not come in by a detour either: ask the compiler for every header of the lean half.
no_offline_header()
{
    local f found bad=0
    for f in $(find common runtime profiler/probe -name '*.c' ! -path 'common/offline/*'); do
        case $f in */kernels_avx* | */kernels_neon* | */kernels_dotprod* | */kernels_i8mm*) continue ;; esac
        found=$(${CC:-cc} -I. -D_GNU_SOURCE -M "$f" 2>/dev/null | tr ' ' '\n' |
            grep -E '(hdf5|sqlite3|/csv|z3[a-z_]*|cblas|lapacke?)\.h$|common/offline/')
        [ -z "$found" ] || { echo "$f reaches $found"; bad=1; }
    done
    return $bad
}

tokens_only()
{
    local found
    found=$(grep -n file_interrupted -r runtime --include='*.[ch]'
        grep -n file_catch_interrupt -r runtime --include='*.[ch]' | grep -vE '^runtime/(main|cmd_[a-z]+)\.c:')
    [ -z "$found" ] || { echo "$found"; return 1; }
}

# Of the runtime, these commands use the library; and of what is beside it, option rows, what reads prompts, messages and lines and prints, JSON's strings. Of the
# program's own objects: a sanitizer's have other names beside.
library_alone() # OBJECT...
{
    local found o bad=0
    for o in "$@"; do
        found=$(comm -12 <(nm -u "$B/runtime/$o.o" | awk '{ print $2 }' | sort) \
            <(nm -g --defined-only "$B/runtime.a" 2> /dev/null | awk 'NF == 3 { print $3 }' | sort -u) |
            grep -vxE 'thermo_[a-z_]+|generate_(serve_options|guess_options|prefix_options|elastic_options|adapt_options|args_init|args_done|prompts)|s(etup|ampling)_options|prompt_text|chat_thinking_names|report_(string|chars)|(summary|kept|records|results|messages|lines|typed)_[a-z_]+')
        [ -z "$found" ] || { echo "runtime/$o.c uses more than thermo.h:" $found; bad=1; }
    done
    return $bad
}

needed()
{
    local libs
    libs=$(readelf -d "$BIN/$1") || return 1
    ! echo "$libs" | grep NEEDED | grep -iE 'z3|hdf5|sqlite|csv|blas|lapack|stdc\+\+|microhttpd'
}

# pkg-config is for offline programs: the runtime's build must not call it.
no_pkg_config()
{
    ! ${MAKE:-make} --no-print-directory -n -B runtime probe V=1 CC="${CC:-cc}" 2>&1 |
        grep -E 'pkg-config|hdf5|sqlite|openblas|-lcsv|-lz3|common/offline'
}

check "common/ includes only common/, and not common/offline/" layer common 'common/(base|cli|text|kernels|model|ops|plan|pack|hwdb|accel|opencl|engines)/' 'common/offline/*'
check "common/offline/ includes only common/" layer common/offline 'common/'
for p in profiler planner packer; do
    check "$p/ includes only itself and the libraries" layer $p "$p/|common/"
done
for p in datasets/tools datasets/synth; do
    check "$p/ includes only itself and common/" layer $p "$p/|common/"
done
check "profiler/probe/ includes only itself and common/" layer profiler/probe 'profiler/probe/|common/(base|cli|kernels|model|ops|plan|pack|hwdb|accel|engines)/'
check "runtime/ includes only itself and common/" layer runtime 'runtime/|common/'
check "driver/ includes only itself, and base, cli and model of common/" layer driver 'driver/|common/(base|cli|model)/'
check "quantizer/ includes only itself, and base, cli, kernels and model of common/" layer quantizer 'quantizer/|common/(base|cli|kernels|model)/'
check "server/ includes only itself, common/base, common/cli and runtime/thermo.h" layer server 'server/|common/(base|cli)/|runtime/thermo\.h'
for p in common profiler planner packer runtime server quantizer driver; do
    check "$p/: rooms include only what tests/rooms.py allows, and there is no circle" python3 tests/rooms.py $p
done
check "HDF5 only in the trace wrapper" only 'hdf5(_hl)?\.h' 'common/offline/trace/trace_h5\.c'
check "SQLite only in the hardware database wrapper" only 'sqlite3\.h' 'common/offline/hwdb/hwdb[a-z0-9_]*\.c'
check "libcsv only in the table wrapper" only 'csv\.h' 'common/offline/table\.c'
check "OpenBLAS and LAPACK only in the linear algebra wrapper" only '(cblas|lapacke?)\.h' 'common/offline/linalg\.c'
check "Z3 only in solve_z3.c, paper_z3.c and refute.c" only 'z3[a-z_]*\.h' 'planner/solve/((solve|paper)_z3|refute)\.c'
check "jansson only in its wrapper" only 'jansson\.h' 'common/(base/js|plan/plan_fields_read)\.c'
check "zstd only in its wrapper" only 'zstd[a-z_]*\.h' 'common/base/zstream\.c'
check "xxHash only in its wrapper" only 'xxhash\.h' 'common/base/hash\.c'
check "liburing only in the read backends and the storage probe" only 'liburing\.h' '(runtime/io/io_[a-z_]*|profiler/probe/probe_(disk|joint))\.c'
check "PCRE2 only in its wrapper" only 'pcre2\.h' 'common/model/tokenizer_pre\.c'
check "libedit only in its wrapper" only 'histedit\.h' 'runtime/typed_edit\.c'
check "libmicrohttpd only in its wrapper" only 'microhttpd\.h' 'server/http\.c'
check "no offline header reaches the lean half" no_offline_header
check "the runtime is cancelled by tokens; commands alone connect them to signals" tokens_only
check "serve, chat and generate use the library, and nothing behind it" library_alone cmd_serve cmd_chat cmd_generate generate_prompts summary kept
for p in thermo-run thermo-probe; do
    check "$p needs no offline library, and no server's" needed $p
done
check "make runtime probe asks for no offline package" no_pkg_config
done_testing
