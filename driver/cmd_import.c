/* `thermocline import DIR`: a model as it is published, config.json beside safetensors, becomes a GGUF file. The conversion is llama.cpp's:
 * its convert_hf_to_gguf.py, run by Python where gguf is installed. What is asked first costs nothing: the folder, the model's class, the
 * converter, Python's packages, room on the disk. The result appears whole or not at all. */
#include "driver/cmd.h"

#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/size.h"
#include "common/cli/opt.h"
#include "common/model/gguf.h"
#include "common/model/mix.h"
#include "driver/drive.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SCRIPT       "convert_hf_to_gguf.py"
#define VARIABLE     "THERMOCLINE_CONVERTER"
#define CONFIG_BYTES (4u << 20)

/* Classes of config.json (`architectures`) of the families that we read. */
static const char *const classes[] = {
    "LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Mistral3ForConditionalGeneration", "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration", "OlmoeForCausalLM",
    "GptOssForCausalLM", "SeedOssForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM",
    "Olmo2ForCausalLM", "Olmo3ForCausalLM", "Exaone4ForCausalLM", "Glm4ForCausalLM", "HunYuanMoEV1ForCausalLM", "MiniMaxM2ForCausalLM",
    "BailingMoeV2ForCausalLM", "Jais2ForCausalLM", "SmolLM3ForCausalLM", "GraniteForCausalLM", "GraniteMoeForCausalLM",
    "GraniteMoeSharedForCausalLM", "GraniteMoeHybridForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM",
    "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Phi3ForCausalLM", "ArceeForCausalLM", "NemotronForCausalLM", "NemotronHForCausalLM",
    "FalconForCausalLM", "RWForCausalLM", "Rwkv6ForCausalLM", "RWKV7ForCausalLM", "SmallThinkerForCausalLM", NULL
};

struct import {
    struct drive d;
    const char *folder, *out, *type, *converter, *python;
    int any;
    char script[DRIVE_PATH], to[DRIVE_PATH], half[DRIVE_PATH]; /* half: what the converter writes */
    uint64_t bytes;          /* of weights */
};

static int parse(struct import *m, int argc, char **argv, struct err *e)
{
    const struct opt opts[] = {
        { .name = "out", .short_name = 'o', .type = OPT_STRING, .dest = &m->out, .arg = "FILE", .file = OPT_WRITE,
          .help = "The GGUF file.", .def = "the folder's name in the current folder" },
        { .name = "type", .type = OPT_STRING, .dest = &m->type, .arg = "TYPE",
          .help = "Quantise afterwards, with thermo-quantize, as Q4_K_M or Q8_0.", .def = "as published" },
        { .name = "converter", .type = OPT_STRING, .dest = &m->converter, .arg = "FILE", .file = OPT_READ,
          .help = "llama.cpp's " SCRIPT ".", .def = "$" VARIABLE ", or one in PATH" },
        { .name = "python", .type = OPT_STRING, .dest = &m->python, .arg = "PROGRAM",
          .help = "Python with the packages that the converter needs.", .def = "python3" },
        { .name = "any", .type = OPT_FLAG, .dest = &m->any,
          .help = "Also a model whose class in config.json is none that is known to be read here." },
        { 0 },
    };
    const struct opt_usage usage = {
        .program = "thermocline import", .synopsis = "DIR",
        .about = "Make a GGUF file of a model as it is published: a folder with config.json and *.safetensors. It is converted by "
                 "llama.cpp's " SCRIPT ", which needs Python's package gguf; nothing is downloaded. 'thermocline FILE.gguf' then runs it.",
        .examples = "  thermocline import Qwen3-0.6B --converter llama.cpp/" SCRIPT "\n"
                    "  thermocline import Qwen3-0.6B --type Q4_K_M --out qwen.gguf\n",
        .files = "r",
    };
    int n_pos, r = opt_parse(opts, &usage, argc, argv, &n_pos, e);
    if (r != 0)
        return r;
    if (n_pos != 1)
        return err_set(e, ERR_USAGE, n_pos ? "one folder at a time" : "a folder is needed; see thermocline import --help");
    if (m->type && !mix_by_name(m->type))
        return err_set(e, ERR_USAGE, "--type %s: no such type; 'thermo-quantize --help' lists them", m->type);
    m->folder = argv[1];
    m->python = m->python ? m->python : "python3";
    return 0;
}

/* ---- what is there ---- */

static int ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end);
}

/* Bytes of weights in the folder. */
static int folder_bytes(struct import *m, struct err *e)
{
    DIR *all = opendir(m->folder);
    struct dirent *f;
    struct stat st;
    if (!all)
        return err_sys(e, ERR_INPUT, "cannot read folder '%s'", m->folder);
    while ((f = readdir(all)))
        if ((ends_with(f->d_name, ".safetensors") || ends_with(f->d_name, ".bin")) && fstatat(dirfd(all), f->d_name, &st, 0) == 0 &&
            S_ISREG(st.st_mode))
            m->bytes += (uint64_t)st.st_size;
    closedir(all);
    return m->bytes ? 0 : err_set(e, ERR_INPUT, "'%s' has no *.safetensors or *.bin: give the folder of a published model", m->folder);
}

/* Is it of a family that we read? */
static int ask_class(struct import *m, struct err *e)
{
    char path[DRIVE_PATH];
    int r = drive_path(path, e, "%s/config.json", m->folder);
    if (r == 0 && access(path, R_OK) < 0)
        r = err_set(e, ERR_INPUT, "'%s' has no config.json: give the folder of a published model", m->folder);
    struct js *j = r == 0 ? js_read(path, CONFIG_BYTES, CONFIG_BYTES, e) : NULL;
    if (!j)
        return r == 0 ? e->code : r;
    const char *name = js_str(js_at(js_get(j, "architectures"), 0));
    int known = 0;
    for (int i = 0; name && classes[i] && !known; i++)
        known = !strcmp(name, classes[i]);
    if (!known && m->any)
        log_warn("'%s': class '%.80s' is none that is known to be read here", path, name ? name : "");
    else if (!known)
        r = err_set(e, ERR_UNSUPPORTED, name ? "'%s': models of class '%.80s' are not known to be read here ('thermo-profile models' "
                    "lists families); --any converts it all the same" : "'%s' names no class (architectures); --any converts it all the "
                    "same", path, name);
    js_free(j);
    return r;
}

static int find_converter(struct import *m, struct err *e)
{
    const char *given = m->converter ? m->converter : getenv(VARIABLE);
    char dir[DRIVE_PATH];
    if (given && *given)
        return access(given, R_OK) < 0 ? err_sys(e, ERR_INPUT, "cannot read '%s' (%s)", given, m->converter ? "--converter" : VARIABLE) :
                                         drive_path(m->script, e, "%s", given);
    if (drive_in_path(SCRIPT, R_OK, dir))
        return drive_path(m->script, e, "%s/" SCRIPT, dir);
    return err_set(e, ERR_USAGE, "llama.cpp's " SCRIPT " is not in PATH: get llama.cpp's sources and give the file with --converter FILE "
                   "or $" VARIABLE);
}

static int ask_python(struct import *m, struct err *e)
{
    struct words w = { 0 };
    char *text = NULL, says[400] = "";
    size_t len;
    int status = 0;
    words_add(&w, m->python);
    words_add2(&w, "-c", "import gguf");
    int r = child_read(&w, &text, &len, says, sizeof says, &status, e);
    if (r == 0 && status)
        r = err_set(e, status == 130 ? ERR_INTR : ERR_SYS, "'%s' has no package gguf (pip install -r requirements.txt, of the converter, "
                    "brings what it needs; --python names another)%s%s", m->python, *says ? ": " : "", says);
    free(text);
    words_done(&w);
    return r;
}

/* The result, and room for it: as much as the weights take, and with a type both at once. */
static int ask_room(struct import *m, struct err *e)
{
    char folder[DRIVE_PATH], absolute[DRIVE_PATH], a[24], b[24];
    struct statvfs v;
    struct stat st;
    if (!m->out && !realpath(m->folder, absolute))
        return err_sys(e, ERR_INPUT, "cannot read folder '%s'", m->folder);
    int r = m->out ? drive_path(m->to, e, "%s", m->out) :
                     drive_path(m->to, e, "%s%s%s.gguf", strrchr(absolute, '/') + 1, m->type ? "-" : "", m->type ? m->type : "");
    r = r == 0 ? drive_path(m->half, e, "%s.converting", m->to) : r;
    if (r < 0)
        return r;
    if (stat(m->to, &st) == 0)
        return err_set(e, ERR_USAGE, "'%s' is there already: remove it, or name another file with --out", m->to);
    snprintf(folder, sizeof folder, "%s", m->to);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    if (statvfs(slash ? folder : ".", &v) < 0)
        return err_sys(e, ERR_INPUT, "cannot write to folder '%s'", slash ? folder : ".");
    uint64_t have = (uint64_t)v.f_bavail * v.f_frsize, need = m->type ? m->bytes + m->bytes / 4 : m->bytes;
    if (have < need)
        return err_set(e, ERR_IO, "'%s': the conversion needs %s of disk, %s are free", m->to, size_format(need, a, sizeof a),
                       size_format(have, b, sizeof b));
    drive_say(&m->d, "%s of weights, converted by '%s' into '%s'", size_format(m->bytes, a, sizeof a), m->script, m->to);
    return 0;
}

/* ---- the work ---- */

static int run(struct import *m, struct words *w, const char *what, struct err *e)
{
    int status = 0;
    bar_begin(&m->d.bar, (double)m->bytes / 100e6, 0);
    int r = child_run(w, &m->d.bar, &status, e);
    bar_end(&m->d.bar);
    words_done(w);
    if (r == 0 && status)
        r = err_set(e, status == 130 ? ERR_INTR : ERR_SYS, status == 130 ? "interrupted; nothing was kept" :
                    "%s failed (exit status %d); -v shows all that it says", what, status);
    return r;
}

static int convert(struct import *m, struct err *e)
{
    struct words w = { 0 };
    struct gguf *g = NULL;
    words_add(&w, m->python);
    words_add(&w, m->script);
    words_add2(&w, "--outfile", m->half);
    words_add2(&w, "--outtype", "auto");
    words_add(&w, m->folder);
    int r = run(m, &w, "the converter", e);
    if (r == 0 && access(m->half, R_OK) < 0)
        r = err_set(e, ERR_SYS, "the converter wrote no '%s'", m->half);
    r = r == 0 ? gguf_open(m->half, &g, e) : r; /* what it wrote is a model's file */
    gguf_close(g);
    return r;
}

static int quantise(struct import *m, struct err *e)
{
    struct words w = { 0 };
    drive_program(&m->d, &w, "thermo-quantize");
    words_add(&w, "-q");
    words_add(&w, m->half);
    words_add(&w, m->to);
    words_add(&w, m->type);
    return run(m, &w, "thermo-quantize", e);
}

static int import(struct import *m, struct err *e)
{
    int r;
    if ((r = folder_bytes(m, e)) < 0 || (r = ask_class(m, e)) < 0 || (r = find_converter(m, e)) < 0 ||
        (r = m->type ? drive_find_programs(&m->d, e) : 0) < 0 || (r = ask_python(m, e)) < 0 || (r = ask_room(m, e)) < 0)
        return r;
    r = convert(m, e);
    if (r == 0 && m->type)
        r = quantise(m, e);
    else if (r == 0 && rename(m->half, m->to) < 0)
        r = err_sys(e, ERR_IO, "cannot rename '%s' to '%s'", m->half, m->to);
    if (unlink(m->half) < 0 && errno != ENOENT)
        log_warn("'%s' could not be removed (%s)", m->half, strerror(errno));
    if (r == 0)
        drive_say(&m->d, "wrote %s; 'thermocline %s' runs it", m->to, m->to);
    return r;
}

int cmd_import(int argc, char **argv)
{
    static struct import m;
    struct err e = { 0 };
    int r = parse(&m, argc, argv, &e);
    if (r > 0)
        return 0;
    if (r == 0) {
        file_catch_interrupt();
        r = import(&m, &e);
    }
    return r < 0 ? opt_fail(&e) : r;
}
