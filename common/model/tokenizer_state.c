/* BPE files that do not say how words are cut: those of before April 2024, and all of OPT and Falcon that PowerInfer's converter wrote.
 * What a user states counts, else what the family's tokenizer does, where the family has one. A family with several is told apart by how
 * many tokens there are: Llama 3's and DeepSeek's vocabularies are unlike any other in that. */
#include "common/model/tokenizer_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *arch;
    uint64_t n_vocab;          /* 0: whatever the number */
    const char *pre;
} families[] = {
    { "opt", 0, "gpt-2" }, { "falcon", 0, "falcon" }, { "qwen2", 0, "qwen2" }, { "qwen2moe", 0, "qwen2" },
    { "llama", 128256, "llama-bpe" }, { "llama", 102400, "deepseek-llm" }, { "llama", 32256, "deepseek-coder" },
};

/* The pattern of the family; NULL: it has several, or none is known. */
static const char *family_pre(const struct gguf *g)
{
    const struct gguf_key *arch = gguf_find(g, "general.architecture"), *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    for (size_t i = 0; arch && arch->type == GGUF_STRING && i < sizeof families / sizeof *families; i++)
        if (strlen(families[i].arch) == arch->n && !memcmp(families[i].arch, arch->data, (size_t)arch->n) &&
            (families[i].n_vocab == 0 || (tokens && families[i].n_vocab == tokens->n)))
            return families[i].pre;
    return NULL;
}

static int is_bpe(const struct gguf *g)
{
    const struct gguf_key *k = gguf_find(g, "tokenizer.ggml.model");
    return k && k->type == GGUF_STRING && k->n == 4 && !memcmp(k->data, "gpt2", 4);
}

int tokenizer_state_pre(struct gguf *g, const char *pre, char *said, size_t cap, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, TOKENIZER_PRE_KEY);
    const int stated = pre != NULL;
    *said = '\0';
    if (pre && pre_flags(pre, strlen(pre)) < 0)
        return err_set(e, ERR_USAGE, "--pre '%.64s' is none of the names that 'thermo-profile models' lists", pre);
    if (!is_bpe(g))
        return pre ? err_set(e, ERR_USAGE, "--pre %s: '%s' has no BPE of bytes (key 'tokenizer.ggml.model' is not 'gpt2'), whose words "
                             "it is for", pre, gguf_name(g)) : 0;
    if (k && (!pre || (k->type == GGUF_STRING && k->n == strlen(pre) && !memcmp(k->data, pre, (size_t)k->n))))
        return 0;
    if (k && k->type == GGUF_STRING) {
        snprintf(said, cap, "'%s': words are cut by '%s', as --pre says, though key '" TOKENIZER_PRE_KEY "' is '%.*s'", gguf_name(g), pre,
                 (int)(k->n < 64 ? k->n : 64), (const char *)k->data);
    } else if (!pre && !(pre = family_pre(g))) {
        return err_set(e, ERR_USAGE, "'%s': key '" TOKENIZER_PRE_KEY "' is absent, and models of this architecture cut words in more than "
                       "one way: state the model's own with --pre NAME ('thermo-profile models' lists the names), or convert it again",
                       gguf_name(g));
    } else if (!stated) {
        snprintf(said, cap, "'%s': key '" TOKENIZER_PRE_KEY "' is absent, as in files of before April 2024: words are cut by '%s'; --pre "
                 "NAME states another way", gguf_name(g), pre);
    }
    return gguf_state_str(g, TOKENIZER_PRE_KEY, pre, e);
}
