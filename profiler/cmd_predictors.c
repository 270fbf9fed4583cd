/* thermo-profile predictors, predictors-measure and predictors-import: one table of options, of which each command takes
 * its rows. */
#include "profiler/cmd_predictors.h"

#include "common/base/cpu.h"
#include "common/base/file.h"
#include "common/base/pool.h"
#include "common/cli/opt.h"
#include "common/kernels/kernels.h"
#include "common/offline/linalg.h"
#include "profiler/cmd.h"
#include "profiler/predictors/predictor_set.h"

#include <string.h>

enum { MAKE = CMD_PREDICTORS_MAKE, MEASURE = CMD_PREDICTORS_MEASURE, IMPORT = CMD_PREDICTORS_IMPORT,
       ALL = MAKE | MEASURE | IMPORT };
enum { FORMER_KEEP = CMD_PREDICTORS_SELECT + 1, FORMER_IMPORT };

static const struct opt_usage make_usage = {
    "thermo-profile predictors", "",
    "Make predictors of active neurons for a traced model and put them into its trace. A predictor sees a vector that is "
    "known early and predicts which neurons of an FFN will be active; the other neurons need not be loaded or computed. "
    "There is one predictor per layer, or per expert: a product of two thin matrices, which starts from the singular "
    "value decomposition of the gate matrix and is trained on the trace's samples. One sequence in eight is held out: it "
    "gives the threshold that reaches --recall, and all reported figures. A false negative costs accuracy, a false positive "
    "costs one small read. Predictors that see the transformer block's input (--input block) are less exact, but their "
    "result is known before attention, so that reads overlap it. Last, the whole model runs on text with only the "
    "predicted neurons, and the trace gets the loss of quality. More samples make better predictors: trace with a larger "
    "--samples. --resume continues an interrupted run.",
    "  thermo-profile predictors --model m.gguf --traces m.h5\n"
    "  thermo-profile predictors --model m.gguf --traces m.h5 --input both --recall 0.995 --budget 8%\n",
    NULL
};

static const struct opt_usage measure_usage = {
    "thermo-profile predictors-measure", "",
    "Measure the predictors that a trace holds: their loss of quality, which is put into the trace, and with --check their "
    "recall and precision on another trace. No predictor changes.",
    "  thermo-profile predictors-measure --model m.gguf --traces m.h5 --quality-tokens 2000\n"
    "  thermo-profile predictors-measure --model m.gguf --traces m.h5 --check other.h5 --json\n",
    NULL
};

static const struct opt_usage import_usage = {
    "thermo-profile predictors-import", "",
    "Put the predictors of a PowerInfer GGUF into its trace, unchanged, and measure them on the trace's samples and on "
    "text. They see the residual before the FFN's norm, and their threshold is the file's.",
    "  thermo-profile predictors-import --model m.powerinfer.gguf --traces m.h5\n",
    NULL
};

static const char *const methods[] = { "trained", "svd", "select", NULL };
static const struct opt_choice_alias former_methods[] = {
    { "columns", CMD_PREDICTORS_SELECT, "--method select" },
    { "keep", FORMER_KEEP, "'thermo-profile predictors-measure'" },
    { "import", FORMER_IMPORT, "'thermo-profile predictors-import'" },
    { 0 },
};
static const char *const inputs[] = { "ffn", "block", "both", NULL };
const char *const cmd_predictors_types[] = { "q4_0", "q8_0", "f16", NULL };

/* What cannot be together. The former methods still come with options that the new commands do not have. */
static int combined(const struct cmd_predictors *o, struct err *e)
{
    if (o->command == IMPORT &&
        (o->input != CMD_PREDICTORS_NOT_SAID || o->layers || strcmp(o->rank, "auto") || o->dry_run || o->resume))
        return err_set(e, ERR_USAGE, "imported predictors stay as they are: --input, --layers, --rank, --dry-run and --resume "
                       "have no use here");
    if (o->command != MAKE && o->loss_weighting > 0)
        return err_set(e, ERR_USAGE, "--loss-weighting is an option of making predictors; this command makes none");
    if (o->command == MEASURE && o->layers)
        return err_set(e, ERR_USAGE, "--layers is an option of making predictors; this command makes none");
    if (o->command == MEASURE && !o->check && !o->quality_tokens)
        return err_set(e, ERR_USAGE, "--quality-tokens 0 without --check leaves nothing to do; 'thermo-profile show' "
                       "prints what a trace holds");
    return 0;
}

static int parse(int command, const struct opt_usage *usage, struct cmd_predictors *o, int argc, char **argv, struct err *e)
{
    *o = (struct cmd_predictors){ .command = command, .recall = 0.99, .input = CMD_PREDICTORS_NOT_SAID, .budget = "6%",
                                  .rank = "auto", .epochs = 8, .seed = 1, .cpu = "auto",
                                  .quality_tokens = PREDICTOR_SET_AUTO };
    const struct {
        int of;
        struct opt opt;
    } rows[] = {
        { ALL, { "model", 'm', OPT_STRING, &o->model, "FILE", "model, GGUF: the one that was traced.",
                 .required = 1, .file = OPT_READ } },
        { ALL, { "traces", 't', OPT_STRING, &o->traces, "FILE", "its trace.", .required = 1, .file = OPT_READ } },
        { ALL, { "out", 'o', OPT_STRING, &o->out, "FILE", "write the trace with its predictors there.",
                 .def = "the trace itself", .file = OPT_WRITE, .beside = ".predictors.partial", .in_place = "traces" } },
        { MAKE, { "recall", 0, OPT_DOUBLE, &o->recall, "SHARE", "share of the active neurons that must be predicted.",
                  .def = "0.99", .min = 0.5, .max = 0.9999 } },
        { IMPORT, { "recall", 0, OPT_DOUBLE, &o->recall, "SHARE",
                    "recall at which the density of the predictors is reported.",
                    .def = "0.99", .min = 0.5, .max = 0.9999 } },
        { MAKE, { "input", 0, OPT_CHOICE, &o->input, "WHICH",
                  "what the predictors see: ffn (the FFN's input), block (the transformer block's input, before attention: "
                  "lookahead), or both kinds. Predictors of the other input stay in the trace, imported ones excepted.",
                  .def = "ffn", .choices = inputs } },
        { MEASURE, { "input", 0, OPT_CHOICE, &o->input, "WHICH", "measure the predictors of this input.",
                     .def = "all that the trace holds", .choices = inputs } },
        { MAKE, { "layers", 0, OPT_STRING, &o->layers, "LIST",
                  "make the predictors of these layers, like 0,8-15; those of other layers stay in the trace, imported ones "
                  "excepted.",
                  .def = "all" } },
        { MAKE, { "budget", 0, OPT_STRING, &o->budget, "SIZE",
                  "bytes of all predictors of one kind, as a size or in percent of these layers' FFN's "
                  "bytes in the model file; ranks are shared out among layers to fit.",
                  .def = "6%" } },
        { MAKE, { "rank", 0, OPT_STRING, &o->rank, "N", "the same rank for every layer instead, whatever the budget.",
                  .def = "auto" } },
        { MAKE, { "method", 0, OPT_CHOICE, &o->method, "NAME",
                  "trained; svd: the decomposition alone, without training; select: input selection, the gates' own weights "
                  "at the inputs with the largest weights, without decomposition: good where gates depend on few inputs, "
                  "and quick for many experts.",
                  .def = "trained", .choices = methods, .choice_aliases = former_methods } },
        { MAKE, { "loss-weighting", 0, OPT_DOUBLE, &o->loss_weighting, "SHARE",
                  "weight of a false negative. 0: all count equally, which takes the fewest neurons for the recall; 1: by the "
                  "loss of quality that it may cause, which loses least quality for the number of predicted neurons, "
                  "but takes more neurons for the recall; or between.",
                  .def = "0", .min = 0, .max = 1 } },
        { MAKE, { .name = "weigh", .alias_of = "loss-weighting" } },
        { MAKE, { "epochs", 0, OPT_INT, &o->epochs, "N", "passes over the samples.", .def = "8", .min = 1, .max = 10000 } },
        { MAKE | IMPORT, { "samples", 0, OPT_U64, &o->samples, "N",
                           "use N of the trace's samples at most: memory and time are proportional to it.", .def = "all",
                           .min = 1, .max = 1e12 } },
        { MAKE, { "type", 0, OPT_CHOICE, &o->type, "NAME", "how weights are stored.", .def = "q4_0",
                  .choices = cmd_predictors_types } },
        { MAKE, { "seed", 0, OPT_U64, &o->seed, "N", "of the order in which samples are taken.", .def = "1", .min = 0,
                  .max = 1e18 } },
        { ALL, { "check", 0, OPT_STRING, &o->check, "FILE",
                 "another trace of the model, of other text: measure there too, and quality there instead of on held-out "
                 "text.", .file = OPT_READ } },
        { ALL, { "quality-tokens", 0, OPT_U64, &o->quality_tokens, "N",
                 "measure the predictors' loss of quality on N tokens at most; 0: not at all.",
                 .def = "as many as take some minutes: 256 for a 7B model, 4096 for small ones", .min = 0, .max = 1e9 } },
        { ALL, { "threads", 0, OPT_INT, &o->threads, "N", "compute threads; the result does not depend on it.",
                 .def = "one per CPU", .min = 1, .max = POOL_MAX_THREADS } },
        { ALL, { "cpu", 0, OPT_STRING, &o->cpu, "TIER",
                 "instructions to use: auto, scalar, avx2, avxvnni, avx512, amx, neon, dotprod, i8mm.", .def = "auto" } },
        { MAKE, { "dry-run", 'n', OPT_FLAG, &o->dry_run, NULL, "only print memory, sizes and samples.", .def = NULL } },
        { MAKE, { "resume", 0, OPT_FLAG, &o->resume, NULL, "continue an interrupted run.", .def = NULL } },
        { ALL, { "json", 0, OPT_FLAG, &o->json, NULL, "result as JSON on standard output.", .def = NULL } },
    };
    struct opt opts[sizeof rows / sizeof *rows + 1] = { { 0 } };
    int n = 0, n_pos;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].of & command)
            opts[n++] = rows[i].opt;
    int r = opt_parse(opts, usage, argc, argv, &n_pos, e);
    if (!r && n_pos)
        return err_set(e, ERR_USAGE, "'%s' is not an option; see %s --help", argv[1], usage->program);
    if (o->method > CMD_PREDICTORS_SELECT)
        o->command = o->method == FORMER_KEEP ? MEASURE : IMPORT;
    return r ? r : combined(o, e);
}

static int command(int which, const struct opt_usage *usage, int argc, char **argv)
{
    struct cmd_predictors o;
    struct err e = { 0 };
    unsigned mask;
    int r = parse(which, usage, &o, argc, argv, &e);
    if (r > 0)
        return 0;
    if (r < 0 || (r = cpu_parse(o.cpu, &mask, &e)) < 0)
        return opt_fail(&e);
    kernels_init(mask);
    linalg_init();
    file_catch_interrupt();
    r = cmd_predictors_run(&o, &e);
    return r < 0 ? opt_fail(&e) : 0;
}

int cmd_predictors(int argc, char **argv)
{
    return command(MAKE, &make_usage, argc, argv);
}

int cmd_predictors_measure(int argc, char **argv)
{
    return command(MEASURE, &measure_usage, argc, argv);
}

int cmd_predictors_import(int argc, char **argv)
{
    return command(IMPORT, &import_usage, argc, argv);
}
