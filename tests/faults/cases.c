#include "tests/faults/cases.h"

/* 2 layers of 512 neurons, 192 KiB of them, of which the limit leaves a third out of memory: reads happen. */
#define TRACE "thermo-profile", "trace", "--model", "in/m.gguf", "--prompts", "in/prompts.csv", "--ctx", "8", "--max-tokens", \
    "400", "--window-tokens", "64", "--samples", "320", "--threads", "1"
#define INPUTS "--traces", "in/t.h5", "--hardware", "in/hw.sqlite"
#define WANT INPUTS, "--context", "16", "--form", "split", "--cores", "mid=1,big=0,little=0"
#define RUN(command) "thermo-run", command, "--model", "in/m.thermo", "--plan", "in/p.json"

const struct fault_case fault_cases[] = {
    { .name = "inspect", .output = OUTPUT_NONE, .argv = { "thermo-pack", "inspect", "in/m.thermo" } },
    { .name = "verify", .output = OUTPUT_NONE, .argv = { "thermo-pack", "verify", "in/m.thermo" } },
    { .name = "check", .output = OUTPUT_NONE, .argv = { "thermo-plan", "check", "in/p.json", INPUTS } },
    { .name = "logits", .output = OUTPUT_NONE, .argv = { RUN("logits"), "--tokens", "1,2,3" } },
    { .name = "logits-pread", .output = OUTPUT_NONE,
        .argv = { RUN("logits"), "--tokens", "1,2", "--io", "pread", "--threads", "2", "--memory", "5156KiB" } },
    { .name = "generate", .output = OUTPUT_NONE, .argv = { RUN("generate"), "--prompt", "a b", "-n", "3", "--seed", "1" } },
    { .name = "prompts", .output = OUTPUT_FILE, .partial = "x.partial",
        .argv = { RUN("generate"), "--prompts", "in/prompts.csv", "-n", "3", "--seed", "1", "--context", "32", "--memory", "8MiB",
            "--output", "out/x" } },
    { .name = "perplexity", .output = OUTPUT_NONE, .measures = true,
        .argv = { RUN("perplexity"), "--file", "in/prompts.csv", "--ctx", "8" } },
    { .name = "trace", .output = OUTPUT_FILE, .measures = true, .partial = "x.partial", .argv = { TRACE, "--out", "out/x" },
        .valid = { "thermo-profile", "show", "--verify", "out/x" } },
    { .name = "merge", .output = OUTPUT_FILE, .measures = true,
        .argv = { "thermo-profile", "merge", "in/s0.h5", "in/s1.h5", "--out", "out/x" },
        .valid = { "thermo-profile", "show", "--verify", "out/x" } },
    { .name = "predictors", .output = OUTPUT_FILE, .measures = true, .partial = "x.predictors.partial",
        .argv = { "thermo-profile", "predictors", "--model", "in/m.gguf", "--traces", "in/t.h5", "--method", "svd",
            "--rank", "32", "--layers", "0", "--quality-tokens", "0", "--threads", "1", "--out", "out/x" },
        .valid = { "thermo-profile", "show", "--verify", "out/x" } },
    { .name = "show-trace", .output = OUTPUT_NONE, .argv = { "thermo-profile", "show", "--verify", "in/t.h5" } },
    { .name = "show-hardware", .output = OUTPUT_NONE, .argv = { "thermo-profile", "show", "in/hw.sqlite" } },
    { .name = "import", .output = OUTPUT_TABLE,
        .argv = { "thermo-profile", "import", "--db", "out/x", "--csv", "in/other.csv", "--wait", "1" } },
    { .name = "export", .output = OUTPUT_FILE, .argv = { "thermo-profile", "export", "--db", "in/hw.sqlite", "--out", "out/x" } },
    { .name = "solve", .output = OUTPUT_FILE, .measures = true,
        .argv = { "thermo-plan", "solve", WANT, "--memory", "4756KiB", "--out", "out/x" },
        .valid = { "thermo-plan", "check", "out/x", INPUTS } },
    { .name = "explain", .output = OUTPUT_NONE, .argv = { "thermo-plan", "explain", "in/p.json", INPUTS } },
    { .name = "sweep", .output = OUTPUT_FILE,
        .argv = { "thermo-plan", "sweep", WANT, "--memory", "4756KiB..5376KiB", "--steps", "2", "--out", "out/x" } },
    { .name = "report", .output = OUTPUT_FILE, .argv = { "thermo-plan", "report", "in/p.json", INPUTS, "--out", "out/x" } },
    { .name = "calibrate", .output = OUTPUT_NONE,
        .argv = { "thermo-plan", "calibrate", "--plan", "in/p.json", INPUTS, "--telemetry", "in/run.jsonl" } },
    { .name = "pack", .output = OUTPUT_FILE, .measures = true,
        .argv = { "thermo-pack", "pack", "--model", "in/m.gguf", "--traces", "in/t.h5", "--plan", "in/p.json", "--threads", "1",
            "--out", "out/x" } },
    { .name = "mtp", .output = OUTPUT_FILE, .measures = true,
        .argv = { "thermo-pack", "mtp", "--model", "in/g.gguf", "--threads", "1", "--out", "out/x" },
        .valid = { "thermo-pack", "verify", "out/x" } },
    { .name = "generate-mtp", .output = OUTPUT_NONE,
        .argv = { "thermo-run", "generate", "--model", "in/g.thermo", "--plan", "in/gp.json", "--prompt", "a b", "-n", "4", "--temp", "0",
            "--ignore-eos", "--guess", "mtp", "--mtp", "in/gm.thermo" } },
    { .name = "thermo-quantize", .output = OUTPUT_FILE, .measures = true,
        .argv = { "thermo-quantize", "--pure", "--allow-requantize", "in/m.gguf", "out/x", "q8_0" } },
};
const size_t n_fault_cases = sizeof fault_cases / sizeof *fault_cases;

const char *const fault_setup[] = {
    "gguf-make random -q --act relu --layers 2 --d-model 32 --heads 2 --ff 512 --vocab 260 --context 32 in/m.gguf",
    "thermo-profile trace -q --model in/m.gguf --prompts in/prompts.csv --ctx 8 --max-tokens 400 --window-tokens 64 "
    "--samples 320 --threads 1 --out in/t.h5",
    "thermo-profile trace -q --model in/m.gguf --prompts in/prompts.csv --ctx 8 --max-tokens 400 --window-tokens 64 "
    "--samples 320 --threads 1 --shard 0/2 --out in/s0.h5",
    "thermo-profile trace -q --model in/m.gguf --prompts in/prompts.csv --ctx 8 --max-tokens 400 --window-tokens 64 "
    "--samples 320 --threads 1 --shard 1/2 --out in/s1.h5",
    "thermo-profile import -q --db in/hw.sqlite --csv in/device.csv",
    "thermo-plan solve -q --traces in/t.h5 --hardware in/hw.sqlite --context 16 --form split --cores mid=1,big=0,little=0 "
    "--memory 4756KiB --out in/p.json",
    "thermo-pack pack -q --model in/m.gguf --traces in/t.h5 --plan in/p.json --threads 1 --out in/m.thermo",
    "gguf-make random -q --arch glm4moe --layers 1 --nextn 1 --d-model 32 --heads 2 --ff 32 --experts 2 --experts-used 1 --vocab 260 "
    "--context 32 in/g.gguf",
    "thermo-profile trace -q --model in/g.gguf --prompts in/prompts.csv --ctx 8 --max-tokens 64 --window-tokens 16 --samples 16 "
    "--threads 1 --out in/gt.h5",
    "thermo-plan solve -q --traces in/gt.h5 --hardware in/hw.sqlite --context 16 --form tiles --cores mid=1,big=0,little=0 "
    "--memory 16MiB --out in/gp.json",
    "thermo-pack pack -q --model in/g.gguf --traces in/gt.h5 --plan in/gp.json --threads 1 --out in/g.thermo",
    "thermo-pack mtp -q --model in/g.gguf --threads 1 --out in/gm.thermo",
    "=in/run.jsonl thermo-run generate -q --model in/m.thermo --plan in/p.json --prompt a -n 3 --seed 1 --json",
    NULL
};

/* 40 short texts of words that a made-up vocabulary takes byte by byte: about 14 tokens each. */
#define T(a, b, c) a "\n" b "\n" c "\n"
#define TEN T("fox ran home", "cat sat there", "red sun was up") T("a small fox", "she ran away", "old dog slept") \
    T("rain fell on it", "home once more", "up the red hill") "then he sat\n"
const char fault_prompts[] = "text\n" TEN TEN TEN TEN;
