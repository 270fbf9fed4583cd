/* Fuzz entry: any bytes as a file of answers that come back. The first byte says what is made right, so that what follows is reached: 128,
 * the header and its checksum; 64, the first answer is one of the conversation here, which is then looked through as the form of a model in
 * the low bits says. What is taken is written again as the same bytes; what is found lies within it. */
#include "runtime/replay.h"
#include "tests/fuzz/lines.h"

#include "common/base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD = 40, ANSWER = 64 };
static const char prompt[] = "user: hi\nassistant: ", said[] = "user: hi\nassistant: Once upon a time\n";
static const struct hash128 key = { 1, 2 };

static void make_right(uint8_t *file, size_t len, int found)
{
    if (len < HEAD)
        return;
    if (found && len >= HEAD + ANSWER) {
        const struct hash128 h = hash_128(prompt, strlen(prompt));
        bytes_put64(file + HEAD, h.lo);
        bytes_put64(file + HEAD + 8, h.hi);
        bytes_put64(file + HEAD + 32, strlen(prompt));
        bytes_put32(file + HEAD + 52, 1);
        bytes_put32(file + HEAD + 56, bytes_le32(file + HEAD + 56) & 15);
    }
    memcpy(file, "THRMANSW\1\0\0\0", 12);
    bytes_put64(file + 16, key.lo);
    bytes_put64(file + 24, key.hi);
    bytes_put64(file + 32, hash_64(file + HEAD, len - HEAD));
}

static void written(const struct replay *r, const uint8_t *file, size_t len)
{
    char *out = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&out, &n);
    if (!f)
        abort();
    replay_write(r, f, key);
    if (fclose(f) || n != len || memcmp(out, file, n))
        abort();
    free(out);
}

static void look(struct replay *r, int form, int n_vocab)
{
    static const char called[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    static struct js *tools;
    struct messages *m = chat_messages(lines_chat());
    struct chat_known known;
    struct err e;
    if (!tools && !(tools = js_parse(called, strlen(called), "tools", &e)))
        abort();
    struct replay_find find = { r, lines_tokenizer(), (enum calls_form)form, tools, 4096 };
    messages_drop(m, 0);
    if (messages_add(m, "user", "hi", NULL, &e) < 0 || messages_add(m, "assistant", " Once upon a time", NULL, &e) < 0)
        abort();
    if (!replay_next(&find, m, said, strlen(said), 0, &known))
        return;
    for (int i = 0; i < known.n_made; i++)
        if (known.made[i] < 0 || known.made[i] >= n_vocab)
            abort();
    if (known.n_made < 1 || known.at != strlen(prompt))
        abort();
    free(known.made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { VOCAB = 4096 };
    struct replay *r;
    struct err e;
    if (size < 2)
        return 0;
    size_t len = size - 1;
    uint8_t *file = malloc(len);
    if (!file || replay_new(&r, &e) < 0)
        abort();
    memcpy(file, data + 1, len);
    if (data[0] & 128)
        make_right(file, len, data[0] & 64);
    FILE *f = fmemopen(file, len, "r");
    if (!f)
        abort();
    if (replay_read(r, f, key, VOCAB) == 0) {
        written(r, file, len);
        look(r, data[0] % (CALLS_HARMONY + 1), VOCAB);
    } else {
        look(r, CALLS_NONE, VOCAB);
    }
    fclose(f);
    replay_free(r);
    free(file);
    return 0;
}
