/* `thermo-profile models`: the programs' own tables of architectures and types, in Markdown. */
#include "profiler/cmd.h"

#include "common/base/print.h"
#include "common/cli/opt.h"
#include "common/kernels/kernels.h"
#include "common/kernels/quant.h"
#include "common/model/model_arch.h"
#include "common/model/tokenizer.h"

#include <stdio.h>

static void print_types(void)
{
    const char *comma = "";
    print("Types of matrices: ");
    for (uint32_t t = 0; t < QUANT_LIMIT; t++)
        if (kernels->rows[KERNELS_ACT_F32][t]) {
            print("%s%s", comma, quant_traits(t)->name);
            comma = ", ";
        }
    print(".\n");
}

static void print_tokenizers(void)
{
    const struct tokenizer_model *m;
    print("Tokenizers (`tokenizer.ggml.model`): ");
    for (int i = 0; (m = tokenizer_model(i)); i++)
        print("%s%s (%s)", i ? ", " : "", m->name, m->what);
    print(".\n\nPatterns of words (`tokenizer.ggml.pre`, `--pre`): ");
    const char *name;
    for (int i = 0; (name = tokenizer_pre_name(i)); i++)
        print("%s%s", i ? ", " : "", name);
    print(".\n");
}

static void print_families(void)
{
    const struct model_family *f;
    print("| `general.architecture` | what | notes |\n|--|--|--|\n");
    for (int i = 0; (f = model_family(i)); i++)
        print("| `%s` | %s | %s |\n", f->arch, f->what, f->notes);
}

int cmd_models(int argc, char **argv)
{
    static const struct opt_usage usage = {
        "thermo-profile models", "",
        "List the architectures (general.architecture of a GGUF file), the types of matrices and the tokenizers that all programs "
        "understand, as Markdown. What a file has beyond them is refused by the name of key, tensor or value.",
        "  thermo-profile models\n", NULL
    };
    const struct opt opts[] = { { 0 } };
    struct err e = { 0 };
    int n, r = opt_parse(opts, &usage, argc, argv, &n, &e);
    kernels_init(0);
    if (r == 0 && n != 0)
        r = err_set(&e, ERR_USAGE, "no argument is expected, %d given", n);
    if (r != 0)
        return r > 0 ? 0 : opt_fail(&e);
    print_types();
    print("\n");
    print_tokenizers();
    print("\n");
    print_families();
    return 0;
}
