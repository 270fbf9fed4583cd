#!/bin/bash
# thermocline import: what is refused before anything runs, and a conversion by a stand-in for llama.cpp's converter and Python.
. tests/tap.sh
scratch
here=$(pwd -P)
case $BIN in /*) ;; *) BIN=$here/$BIN ;; esac
T=$BIN/thermocline GGUF=$here/datasets/models/reglu-tales-10m-f16.gguf
cd "$tmp" || exit 1

# python -c 'import gguf'; python SCRIPT --outfile OUT --outtype auto FOLDER
cat > python << END
#!/bin/sh
[ "\$1" != -c ] || { [ ! -e no-gguf ] || echo "ModuleNotFoundError: No module named 'gguf'" >&2; [ ! -e no-gguf ]; exit; }
[ "\$2 \$4 \$5" = "--outfile --outtype auto" ] && [ -e "\$6/config.json" ] || { echo "unexpected: \$*" >&2; exit 9; }
echo "\$*" >> calls
case \$(cat how) in
copy) cp "$GGUF" "\$3" ;;
text) echo no model > "\$3" ;;
fail) echo "half of it" > "\$3"; echo "Model FooForCausalLM is not supported" >&2; exit 1 ;;
nothing) ;;
wait) echo "half of it" > "\$3"; touch begun; exec sleep 60 ;;
esac
END
chmod +x python
touch convert_hf_to_gguf.py
mkdir Tales
echo '{"architectures": ["LlamaForCausalLM"], "hidden_size": 256}' > Tales/config.json
head -c 100000 /dev/zero > Tales/model.safetensors
echo copy > how

import() { "$T" import --python ./python --converter convert_hf_to_gguf.py "$@"; }
nothing_left() { [ ! -e Tales.gguf ] && [ ! -e Tales.gguf.converting ]; }

check "a folder in a model's place says how" says 2 "'Tales' is a folder.*thermocline import Tales" "$T" Tales
check "no folder" says 2 "a folder is needed" "$T" import
check "two folders" says 2 "one folder at a time" import Tales Tales
check "no such folder" says 3 "cannot read folder 'none'" import none
mkdir empty && check "a folder without weights" says 3 "'empty' has no \*.safetensors" import empty
mkdir bare && touch bare/x && head -c 9 /dev/zero > bare/m.safetensors && check "a folder without config.json" says 3 "has no config.json" import bare
mkdir Other && cp Tales/model.safetensors Other && echo '{"architectures": ["BertModel"]}' > Other/config.json
check "a class that is not known" says 3 "models of class 'BertModel' are not known to be read here.*--any" import Other
echo '{}' > Other/config.json
check "no class" says 3 "names no class" import Other
echo '{"architectures": ' > Other/config.json
check "no JSON" says 3 "Other/config.json" import Other
check "no converter" says 2 "convert_hf_to_gguf.py is not in PATH.*--converter" env PATH=/usr/bin:/bin "$T" import Tales
check "a converter that is not there" says 3 "cannot read 'none.py'" "$T" import --converter none.py Tales
touch no-gguf
check "Python without gguf" says 1 "has no package gguf.*No module named 'gguf'" import Tales
rm no-gguf
check "until here the converter was not called" [ ! -e calls ]

check "a conversion" import Tales
check "its result is the converter's" cmp Tales.gguf "$GGUF"
check "nothing else is left" [ ! -e Tales.gguf.converting ]
check "what is there stays" says 2 "'Tales.gguf' is there already" import Tales
check "a converter by the environment, a name of its own" env THERMOCLINE_CONVERTER=convert_hf_to_gguf.py "$T" import --python ./python --out own.gguf Tales
check "... is made" cmp own.gguf "$GGUF"
rm -f Tales.gguf
echo '{}' > Other/config.json
check "no class, with --any" import --any Other --out any.gguf
check "with a type it is quantised" import Tales --type Q8_0
quantised() { "$BIN/thermo-quantize" -q "$GGUF" want.gguf Q8_0 && cmp want.gguf Tales-Q8_0.gguf && [ ! -e Tales-Q8_0.gguf.converting ]; }
check "... as thermo-quantize does" quantised
check "a type that is none" says 2 "Q9_9: no such type" import Tales --type Q9_9 --out never.gguf
check "... leaves nothing" [ ! -e never.gguf ] && [ ! -e never.gguf.converting ]

echo fail > how
check "a converter that fails" says 1 "the converter failed (exit status 1)" import Tales
check "... leaves nothing" nothing_left
echo nothing > how
check "a converter that writes nothing" says 1 "the converter wrote no" import Tales
echo text > how
check "a converter that writes something else" says 3 "Tales.gguf.converting" import Tales
check "... leaves nothing" nothing_left
echo wait > how
interrupted()
{
    "$T" import --python ./python --converter convert_hf_to_gguf.py Tales > /dev/null 2> err &
    for ((i = 0; i < 300; i++)); do [ ! -e begun ] || break; sleep 0.1; done
    kill -TERM $!
    wait $!
    [ $? = 130 ] && nothing_left
}
check "interrupted: 130, and nothing is left" interrupted
done_testing
