/* thermo-run logits: one pass over a prompt, the next token's logits as JSON in full precision. */
#include "common/base/file.h"
#include "common/base/print.h"
#include "common/cli/opt.h"

#include "runtime/cmd.h"
#include "runtime/prompt.h"
#include "runtime/report.h"
#include "runtime/session/session.h"
#include "runtime/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-run logits", "",
    "Print the logits of the token that would follow a prompt, as {\"logits\":[...]} with nine significant digits, "
    "enough to restore every float32. For comparing implementations, memory limits and settings: exact and dense "
    "mode print the same bytes under any memory limit, thread count, prefill chunk and read backend; so does predicted mode, "
    "which here applies predictors to the prompt too.",
    "  thermo-run logits --model m.thermo --plan p.json --tokens 1,403,4\n"
    "  thermo-run logits --model m.thermo --plan p.json --prompt 'Once upon a time' --memory 512MiB\n",
    NULL
};

struct dump {
    int block, last; /* the file's number of the layer; the prompt's last position */
    size_t d_model;
};

static void dump(void *ctx, enum op_kind op, const struct engine_token *tokens, int n, const float *x)
{
    const struct dump *d = ctx;
    if (tokens[n - 1].pos != d->last)
        return;
    print_json_to(stdout, "{\"layer\":%d,\"after\":\"%s\",\"x\":", d->block, op == OP_EMBED ? "input" : graph_op_name(op));
    print_json_reals(stdout, x + (size_t)(n - 1) * d->d_model, d->d_model);
    fputs("}\n", stdout);
}

static int print_logits(struct setup *s, const int32_t *ids, int n, int block, struct err *e)
{
    struct dump d = { block, n - 1, (size_t)s->pack->h.d_model };
    struct engine *g = NULL;
    struct session q = { 0 };
    const float *v = NULL;
    if (block >= 0)
        s->config.dump = dump, s->config.dump_ctx = &d, s->config.dump_layer = model_layer_at(&s->pack->h, block);
    int done, r = setup_engine(s, &g, e);
    if (r < 0)
        return r;
    if ((r = session_init(&q, g, &(struct session_config){ .cancel = s->args.cancel }, e)) == 0 &&
        (r = session_feed(&q, ids, n, SESSION_PREDICTED, &done, e)) == 0 && !(v = session_logits(&q, e)))
        r = e->code;
    if (r == 0) {
        fputs("{\"logits\":", stdout);
        print_json_reals(stdout, v, (size_t)s->pack->h.n_vocab);
        fputs("}\n", stdout);
    }
    session_done(&q);
    report_accel_lost(g);
    engine_close(g);
    return r < 0 ? r : file_stdout(e);
}

static int get_ids(const struct setup *s, const char *tokens, const char *prompt, const char *file, int32_t **ids,
                   int *n, struct err *e)
{
    char *text;
    size_t len;
    int r;
    if (tokens) {
        if (prompt || file)
            return err_set(e, ERR_USAGE, "--tokens excludes --prompt and --prompt-file");
        return prompt_ids(tokens, s->pack->h.n_vocab, ids, n, e);
    }
    if ((r = prompt_text(prompt, file, setup_room(s), &text, &len, e)) < 0)
        return r;
    r = tokenizer_encode(s->tokenizer, text, len, 1, 0, ids, n, e);
    free(text);
    return r;
}

int cmd_logits(int argc, char **argv)
{
    struct setup_args a;
    struct setup s = { 0 };
    struct err e = { 0 };
    struct opt opts[SETUP_OPTIONS + 5] = { 0 };
    const char *tokens = NULL, *prompt = NULL, *file = NULL;
    int32_t *ids = NULL;
    int n = 0, n_pos = 0, block = -1, r;
    setup_args_init(&a);
    int k = setup_options(opts, &a);
    opts[k++] = (struct opt){ .name = "tokens", .type = OPT_STRING, .dest = &tokens, .arg = "IDS",
                              .help = "Token ids, separated by commas." };
    opts[k++] = (struct opt){ .name = "prompt", .short_name = 'p', .type = OPT_STRING, .dest = &prompt, .arg = "TEXT",
                              .help = "A text instead." };
    opts[k++] = (struct opt){ .name = "prompt-file", .short_name = 'f', .type = OPT_STRING, .dest = &file,
                              .arg = "FILE", .file = OPT_READ, .help = "A file with the text; - is standard input." };
    opts[k++] = (struct opt){ .name = "dump-layer", .type = OPT_INT, .dest = &block, .min = 0, .max = MODEL_MAX_LAYERS - 1,
                              .arg = "N", .def = "none",
                              .help = "Print before the logits what the last token's residual is as it enters layer N, the model "
                                      "file's blk.N, and after each operation that changes it, a line of JSON each." };
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) != 0)
        return r > 0 ? 0 : opt_fail(&e);
    if (n_pos)
        r = err_set(&e, ERR_USAGE, "unexpected argument '%s'; see thermo-run logits --help", argv[1]);
    a.cancel = file_catch_interrupt();
    if (r == 0 && (r = setup_open(&a, &s, &e)) == 0 && (r = get_ids(&s, tokens, prompt, file, &ids, &n, &e)) == 0 &&
        (r = prompt_check(n, s.config.choice.context, 0, &e)) == 0)
        r = block < model_depth(&s.pack->h) ? print_logits(&s, ids, n, block, &e)
                                            : err_set(&e, ERR_USAGE, "--dump-layer %d: the model has layers 0 to %d", block,
                                                      model_depth(&s.pack->h) - 1);
    free(ids);
    setup_close(&s);
    return r < 0 ? opt_fail(&e) : 0;
}
