#include "runtime/thermo_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int thermo_take(void *to, size_t most, const void *from, size_t least, const char *name, struct err *e)
{
    size_t size = 0;
    if (from)
        memcpy(&size, from, sizeof size);
    if (size < least || size > most)
        return err_set(e, ERR_USAGE, "%s.size is %zu; this library knows %zu to %zu", name, size, least, most);
    memset(to, 0, most);
    memcpy(to, from, size);
    return 0;
}

static void take_word(char **argv, size_t *n, char **at, const char *word)
{
    argv[(*n)++] = strcpy(*at, word);
    *at += strlen(word) + 1;
}

static const struct opt_usage usage = { "thermo-run serve", "", "", NULL, NULL };

int thermo_args(const struct thermo_options *o, struct generate_args *a, char **words, struct err *e)
{
    char memory[24], sequences[16];
    const char *const own[][2] = { { "--model", o->model }, { "--plan", o->plan }, { "--memory", o->memory_bytes ? memory : NULL },
                                   { "--sequences", o->sequences ? sequences : NULL } };
    size_t n_own = sizeof own / sizeof *own, n = 0, bytes = 8, n_more = 0;
    snprintf(memory, sizeof memory, "%lluB", (unsigned long long)o->memory_bytes);
    snprintf(sequences, sizeof sequences, "%d", o->sequences);
    while (o->more && o->more[n_more])
        bytes += strlen(o->more[n_more++]) + 1;
    for (size_t i = 0; i < n_own; i++)
        bytes += own[i][1] ? strlen(own[i][0]) + strlen(own[i][1]) + 2 : 0;
    char **argv = malloc((1 + 2 * n_own + n_more + 1) * sizeof *argv);
    char *at = *words = malloc(bytes + 1);
    if (!argv || !at) {
        free(argv);
        return err_set(e, ERR_NOMEM, "out of memory for options");
    }
    take_word(argv, &n, &at, "thermo");
    for (size_t i = 0; i < 2 * n_own; i++)
        if (own[i / 2][1])
            take_word(argv, &n, &at, own[i / 2][i % 2]);
    for (size_t i = 0; i < n_more; i++)
        take_word(argv, &n, &at, o->more[i]);
    argv[n] = NULL;
    struct opt rows[GENERATE_SERVE_OPTIONS + 1] = { 0 };
    int n_pos = 0, r = 0;
    generate_serve_options(rows, a);
    for (size_t i = n - n_more; i < n && r == 0; i++) /* would be printed */
        if (!strncmp(argv[i], "--help", 6) || !strcmp(argv[i], "-h"))
            r = err_set(e, ERR_USAGE, "options.more has %s: thermo-run serve %s prints what there is", argv[i], argv[i]);
    if (r == 0)
        r = opt_parse(rows, &usage, (int)n, argv, &n_pos, e);
    if (r == 0 && n_pos)
        r = err_set(e, ERR_USAGE, "options.more: unexpected argument '%s'", argv[1]);
    free(argv);
    if (r == 0 && a->seed == UINT64_MAX && getrandom(&a->seed, 4, 0) == 4)
        a->seed &= UINT32_MAX; /* short enough to type again */
    return r < 0 ? r : generate_check_serve(a, e);
}
