/* GGUF files that hold no language model, or one in the form of an older converter: said of those that were refused. */
#include "common/model/model.h"

#include "common/model/gguf.h"

#include <stdio.h>
#include <string.h>

#define EMBEDS "an embedding model, which makes vectors of a text and no text"
#define DRAFTS "a draft model that cannot do without the one that it drafts for"
#define PAINTS "a model of images or video"
#define SPEAKS "a model of speech"
#define DIFFUSES "a language model that writes by diffusion, all places at once"
#define OTHER "this software runs models that write one token after another; give a file of one"
#define MERGE "merge it into its model (llama.cpp's llama-export-lora) and give the file that comes out"

/* By the value of a key. */
static const struct {
    const char *key, *value, *what, *next;
} kinds[] = {
    { "general.type", "adapter", "a LoRA adapter or a control vector", MERGE },
    { "general.type", "mmproj", "the part of a model that sees or hears (mmproj)", "give the file of the language model beside it" },
    { "general.type", "imatrix", "an importance matrix", "it serves whoever quantises a model; give the model itself" },
    { "general.architecture", "clip", "the part of a model that sees or hears (mmproj)", "give the file of the language model beside it" },
    { "general.architecture", "controlvector", "a control vector", "give the file of the model itself" },
    { "general.architecture", "bert", EMBEDS, OTHER },
    { "general.architecture", "modern-bert", EMBEDS, OTHER },
    { "general.architecture", "nomic-bert", EMBEDS, OTHER },
    { "general.architecture", "nomic-bert-moe", EMBEDS, OTHER },
    { "general.architecture", "neo-bert", EMBEDS, OTHER },
    { "general.architecture", "jina-bert-v2", EMBEDS, OTHER },
    { "general.architecture", "jina-bert-v3", EMBEDS, OTHER },
    { "general.architecture", "eurobert", EMBEDS, OTHER },
    { "general.architecture", "gemma-embedding", EMBEDS, OTHER },
    { "general.architecture", "llama-embed", EMBEDS, OTHER },
    { "general.architecture", "t5encoder", EMBEDS, OTHER },
    { "general.architecture", "t5", "an encoder with a decoder", OTHER },
    { "general.architecture", "eagle3", DRAFTS, OTHER },
    { "general.architecture", "dflash", DRAFTS, OTHER },
    { "general.architecture", "gemma4-assistant", DRAFTS, OTHER },
    { "general.architecture", "dream", DIFFUSES, OTHER },
    { "general.architecture", "llada", DIFFUSES, OTHER },
    { "general.architecture", "llada-moe", DIFFUSES, OTHER },
    { "general.architecture", "rnd1", DIFFUSES, OTHER },
    { "general.architecture", "whisper", SPEAKS, OTHER },
    { "general.architecture", "wavtokenizer-dec", SPEAKS, OTHER },
    { "general.architecture", "qwen3tts", SPEAKS, OTHER },
    { "general.architecture", "pockettts", SPEAKS, OTHER },
    { "general.architecture", "flux", PAINTS, OTHER },
    { "general.architecture", "sd1", PAINTS, OTHER },
    { "general.architecture", "sd3", PAINTS, OTHER },
    { "general.architecture", "sdxl", PAINTS, OTHER },
    { "general.architecture", "wan", PAINTS, OTHER },
    { "general.architecture", "qwen_image", PAINTS, OTHER },
};

/* What older converters wrote in another form: a tensor whose name ends so, or a key that is absent. */
static const struct {
    const char *arch, *tensor, *key, *what; /* arch: NULL for all */
} older[] = {
    { NULL, ".ffn_gate.0.weight", NULL, "each expert has tensors of its own, as in files of before April 2024" },
    { "deepseek2", NULL, "deepseek2.attention.key_length_mla", "attention is not absorbed, as in files of before May 2025" },
    { "qwen3next", ".ssm_in.weight", NULL, "projections of a delta net are one tensor" },
    { "rwkv6", ".time_mix_lerp_w.weight", NULL, "lerps are apart, which newer files join in time_mix_lerp_fused" },
};

static int is(const struct gguf_key *k, const char *value)
{
    return k && k->type == GGUF_STRING && k->data_len == strlen(value) && !memcmp(k->data, value, k->data_len);
}

static int ends(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

static int name_older(const struct gguf *g, int r, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, "general.architecture");
    if (!k || k->type != GGUF_STRING)
        return r;
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
        const char *found = older[i].key && !gguf_find(g, older[i].key) ? older[i].key : NULL;
        if (older[i].arch && !is(k, older[i].arch))
            continue;
        for (uint64_t n = 0; older[i].tensor && n < g->n_tensors && !found; n++)
            found = ends(g->tensors[n].name, older[i].tensor) ? g->tensors[n].name : NULL;
        if (found)
            return err_set(e, ERR_UNSUPPORTED, "'%s': %s '%s'%s: %s; convert the model again from its original, with a converter of today "
                           "(llama.cpp's convert_hf_to_gguf.py)", gguf_name(g),
                           older[i].key ? "key" : "tensor", found, older[i].key ? " is absent" : "", older[i].what);
    }
    return r;
}

static int refuse(const struct gguf *g, const char *key, const char *what, const char *next, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "'%s' is %s (by '%s'): %s", gguf_name(g), what, key, next);
}

int model_foreign(const struct gguf *g, int r, struct err *e)
{
    if (r != ERR_FORMAT && r != ERR_UNSUPPORTED)
        return r;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(gguf_find(g, kinds[i].key), kinds[i].value))
            return refuse(g, kinds[i].key, kinds[i].what, kinds[i].next, e);
    for (uint64_t i = 0; i < g->n_keys; i++) {
        if (ends(g->keys[i].name, ".pooling_type") || ends(g->keys[i].name, ".classifier.output_labels"))
            return refuse(g, g->keys[i].name, "a model that makes vectors or ranks of a text, and no text", OTHER, e);
        if (!strcmp(g->keys[i].name, "adapter.type"))
            return refuse(g, g->keys[i].name, "a LoRA adapter or a control vector", MERGE, e);
    }
    if (g->n_tensors == 0)
        return err_set(e, ERR_UNSUPPORTED, "'%s' has no tensors: it is a vocabulary without its model; give the model's file",
                       gguf_name(g));
    return name_older(g, r, e);
}
