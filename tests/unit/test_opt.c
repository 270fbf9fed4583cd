#include "common/cli/opt.h"
#include "tests/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int flag, count, kind;
static uint64_t seed, memory;
static double temp;
static const char *model;
static struct opt_list stops;
static const char *const kinds[] = { "paper", "measured", NULL };
static const struct opt_choice_alias former_kinds[] = { { "equations", 0, "--cost paper" }, { "none", 7, "'thermo-x undo'" }, { 0 } };

static const struct opt table[] = {
    { .name = "model", .type = OPT_STRING, .dest = &model, .arg = "FILE", .help = "The model.", .required = 1 },
    { .name = "tokens", .short_name = 'n', .type = OPT_INT, .dest = &count, .arg = "N", .help = "How many.",
      .def = "16", .min = 1, .max = 100 },
    { .name = "seed", .type = OPT_U64, .dest = &seed, .arg = "N", .help = "Seed." },
    { .name = "temp", .type = OPT_DOUBLE, .dest = &temp, .arg = "T", .help = "Temperature.", .min = 0, .max = 10 },
    { .name = "memory", .type = OPT_SIZE, .dest = &memory, .arg = "SIZE",
      .help = "Ceiling of everything the program holds, and a sentence that is long enough to need wrapping.",
      .min = 4096, .max = 1ull << 40 },
    { .name = "cost", .type = OPT_CHOICE, .dest = &kind, .help = "Cost model.", .choices = kinds,
      .choice_aliases = former_kinds },
    { .name = "ceiling", .alias_of = "memory" },
    { .name = "weights", .alias_of = "model" },
    { .name = "lines", .alias_of = "json" },
    { .name = "stop", .type = OPT_LIST, .dest = &stops, .arg = "TEXT", .help = "Stop here." },
    { .name = "json", .short_name = 'j', .type = OPT_FLAG, .dest = &flag, .help = "Machine output." },
    { 0 },
};
static const struct opt_usage usage = { .program = "thermo-x do", .synopsis = "FILE", .about = "Does it.",
                                        .examples = "  thermo-x do --model m\n" };

static struct err e;
static int n_pos;
static char *pos[8];

/* Parse a line split at blanks; positional arguments end up in pos. */
static int parse(const char *line)
{
    static char copy[512];
    static char *argv[32];
    int argc = 0;
    snprintf(copy, sizeof copy, "do %s", line);
    for (char *s = strtok(copy, " "); s && argc < 31; s = strtok(NULL, " "))
        argv[argc++] = s;
    argv[argc] = NULL;
    flag = count = kind = 0;
    seed = memory = 0;
    temp = 0;
    model = NULL;
    free(stops.items);
    stops = (struct opt_list){ 0 };
    memset(&e, 0, sizeof e);
    int r = opt_parse(table, &usage, argc, argv, &n_pos, &e);
    for (int i = 0; i < n_pos && i < 8; i++)
        pos[i] = argv[1 + i];
    return r;
}

static int refused(const char *line, const char *word1, const char *word2)
{
    int r = parse(line);
    int ok = r == ERR_USAGE && strstr(e.msg, word1) && strstr(e.msg, word2);
    if (!ok)
        printf("# '%s' gave %d '%s'\n", line, r, e.msg);
    return ok;
}

static uint64_t size_of(const char *text)
{
    uint64_t v = 77;
    return size_parse(text, &v, &e) == 0 ? v : UINT64_MAX;
}

static void test_values(void)
{
    CHECK(parse("--model m.gguf a -n 7 b --seed=18446744073709551615 --temp 0.5 --memory 1.5GiB c") == 0);
    CHECK(strcmp(model, "m.gguf") == 0 && count == 7 && seed == UINT64_MAX);
    CHECK(temp > 0.49 && temp < 0.51 && memory == 1536ull << 20);
    CHECK(n_pos == 3 && strcmp(pos[0], "a") == 0 && strcmp(pos[1], "b") == 0 && strcmp(pos[2], "c") == 0);
    CHECK(parse("--model m --stop x --stop y --cost measured -j") == 0);
    CHECK(stops.n == 2 && strcmp(stops.items[1], "y") == 0 && kind == 1 && flag == 1);
    CHECK(parse("--model m -n12 -- --json -") == 0);
    CHECK(count == 12 && flag == 0 && n_pos == 2 && strcmp(pos[0], "--json") == 0 && strcmp(pos[1], "-") == 0);
    CHECK(parse("--model --json") == 0 && strcmp(model, "--json") == 0);
    CHECK(parse("--model m -jn 3") == 0 && flag == 1 && count == 3);
}

static void test_refusals(void)
{
    CHECK(refused("", "--model", "required"));
    CHECK(refused("--model", "--model", "FILE"));
    CHECK(refused("--model m --token 3", "--token", "did you mean --tokens"));
    CHECK(refused("--model m --memroy 3", "--memroy", "did you mean --memory"));
    CHECK(refused("--model m --zzzzzzzz 3", "--zzzzzzzz", "--help"));
    CHECK(refused("--model m -x", "-x", "--help"));
    CHECK(refused("--model m -n 0", "--tokens 0", "1 to 100"));
    CHECK(refused("--model m -n 101", "--tokens 101", "1 to 100"));
    CHECK(refused("--model m -n 99999999999", "--tokens 99999999999", "1 to 100"));
    CHECK(refused("--model m -n 12x", "12x", "whole number"));
    CHECK(refused("--model m --seed -1", "-1", "whole number"));
    CHECK(refused("--model m --seed 18446744073709551616", "--seed", "too large"));
    CHECK(refused("--model m --temp nan", "nan", "not a number"));
    CHECK(refused("--model m --temp 11", "--temp 11", "0 to 10"));
    CHECK(refused("--model m --memory 1KiB", "--memory 1KiB", "4.0 KiB to 1.0 TiB"));
    CHECK(refused("--model m --memory 18", "--memory: '18' without a unit", "did you mean 18MiB?"));
    CHECK(refused("--model m --memory 65535", "65535MiB?", "65535B if bytes are meant"));
    CHECK(refused("--model m --memory lots", "lots", "not a size"));
    CHECK(refused("--model m --cost free", "free", "paper, measured"));
    CHECK(refused("--model m --json=1", "--json", "no value"));
}

/* Former names take the same values, with the same checks; the successor's name is in the messages. */
static void test_aliases(void)
{
    CHECK(parse("--weights m.gguf --ceiling=2MiB --lines") == 0);
    CHECK(strcmp(model, "m.gguf") == 0 && memory == 2 << 20 && flag == 1);
    CHECK(parse("--model m --memory 1MiB --ceiling 2MiB") == 0 && memory == 2 << 20);
    CHECK(parse("--model m --cost equations") == 0 && kind == 0);
    CHECK(parse("--model m --cost none") == 0 && kind == 7);
    CHECK(refused("--model m --ceiling 1KiB", "--memory 1KiB", "4.0 KiB to 1.0 TiB"));
    CHECK(refused("--model m --ceiling", "--memory", "needs a value"));
    CHECK(refused("--model m --lines=1", "--json", "no value"));
    CHECK(refused("--model m --ceilin 1MiB", "--ceilin", "--help"));
    CHECK(refused("--model m --cost free", "free", "one of paper, measured"));
}

static void test_sizes(void)
{
    char text[24];
    CHECK(size_of("65536") == 65536 && size_of("0") == 0 && size_of("4096B") == 4096 && size_of("512KiB") == 524288 &&
          size_of("2GB") == 2000000000);
    CHECK(size_of("4k") == 4096 && size_of("4K") == 4096 && size_of("3M") == 3145728 && size_of("1T") == 1ull << 40);
    CHECK(size_of("1kB") == 1000 && size_of("1KB") == 1000 && size_of("7B") == 7);
    CHECK(size_of("9007199254740993") == 9007199254740993ull);
    CHECK(size_of("18446744073709551615") == UINT64_MAX); /* also what size_of gives for an error */
    CHECK(size_of("0.5GiB") == 1ull << 29 && size_of("1.1kB") == 1100 && size_of(".5MiB") == 524288);
    const char *bad[] = { "", "x", "-1", "1.5", "1 GiB", "1Gi", "1GiBB", "0x10", "1e9", "18446744073709551616",
                          "17179869184GiB", "." };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t v = 77;
        CHECK_MSG(size_parse(bad[i], &v, &e) == ERR_USAGE && v == 77, "size '%s'", bad[i]);
    }
    CHECK(strcmp(size_format(18874368, text, sizeof text), "18.0 MiB") == 0);
    CHECK(strcmp(size_format(1023, text, sizeof text), "1023 B") == 0);
    CHECK(strcmp(size_format(1048575, text, sizeof text), "1.0 MiB") == 0);
    CHECK(strcmp(size_format(UINT64_MAX, text, sizeof text), "16.0 EiB") == 0);
}

/* What fn prints on stdout, and what it returns. */
static char captured[8192];

static int capture(int (*fn)(void))
{
    fflush(stdout);
    FILE *f = tmpfile();
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(f), STDOUT_FILENO);
    int r = fn();
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(f);
    captured[fread(captured, 1, sizeof captured - 1, f)] = '\0';
    fclose(f);
    return r;
}

static int ask_help(void)
{
    return parse("--help");
}

static int run_do(int argc, char **argv)
{
    (void)argv;
    return 40 + argc;
}

static const struct opt_command commands[] = { { "do", run_do, "Does it." }, { "undo", run_do, "Undoes." }, { 0 } };

static int run_main(const char *a, const char *b)
{
    char x[32], y[32], prog[] = "p", *argv[] = { prog, x, y, NULL };
    snprintf(x, sizeof x, "%s", a ? a : "");
    snprintf(y, sizeof y, "%s", b ? b : "");
    return opt_main("thermo-x", "About.", commands, "format 1", 1 + (a != NULL) + (b != NULL), argv);
}

static int main_version(void)
{
    return run_main("--version", NULL);
}

static int main_help(void)
{
    return run_main("--help", NULL);
}

static void test_help(void)
{
    CHECK(capture(ask_help) == 1);
    CHECK(strstr(captured, "usage: thermo-x do [options] FILE\n") && strstr(captured, "Does it."));
    CHECK(strstr(captured, "-n, --tokens N") && strstr(captured, "From 1 to 100. Default: 16."));
    CHECK(strstr(captured, "One of paper, measured.") && strstr(captured, "--quiet") &&
          strstr(captured, "thermo-x do --model m"));
    CHECK(!strstr(captured, "ceiling ") && !strstr(captured, "weights") && !strstr(captured, "equations"));
    int longest = 0;
    for (char *s = strtok(captured, "\n"); s; s = strtok(NULL, "\n"))
        longest = (int)strlen(s) > longest ? (int)strlen(s) : longest;
    CHECK_MSG(longest <= 80, "longest line %d", longest);
    CHECK(capture(main_version) == 0 && strncmp(captured, "thermo-x 0.", 11) == 0 && strstr(captured, "format 1"));
    CHECK(capture(main_help) == 0 && strstr(captured, "do          Does it."));
}

/* What of a line the other table has, joined with blanks. */
static const char *handed_on(const char *line)
{
    static const struct opt theirs[] = { { .name = "tokens" }, { .name = "memory" }, { .name = "stop" }, { .name = "json" }, { 0 } };
    static char text[256], copy[256];
    const char *out[16];
    char *argv[16];
    int argc = 0, pos_n = 0;
    size_t at = 0;
    snprintf(copy, sizeof copy, "do %s", line);
    for (char *s = strtok(copy, " "); s && argc < 15; s = strtok(NULL, " "))
        argv[argc++] = s;
    argv[argc] = NULL;
    CHECK_MSG(opt_parse(table, &usage, argc, argv, &pos_n, &e) == 0 && pos_n == 0, "%s: %s", line, e.msg);
    opt_hand_on(table, theirs, argc, argv, out);
    text[0] = 0;
    for (int i = 0; out[i]; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "", out[i]);
    return text;
}

static void test_hand_on(void)
{
    static const char *const lines[][2] = {
        { "--model m", "" }, { "--model m -n 5 --temp 1", "-n 5" }, { "--model=m --tokens=5 --temp=1 --seed 4", "--tokens=5" },
        { "-jn5 --model m --stop a --stop b", "-jn5 --stop a --stop b" }, { "-jn 5 --model m", "-jn 5" },
        { "--memory 1MiB --model m -v", "--memory 1MiB -v" }, { "--model -n -qj --", "-qj" },
        { "--model m --stop --json", "--stop --json" },
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK_MSG(!strcmp(handed_on(lines[i][0]), lines[i][1]), "%s: '%s'", lines[i][0], handed_on(lines[i][0]));
}

static void test_dispatch(void)
{
    int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    CHECK(run_main("do", "x") == 42);
    CHECK(run_main(NULL, NULL) == 2);
    CHECK(run_main("dooo", NULL) == 2);
    CHECK(run_main("--frob", NULL) == 2);
    struct err bad = { .code = ERR_MISMATCH };
    CHECK(opt_fail(&bad) == 5);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(null);
}

int main(void)
{
    test_values();
    test_refusals();
    test_aliases();
    test_sizes();
    test_help();
    test_hand_on();
    test_dispatch();
    free(stops.items);
    return test_done();
}
