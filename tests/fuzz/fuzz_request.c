/* Any text as lines of serve: each becomes a request whose fields are in range, or an error. Lines go to one with --chat where the first
 * byte is a 'c', and else to one without. */
#include "runtime/request.h"
#include "tests/fuzz/lines.h"

#include <stdlib.h>
#include <string.h>

static struct pack pack = { .h = { .n_vocab = 4096 } };
static struct setup setup = { .pack = &pack, .config = { .choice = { .context = LINES_CONTEXT } } };
static struct request_shared shared = { .s = &setup, .n = 8, .sampling = { .temp = 0.8, .top_k = 40, .top_p = 0.95, .repeat_penalty = 1 } };
static struct request request;

static void check(const struct request *q)
{
    const struct sample_params *p = &q->text.sampling;
    if (q->n_prompt < 1 || q->n_prompt > LINES_CONTEXT || q->text.n < 0 || !(p->temp >= 0 && p->temp <= 100) || p->top_k < 0 ||
        !(p->top_p >= 0 && p->top_p <= 1) || !(p->min_p >= 0 && p->min_p <= 1) || q->n_stops > REQUEST_STOPS || strlen(q->id) > REQUEST_ID)
        abort();
    for (int i = 0; i < q->n_prompt; i++)
        if (q->ids[i] < 0 || q->ids[i] >= pack.h.n_vocab)
            abort();
    if (!(p->presence_penalty >= -2 && p->presence_penalty <= 2) || !(p->frequency_penalty >= -2 && p->frequency_penalty <= 2) ||
        p->n_bias < 0 || p->n_bias > REQUEST_BIASES || q->text.logprobs < 0 || q->text.logprobs > BATCH_TOP)
        abort();
    for (int i = 0; i < p->n_bias; i++)
        if (p->bias[i].id < 0 || p->bias[i].id >= pack.h.n_vocab || !(p->bias[i].bias >= -100 && p->bias[i].bias <= 100))
            abort();
    for (int i = 0; i < q->n_stops; i++)
        if (!*q->stops[i] || strlen(q->stops[i]) > REQUEST_STOP)
            abort();
}

static void take(const char *line, size_t len)
{
    struct err e;
    struct js *j = js_parse_within(line, len, request_json_bytes(LINES_CONTEXT), "a line", &e);
    if (!j)
        return;
    request_begin(&request, "");
    if (request_read(&request, j, NULL, 0, &e) == 0) {
        check(&request);
        if (request_text(&request, NULL, NULL, &e) < 0 && e.code != ERR_USAGE)
            abort();
    } else if (!e.msg[0]) {
        abort();
    }
    char *text;
    size_t n;
    if (request_render(&shared, j, &text, &n, &e) == 0) {
        if (strlen(text) > n)
            abort();
        free(text);
    }
    js_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e;
    if (!request.shared) {
        setup.tokenizer = (struct tokenizer *)(uintptr_t)lines_tokenizer();
        if (request_init(&request, &shared, &e) < 0)
            abort();
    }
    int chats = size > 0 && data[0] == 'c';
    shared.chat = chats ? lines_chat() : NULL;
    shared.prompt_is_message = chats;
    lines_each(data + chats, size - (size_t)chats, take);
    return 0;
}
