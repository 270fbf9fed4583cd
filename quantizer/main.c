/* thermo-quantize: a model's weights in fewer bits, as llama-quantize has it: IN OUT TYPE. */
#include "quantizer/quantize.h"

#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/pool.h"
#include "common/base/print.h"
#include "common/base/progress.h"
#include "common/base/version.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-quantize", "IN.gguf OUT.gguf TYPE [THREADS]",
    "Write a model with its matrices in another type, which takes less disk and memory. IN is best in F16, BF16 or F32; of a split model "
    "the first shard, and OUT is one file. TYPE is one of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q2_K_S, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, "
    "Q4_K_M, Q5_K_S, Q5_K_M, Q6_K, IQ4_NL, IQ4_XS, MXFP4_MOE, MXFP4, F16, BF16, F32. Matrices where errors cost most get more bits by the "
    "rule that llama.cpp's llama-quantize publishes: in Q4_K_M the output, and half of attn_v and ffn_down, are Q6_K. Vectors, norms and "
    "routers are copied. Memory stays at some tens of MiB, whatever the model's size.",
    "  thermo-quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M\n"
    "  thermo-quantize --imatrix imatrix.gguf model-bf16.gguf model-q3_k_m.gguf Q3_K_M\n"
    "  thermo-quantize --tensor-type 'blk\\.[01]\\.=q8_0' model-f16.gguf out.gguf Q4_K_S\n",
    "rw-"
};

struct args {
    struct quantize_request q;
    const char *output_type, *embedding_type;
    int json;
};

static int option_type(const char *name, const char *option, int *out, struct err *e)
{
    uint32_t type = 0;
    int r = name ? quantize_type(name, option, &type, e) : 0;
    *out = name ? (int)type : -1;
    return r;
}

static int threads_argument(const char *text, int *out, struct err *e)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || end == text || n < 1 || n > POOL_MAX_THREADS)
        return err_set(e, ERR_USAGE, "THREADS '%s': a number from 1 to %d is needed", text, POOL_MAX_THREADS);
    *out = (int)n;
    return 0;
}

static int parse(int argc, char **argv, struct args *a, struct err *e)
{
    struct quantize_request *q = &a->q;
    const struct opt opts[] = {
        { .name = "imatrix", .type = OPT_STRING, .dest = &q->imatrix, .arg = "FILE", .file = OPT_READ,
          .help = "Importance matrix of the model, of llama.cpp's llama-imatrix, as GGUF or in the older binary form: errors count by "
                  "how much each column was used in its text. Types without a search of scales (F16, Q8_0, MXFP4) take no notice; a "
                  "matrix of another type that it lacks is an error, but for embeddings and output." },
        { .name = "tensor-type", .type = OPT_LIST, .dest = &q->tensor_types, .arg = "PATTERN=TYPE",
          .help = "Type of the matrices in whose name PATTERN, a POSIX extended regular expression, is found; of several the first. "
                  "TYPE without _S, _M or _L. Repeatable." },
        { .name = "output-tensor-type", .type = OPT_STRING, .dest = &a->output_type, .arg = "TYPE",
          .help = "Type of output.weight.", .def = "by the rule" },
        { .name = "token-embedding-type", .type = OPT_STRING, .dest = &a->embedding_type, .arg = "TYPE",
          .help = "Type of token_embd.weight.", .def = "by the rule" },
        { .name = "leave-output-tensor", .type = OPT_FLAG, .dest = &q->leave_output, .help = "Copy output.weight as it is." },
        { .name = "pure", .type = OPT_FLAG, .dest = &q->pure, .help = "One type for all matrices, without the rule." },
        { .name = "allow-requantize", .type = OPT_FLAG, .dest = &q->allow_requantize,
          .help = "Take matrices that are quantised already. The result is worse than one from the original." },
        { .name = "threads", .short_name = 't', .type = OPT_INT, .dest = &q->threads, .arg = "N", .min = 1, .max = POOL_MAX_THREADS,
          .help = "Threads. The bytes do not depend on it.", .def = "one for each processor" },
        { .name = "json", .type = OPT_FLAG, .dest = &a->json, .help = "What was made of each tensor as JSON on stdout." },
        { 0 },
    };
    int n, r = opt_parse(opts, &usage, argc, argv, &n, e);
    if (r != 0)
        return r;
    if (n < 3 || n > 4)
        return err_set(e, ERR_USAGE, "IN.gguf, OUT.gguf and TYPE are needed (%d arguments given); see thermo-quantize --help", n);
    q->in = argv[1];
    q->out = argv[2];
    if (!(q->mix = mix_by_name(argv[3])))
        return err_set(e, ERR_USAGE, "TYPE '%s' is none that this build writes; thermo-quantize --help lists them", argv[3]);
    if (q->leave_output && a->output_type)
        return err_set(e, ERR_USAGE, "--leave-output-tensor and --output-tensor-type: give one of them");
    if ((r = option_type(a->output_type, "--output-tensor-type", &q->output_type, e)) < 0 ||
        (r = option_type(a->embedding_type, "--token-embedding-type", &q->embedding_type, e)) < 0)
        return r;
    return n == 4 ? threads_argument(argv[4], &q->threads, e) : 0;
}

static double bits(const struct quantize_report *x)
{
    return x->elems ? 8.0 * (double)x->bytes_out / (double)x->elems : 0;
}

static int print_json(const struct args *a, const struct quantize_report *x, double seconds, struct err *e)
{
    struct js *o = js_object(), *list = js_array();
    js_put(o, JS_STR("in", a->q.in), JS_STR("out", a->q.out), JS_STR("type", a->q.mix->name),
           JS_U64("file_type", a->q.mix->file_type));
    if (a->q.imatrix) {
        struct js *m = js_object();
        js_put(m, JS_STR("file", a->q.imatrix), JS_U64("entries", x->imatrix_entries));
        if (x->imatrix_chunks)
            js_set_u64(m, "chunks", x->imatrix_chunks);
        if (x->imatrix_dataset)
            js_set_str(m, "dataset", x->imatrix_dataset);
        js_set(o, "imatrix", m);
    }
    js_put(o, JS_U64("bytes_in", x->bytes_in), JS_U64("bytes_out", x->bytes_out), JS_NUM("bits_per_weight", bits(x)),
           JS_NUM("seconds", seconds));
    for (uint64_t i = 0; i < x->n; i++)
        js_append(list, js_made(JS_STR("name", x->tensors[i].name), JS_STR("from", quant_traits(x->tensors[i].from)->name),
                                JS_STR("to", quant_traits(x->tensors[i].to)->name), JS_U64("bytes", x->tensors[i].bytes),
                                JS_BOOL("by_imatrix", x->tensors[i].by_imatrix)));
    js_set(o, "tensors", list);
    int r = js_print(stdout, o, 2, 6, e);
    js_free(o);
    return r;
}

static void say(const struct args *a, const struct quantize_report *x)
{
    char in[24], out[24];
    log_info("'%s': %" PRIu64 " tensors, %s, %.2f bits a weight; the source has %s", a->q.out, x->n,
             size_format(x->bytes_out, out, sizeof out), bits(x), size_format(x->bytes_in, in, sizeof in));
}

int main(int argc, char **argv)
{
    struct args a = { 0 };
    struct quantize_report x = { 0 };
    struct err e = { 0 };
    opt_begin("thermo-quantize");
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        print("thermo-quantize %s (GGUF 3)\n", THERMO_VERSION);
        return opt_end(0);
    }
    int r = parse(argc, argv, &a, &e);
    if (r == 0) {
        int64_t start = progress_now_ns();
        file_catch_interrupt();
        if ((r = quantize(&a.q, &x, &e)) == 0) {
            say(&a, &x);
            r = a.json ? print_json(&a, &x, 1e-9 * (double)(progress_now_ns() - start), &e) : 0;
        }
    }
    free(a.q.tensor_types.items);
    quantize_report_done(&x);
    return opt_end(r < 0 ? opt_fail(&e) : 0);
}
