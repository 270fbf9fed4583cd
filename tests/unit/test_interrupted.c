/* One Ctrl-C, and whatever reads a file's bytes stops: every reading function of the programs is called once the process was asked to
 * stop, with more than a piece to read. What is small is read to its end, for what a command keeps then. test_trace has traces;
 * tests/cli/interrupted.sh sends the signal to commands. */
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/journal.h"
#include "common/offline/table.h"
#include "common/pack/pack.h"
#include "runtime/records.h"
#include "tests/pack_sample.h"
#include "tests/test.h"
#include "tests/tokenizer_sample.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGE = 2 * FILE_PIECE, TEXT = TEST_SANITIZER ? 3 << 16 : 1 << 20, KINDS = 4 };

static struct err e;
static char dir[64], large[128], small[128], table[128], line[128], packed[128], kept[128];
static char *text; /* one word of TEXT letters */

static void name(char *out, const char *of)
{
    snprintf(out, sizeof large, "%s/%s", dir, of);
}

/* n bytes, the first of which are `begin`, and 'a' from there on. */
static void write_file(const char *path, const char *begin, size_t n)
{
    FILE *f = fopen(path, "w");
    fputs(begin, f);
    for (size_t i = strlen(begin); i < n; i++)
        putc('a', f);
    fclose(f);
}

static struct tokenizer *tokenizer(const char *model)
{
    static const char *const tokens[] = { "<unk>", "<s>", "</s>", "a", "b", "aa", "aaaa" }, *const merges[] = { "a a", "aa aa" };
    static const float scores[] = { 0, 0, 0, -1, -1, -2, -3 };
    static const int32_t types[] = { 2, 3, 3, 1, 1, 1, 1 };
    struct gguf_writer *w;
    int code;
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_str(w, "tokenizer.ggml.model", model, &e), &e);
    tiny_strings(w, "tokenizer.ggml.tokens", tokens, 7);
    tiny_array32(w, "tokenizer.ggml.scores", GGUF_F32, scores, 7);
    tiny_array32(w, "tokenizer.ggml.token_type", GGUF_I32, types, 7);
    if (!strcmp(model, "rwkv"))
        tiny_check(gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0, &e), &e);
    if (!strcmp(model, "gpt2"))
        tiny_check(gguf_writer_str(w, "tokenizer.ggml.pre", "llama-bpe", &e), &e);
    if (!strcmp(model, "gpt2"))
        tiny_strings(w, "tokenizer.ggml.merges", merges, 2);
    return sample_tokenizer(w, model, &code, &e);
}

/* A header with this many texts, which is in memory. */
static int parses(uint64_t n)
{
    struct gguf_writer *w;
    struct gguf *g = NULL;
    uint8_t *blob = NULL, *texts = calloc(n, 8);
    size_t len;
    const struct gguf_key k = { .name = "a.b", .type = GGUF_ARRAY, .elem_type = GGUF_STRING, .n = n, .data = texts, .data_len = 8 * n };
    tiny_check(gguf_writer_new(&w, &e), &e);
    tiny_check(gguf_writer_kv_raw(w, &k, &e), &e);
    tiny_check(gguf_writer_blob(w, &blob, &len, &e), &e);
    gguf_writer_free(w);
    int r = gguf_parse(blob, len, len, "texts", &g, &e);
    gguf_close(r == 0 ? g : NULL);
    free(blob);
    free(texts);
    return r;
}

static int encodes(const struct tokenizer *t, size_t len)
{
    int32_t *ids = NULL;
    int n, r = tokenizer_encode(t, text, len, 0, 0, &ids, &n, &e);
    if (r == 0)
        free(ids);
    return r;
}

static int takes(void *ctx, const void *data, size_t len, struct err *why)
{
    (void)data, (void)why;
    *(uint64_t *)ctx += len;
    return 0;
}

static void files(int asked)
{
    int want = asked ? ERR_INTR : 0, ends[2];
    uint64_t n = 0;
    size_t len;
    char *all = malloc(LARGE), *slurped = NULL;
    struct file f = { 0 };
    CHECK(file_open(&f, large, &e) == 0 && file_pread(&f, all, LARGE, 0, &e) == want && file_pread(&f, all, FILE_PIECE, 1, &e) == 0);
    CHECK(file_each(&f, 0, f.size, takes, &n, &e) == want && n == (asked ? 0 : LARGE));
    CHECK(file_slurp(large, LARGE, &slurped, &len, &e) == want);
    free(asked ? NULL : slurped);
    CHECK(file_slurp(small, LARGE, &slurped, &len, &e) == 0);
    free(slurped);
    CHECK(pipe(ends) == 0 && (asked || write(ends[1], "a", 1) == 1) && file_wait_readable(ends[0], &e) == want);
    close(ends[0]);
    close(ends[1]);
    file_close(&f);
    free(all);
}

static void formats(int asked)
{
    int want = asked ? ERR_INTR : 0;
    struct table *t = NULL;
    struct js *j = js_read(small, LARGE, JS_MAX_BYTES, &e);
    CHECK(asked ? !j && e.code == ERR_INTR : j != NULL);
    js_free(j);
    CHECK(table_read(table, &t, &e) == want);
    table_free(asked ? NULL : t);
    struct records r = { 0 };
    int code = records_open(&r, line, "text", 4096, &e);
    CHECK(asked ? code == ERR_INTR || records_next(&r, &e) == ERR_INTR : code == 0 && records_next(&r, &e) == ERR_LIMIT);
    records_close(&r);
}

int main(void)
{
    static const char *const models[KINDS] = { "llama", "gpt2", "t5", "rwkv" };
    struct tokenizer *t[KINDS];
    struct pack *p = NULL;
    struct journal *j = NULL, *again = NULL;
    struct hash128 config = { 1, 2 };
    char some[8], said[256];
    int bad = 0;
    snprintf(dir, sizeof dir, "/tmp/test_interrupted-%ld", (long)getpid());
    if (mkdir(dir, 0700) < 0)
        return 1;
    name(large, "large"), name(small, "small"), name(table, "table.csv"), name(line, "line.jsonl"), name(packed, "p.thermo");
    name(kept, "kept");
    write_file(large, "", LARGE);
    write_file(small, "{}", 2);
    write_file(table, "text\n", LARGE);
    write_file(line, "{", TEXT);
    text = malloc(TEXT);
    memset(text, 'a', TEXT);
    for (int k = 0; k < KINDS; k++)
        if (!(t[k] = tokenizer(models[k])) || encodes(t[k], TEXT) < 0) {
            printf("Bail out! %s: %s\n", models[k], e.msg);
            return 1;
        }
    CHECK(sample_pack(packed, LAYOUT_SPLIT, 0, QUANT_F16, &e) == 0 && pack_open(packed, &p, &e) == 0);
    CHECK(journal_open(kept, config, "nothing", 0, &j, &e) == 0 && journal_begin(j, 0, 1, 8, &e) == 0 &&
          journal_write(j, "results", 8, &e) == 0 && journal_end(j, &e) == 0 &&
          journal_read(j, journal_records(j, &(size_t){ 0 }), 0, some, 8, &e) == 0);
    CHECK(pack_verify_segments(p, &bad, said, sizeof said, &e) == 0 && !bad);
    files(0);
    formats(0);
    CHECK(parses(200000) == 0);

    const struct cancel *c = file_catch_interrupt();
    raise(SIGINT);
    CHECK(cancel_asked(c) && file_interrupted());
    files(1);
    formats(1);
    CHECK(parses(200000) == ERR_INTR && parses(1000) == 0); /* one of usual size is done at once */
    for (int k = 0; k < KINDS; k++)
        CHECK_MSG(encodes(t[k], TEXT) == ERR_INTR && encodes(t[k], 1000) == 0, "%s: %s", models[k], e.msg);
    CHECK(pack_verify_segments(p, &bad, said, sizeof said, &e) == ERR_INTR && !bad);
    CHECK(journal_read(j, journal_records(j, &(size_t){ 0 }), 0, some, 8, &e) == ERR_INTR);
    /* what is there is kept */
    CHECK(journal_begin(j, 1, 1, 8, &e) == 0 && journal_write(j, "results", 8, &e) == 0 && journal_end(j, &e) == 0);
    journal_close(j, 0);
    CHECK(journal_open(kept, config, "nothing", 1, &again, &e) == ERR_INTR);
    pack_close(p);
    for (int k = 0; k < KINDS; k++)
        tokenizer_close(t[k]);
    free(text);
    const char *const all[] = { large, small, table, line, packed, kept };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        unlink(all[i]);
    rmdir(dir);
    return test_done();
}
