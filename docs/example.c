/* Two requests at once with libthermo: each continues its text, printed when it is whole.
 *
 *     cc example.c $(pkg-config --cflags --libs thermo) -o example
 *     ./example model.thermo plan.json 'Once upon a time' 'The little cat' */
#include <thermo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    const char *prompt;
    char *made;         /* what was made, [bytes] */
    size_t bytes;
};

/* Called from thermo_step: a token's text is kept; at the end all of it is printed. */
static int sink(void *ctx, const struct thermo_event *ev)
{
    struct text *t = ctx;
    char *more = realloc(t->made, t->bytes + ev->text_bytes + 1);
    if (!more)
        abort();
    t->made = more;
    memcpy(t->made + t->bytes, ev->text, ev->text_bytes + 1);
    t->bytes += ev->text_bytes;
    if (ev->type == THERMO_END && ev->error.code)
        fprintf(stderr, "'%s': %s\n", t->prompt, ev->error.message);
    else if (ev->type == THERMO_END)
        printf("%s%s\n(%d tokens, %s)\n", t->prompt, t->made, ev->n_tokens, ev->stop);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const more[] = { "-q", NULL };
    static const char fields[] = "{\"n\": 24, \"temp\": 0}";
    struct text texts[16] = { { 0 } };
    struct thermo *t = NULL;
    struct thermo_error e = { 0 };
    uint64_t id;
    if (argc < 4 || argc > 19) {
        fprintf(stderr, "usage: example MODEL.thermo PLAN.json TEXT...\n");
        return 2;
    }
    const struct thermo_options o = { .size = sizeof o, .model = argv[1], .plan = argv[2], .more = more };
    int r = thermo_open(&o, &t, &e);
    for (int i = 3; i < argc && r == 0; i++) {
        const struct thermo_request q = { .size = sizeof q, .prompt = argv[i], .prompt_bytes = strlen(argv[i]),
                                          .fields = fields, .fields_bytes = sizeof fields - 1 };
        texts[i - 3].prompt = argv[i];
        while ((r = thermo_submit(t, &q, sink, &texts[i - 3], &id, &e)) == THERMO_E_FULL)
            thermo_step(t, -1, &e); /* until a place is free */
    }
    while (r >= 0 && (r = thermo_step(t, 0, &e)) > 0)
        continue;
    if (r < 0)
        fprintf(stderr, "example: %s\n", e.message);
    thermo_close(t);
    for (int i = 0; i < 16; i++)
        free(texts[i].made);
    return thermo_exit_status(r);
}
