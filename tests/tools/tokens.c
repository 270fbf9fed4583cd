/* tokens GGUF: each line of standard input is {"text": TEXT}; for each a line of standard output, the ids of its tokens (no BOS, special
 * tokens as text), or of {"chat": TEXT} with special tokens as such.
 * tests/cli/tokens.sh compares them with others' ids. */
#include "common/base/js.h"
#include "common/model/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int answer(const struct tokenizer *t, const char *line, size_t len, struct err *e)
{
    struct js *in = js_parse(line, len, "standard input", e);
    const char *chat = js_str(js_get(in, "chat")), *text = chat ? chat : js_str(js_get(in, "text"));
    int32_t *ids = NULL;
    int n = 0, r = text ? tokenizer_encode(t, text, strlen(text), 0, chat != NULL, &ids, &n, e)
                        : err_set(e, ERR_FORMAT, "no text: %s", line);
    for (int i = 0; r == 0 && i < n; i++)
        printf("%s%d", i ? " " : "", ids[i]);
    printf("\n");
    free(ids);
    js_free(in);
    return r;
}

int main(int argc, char **argv)
{
    struct err e;
    struct gguf *g;
    struct tokenizer *t = NULL;
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    if (argc < 2 || gguf_open(argv[1], &g, &e) < 0 || tokenizer_open(g, &t, &e) < 0) {
        fprintf(stderr, "%s\n", argc < 2 ? "usage: tokens GGUF" : e.msg);
        return 1;
    }
    int r = 0;
    while (r == 0 && (len = getline(&line, &cap, stdin)) > 0)
        r = answer(t, line, (size_t)len, &e);
    if (r < 0)
        fprintf(stderr, "%s\n", e.msg);
    free(line);
    tokenizer_close(t);
    gguf_close(g);
    return r < 0;
}
