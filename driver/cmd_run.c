/* `thermocline MODEL` and `thermocline serve MODEL`: options, the limit of memory, whether there is a plan at all, the stages, and then
 * the program that answers takes our place. */
#include "driver/cmd.h"

#include "common/base/ckmath.h"
#include "common/base/file.h"
#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/machine.h"
#include "common/cli/opt.h"
#include "driver/floor.h"
#include "driver/stages.h"
#include "driver/store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEAST_RESERVE (512ull << 20) /* of memory that is left to others where no limit is given */
#define RESERVED_PART 8
#define MEMORY_UNIT   (16ull << 20)

/* ---- options ---- */

static int parse(struct drive *d, int argc, char **argv, struct err *e)
{
    int n_own = 0;
    while (n_own < argc && strcmp(argv[n_own], "--"))
        n_own++;
    words_add(&d->typed, program_invocation_name);
    for (int i = strcmp(argv[0], "run") ? 0 : 1; i < argc; i++)
        words_add(&d->typed, argv[i]);
    for (int i = n_own + 1; i < argc; i++)
        words_add(&d->after, argv[i]);
    d->tokens = INT_MIN, d->port = -1, d->lock = -1;
    const struct opt opts[] = {
        { .name = "memory", .type = OPT_STRING, .dest = &d->memory, .arg = "SIZE",
          .help = "The ceiling for everything while it runs, as 18MiB or 2GiB; several, separated by commas, are planned together, and the "
                  "largest is used.",
          .def = "what is available, or the limit of the memory cgroup, less an eighth and at least 512 MiB; kept for a model as long as "
                 "so much is available" },
        { .name = "context", .short_name = 'c', .type = OPT_U64, .dest = &d->context, .arg = "N", .min = 1, .max = 1 << 24,
          .help = "Positions, prompt and answer together.", .def = "the model's, at most 4096" },
        { .name = "prompt", .short_name = 'p', .type = OPT_STRING, .dest = &d->prompt, .arg = "TEXT",
          .help = "Answer this and end: a message where the model has a chat template, else a text to go on with." },
        { .name = "raw", .type = OPT_FLAG, .dest = &d->raw, .help = "The prompt is a text to go on with, whatever the model has." },
        { .name = "tokens", .short_name = 'n', .type = OPT_INT, .dest = &d->tokens, .arg = "N", .min = -1, .max = 1 << 24,
          .help = "With --prompt: tokens to make; -1: until the text ends. 0: make everything, run nothing.",
          .def = "128; of a message -1" },
        { .name = "port", .type = OPT_INT, .dest = &d->port, .arg = "N", .min = 0, .max = 65535,
          .help = "With serve: the port; 0: any that is free.", .def = "8080" },
        { .name = "cache", .type = OPT_STRING, .dest = &d->cache, .arg = "DIR",
          .help = "Folder for what is made: about as much as the model.", .def = "$XDG_CACHE_HOME/thermocline, or ~/.cache/thermocline" },
        { .name = "out", .type = OPT_STRING, .dest = &d->out, .arg = "DIR",
          .help = "A folder of your own for what is made of this model, traces.h5, plan.json and model.thermo, in place of one in "
                  "the cache." },
        { .name = "prompts", .type = OPT_STRING, .dest = &d->prompts, .arg = "FILE", .file = OPT_READ,
          .help = "CSV with a text column to trace with.", .def = "stories-profile.csv, which comes along" },
        { .name = "max-tokens", .type = OPT_U64, .dest = &d->max_tokens, .arg = "N", .min = 1, .max = 1e12,
          .help = "How many tokens of the prompts to trace.",
          .def = "2048, and twice as many until that changes the speed that a plan promises by less than 2 %; 16 where all neurons "
                 "fire for every token" },
        { .name = "hardware", .type = OPT_STRING, .dest = &d->hardware, .arg = "FILE", .file = OPT_READ_DB,
          .help = "Hardware database to plan with.", .def = "this machine, measured once for each drive" },
        { .name = "device", .type = OPT_STRING, .dest = &d->device, .arg = "NAME",
          .help = "With --hardware: the device to plan for; else what to call this machine.", .def = "the only one" },
        { .name = "full", .type = OPT_FLAG, .dest = &d->full, .help = "Measure this machine at length rather than quickly." },
        { .name = "trace-flags", .type = OPT_STRING, .dest = &d->trace_flags, .arg = "WORDS",
          .help = "More options for thermo-profile trace, split at blanks: '--act relu'." },
        { .name = "plan-flags", .type = OPT_STRING, .dest = &d->plan_flags, .arg = "WORDS",
          .help = "More options for thermo-plan solve: '--kv f32'." },
        { .name = "run-flags", .type = OPT_STRING, .dest = &d->run_flags, .arg = "WORDS",
          .help = "More options for the program that answers: '--temp 0.6'. What follows -- is handed to it, too." },
        { .name = "consume", .type = OPT_FLAG, .dest = &d->consume,
          .help = "Free the model's disk blocks while it is packed, so that no room for a second copy is needed: its weights are then in "
                  "the cache's pack alone, and this command goes on with that. Refused where the file may be another's to lose." },
        { .name = "fresh", .type = OPT_FLAG, .dest = &d->fresh, .help = "Make everything again, whatever is there." },
        { 0 },
    };
    const struct opt_usage usage = {
        .program = d->serve ? "thermocline serve" : "thermocline run",
        .synopsis = d->serve ? "MODEL.gguf [-- OPTIONS OF thermo-serve]" : "MODEL.gguf [-- OPTIONS OF thermo-run]",
        .about = d->serve ? "Serve a model by HTTP from its GGUF file, of a sharded one the first. What has to be done before is done: see "
                            "'thermocline run --help'. thermo-serve then takes the place of this program." :
            "Answer at a prompt from a GGUF file, of a sharded model the first; 'run' may be left out. Where the model has a chat template "
            "this is a conversation, or with -p one message. What has to be done before is done, and kept in a cache: this machine is "
            "measured, the model traced, a plan made for the memory limit, the model packed. It is said before how long that takes. What "
            "was made is used again as long as what it was made from is the same by content. Ctrl-C at any time; the same command goes on "
            "where it stopped. A limit or a context below the floor, which the model's header tells, is refused first (exit status 4), "
            "with those that would do. -v shows the commands of each stage and all that they say.",
        .examples = d->serve ? "  thermocline serve story.gguf --port 8080\n" :
            "  thermocline story.gguf\n"
            "  thermocline story.gguf --memory 2GiB -p 'Once upon a time'\n"
            "  thermocline story.gguf --memory 1GiB,2GiB --tokens 0\n"
            "  thermocline story.gguf -p 'Once upon a time' -- --temp 0.6 --stop 'The end'\n",
        .files = "r",
    };
    int n_pos, r = opt_parse(opts, &usage, n_own, argv, &n_pos, e);
    if (r != 0)
        return r;
    if (n_pos != 1)
        return err_set(e, ERR_USAGE, n_pos ? "'%s': one model at a time; options of the program that answers come after --" :
                       "MODEL.gguf is needed; see thermocline --help", argv[n_pos > 1 ? 2 : 0]);
    d->model = argv[1];
    if (d->tokens != INT_MIN && d->tokens && !d->prompt && !d->serve)
        return err_set(e, ERR_USAGE, "--tokens goes with --prompt TEXT; --tokens 0 makes everything and runs nothing");
    if (d->consume && d->fresh)
        return err_set(e, ERR_USAGE, "--fresh makes everything again from the model, which --consume leaves no weights: give one of them");
    if (d->serve && (d->prompt || d->raw || (d->tokens != INT_MIN && d->tokens != 0)))
        return err_set(e, ERR_USAGE, "serve answers requests: --prompt, --raw and --tokens do not go with it");
    if (!d->serve && d->port >= 0)
        return err_set(e, ERR_USAGE, "--port belongs to 'thermocline serve'");
    if (d->hardware && d->full)
        return err_set(e, ERR_USAGE, "--full measures, --hardware uses what was measured: give one of them");
    if (d->cache && d->out && d->hardware)
        return err_set(e, ERR_USAGE, "with --out and --hardware nothing goes to the cache: leave --cache out");
    const char *const named[] = { d->out, d->cache, d->prompts, d->hardware, d->device };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (named[i] && !*named[i])
            return err_set(e, ERR_USAGE, "--out, --cache, --prompts, --hardware and --device need a value that is not empty");
    return 0;
}

/* ---- where things are ---- */

/* Installed beside us, or a checkout's. */
static int find_prompts(struct drive *d, struct err *e)
{
    static const char *const places[] = { "../share/thermocline/datasets", "../../datasets", "../../../datasets" };
    char own[DRIVE_PATH];
    int r = drive_folder_of_self(own, e);
    if (r < 0 || d->prompts)
        return r < 0 ? r : drive_path(d->prompts_file, e, "%s", d->prompts);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if ((r = drive_path(d->prompts_file, e, "%s/%s/prompts/stories-profile.csv", own, places[i])) < 0 ||
            access(d->prompts_file, R_OK) == 0)
            return r;
    return err_set(e, ERR_INPUT, "the prompts that come along are not installed: give some with --prompts FILE");
}

/* ---- memory ---- */

/* What is sensible here: what is available, less a reserve. What was once planned for is kept as long as it is. */
static int default_memory(struct drive *d, struct err *e)
{
    uint64_t available = machine_available_bytes(), kept = 0, reserve = available / RESERVED_PART;
    struct err ignored = { 0 };
    char a[24], b[24];
    reserve = reserve > LEAST_RESERVE ? reserve : LEAST_RESERVE < available / 2 ? LEAST_RESERVE : available / 2;
    uint64_t bytes = (available - reserve) / MEMORY_UNIT * MEMORY_UNIT;
    struct js *old = store_read(d, "memory");
    if (old && size_parse(store_field(old, "memory"), &kept, &ignored) == 0 && kept > 0 && kept <= available)
        bytes = kept;
    js_free(old);
    if (!bytes)
        return err_set(e, ERR_SYS, "there is no telling how much memory is available here: give a limit with --memory SIZE");
    size_exact(bytes, d->memory_text, 24);
    drive_say(d, "memory: %s of the %s that are available; --memory SIZE sets another limit", size_format(bytes, a, sizeof a),
              size_format(available, b, sizeof b));
    return 0;
}

static int find_memory(struct drive *d, struct err *e)
{
    char one[64];
    uint64_t bytes;
    if (!d->memory)
        return default_memory(d, e);
    for (const char *at = d->memory;; at++) {
        size_t n = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", n < sizeof one ? (int)n : 40, at);
        if (!n || size_parse(one, &bytes, e) < 0)
            return err_set(e, ERR_USAGE, "--memory: '%s' is not a size, as 18MiB or 2GiB, nor a list of them", n ? one : d->memory);
        if (!*(at += n))
            break;
    }
    if (strlen(d->memory) >= sizeof d->memory_text)
        return err_set(e, ERR_USAGE, "--memory: a list of more than %zu bytes", sizeof d->memory_text - 1);
    snprintf(d->memory_text, sizeof d->memory_text, "%s", d->memory);
    return 0;
}

static int keep_memory(struct drive *d, struct err *e)
{
    struct js *j = js_object();
    js_set_str(j, "memory", d->memory_text);
    int r = d->memory ? 0 : store_write(d, "memory", j, e);
    js_free(j);
    return r;
}

/* In the cache plans are beside each other: limit, context and purpose are in the name, and a hash of what else was asked for. */
static int name_plan(struct drive *d, struct err *e)
{
    char text[DRIVE_PATH], hex[HASH_TEXT] = "", context[32] = "";
    int r = drive_path(text, e, "%s|%s|%s", d->plan_flags ? d->plan_flags : "", d->device ? d->device : "", d->hardware ? d->hardware : "");
    if (strlen(text) > 2)
        hash_text(hash_128(text, strlen(text)), hex);
    if (d->context)
        snprintf(context, sizeof context, "-%llu", (unsigned long long)d->context);
    if (r == 0)
        r = drive_path(d->plan_record, e, d->out ? "plan" : "plan-%.180s%s%s%s%s%.8s", d->memory_text, context,
                       *drive_purpose(d) ? "-" : "", drive_purpose(d), *hex ? "-" : "", hex);
    return r == 0 ? drive_path(d->plan, e, "%s/%s.json", d->dir, d->plan_record) : r;
}

/* ---- the command ---- */

static int answer(struct drive *d, struct err *e)
{
    struct words w = { 0 };
    char tokens[24], port[24];
    int message = d->has_template && !d->raw;
    snprintf(tokens, sizeof tokens, "%d", d->tokens != INT_MIN ? d->tokens : message ? -1 : 128);
    snprintf(port, sizeof port, "%d", d->port);
    if (d->tokens == 0)
        return 0;
    close(d->lock); /* who answers keeps nobody from making plans */
    drive_program(d, &w, d->serve ? "thermo-serve" : "thermo-run");
    if (!d->serve)
        words_add(&w, d->prompt ? "generate" : "chat");
    words_add2(&w, "--model", d->pack);
    words_add2(&w, "--plan", d->plan);
    if (d->serve && d->port >= 0)
        words_add2(&w, "--port", port);
    if (d->prompt) {
        words_add2(&w, "--prompt", d->prompt);
        words_add2(&w, "-n", tokens);
        if (message)
            words_add(&w, "--chat");
    }
    if (log_get_level() == LOG_ERROR)
        words_add(&w, "-q");
    words_add_split(&w, d->run_flags);
    for (int i = 0; i < d->after.n; i++)
        words_add(&w, d->after.w[i]);
    drive_say(d, "== 5 run");
    char line[8192];
    snprintf(line, sizeof line, "%s.wrong", d->hardware_record);
    if (!d->hardware && setenv("THERMO_DIFFERS", line, 1) < 0) /* where a run finds figures of the machine wrong, it says so there */
        log_warn("no room in the environment");
    log_debug("%s", words_quoted(&w, line, sizeof line));
    return child_become(&w, e);
}

/* A word without a dot or a slash that names nothing may have been meant as a command. */
static int is_file(const struct drive *d, struct err *e)
{
    struct stat st;
    if (stat(d->model, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(e, ERR_USAGE, "'%s' is a folder: give a GGUF file in it; of a published model (config.json and *.safetensors) "
                       "'thermocline import %s' makes one", d->model, d->model);
    if (access(d->model, F_OK) == 0 || strpbrk(d->model, "./"))
        return 0;
    return err_set(e, ERR_USAGE, "'%s' is neither a file nor a command; 'thermocline --help' lists commands", d->model);
}

static int drive(struct drive *d, struct err *e)
{
    int r;
    if ((r = store_root(d->cache, d->root, e)) < 0 || (r = is_file(d, e)) < 0 || (r = drive_find_programs(d, e)) < 0 ||
        (r = find_prompts(d, e)) < 0 || (r = store_model(d, e)) < 0)
        return r;
    if (!d->prompt && !d->serve && d->tokens == INT_MIN && !d->has_template)
        return err_set(e, ERR_USAGE, "'%s' has no chat template, so there is no talking with it: -p TEXT gives it a text to go on with",
                       d->model);
    if ((r = store_paths(d, e)) < 0 || (r = find_memory(d, e)) < 0 || (r = name_plan(d, e)) < 0 ||
        (r = *d->consumed ? 0 : floor_ask(d, e)) != 0 ||
        (r = store_open(d, e)) < 0 || (r = keep_memory(d, e)) < 0 || (r = stages_make(d, e)) != 0)
        return r;
    return answer(d, e);
}

static int command(int argc, char **argv, int serve)
{
    static struct drive d;
    struct err e = { 0 };
    d.serve = serve;
    int r = parse(&d, argc, argv, &e);
    if (r > 0)
        return 0;
    if (r == 0) {
        file_catch_interrupt();
        r = drive(&d, &e);
    }
    words_done(&d.after);
    words_done(&d.typed);
    words_done(&d.shards);
    free(d.stats);
    return r < 0 ? opt_fail(&e) : r;
}

int cmd_run(int argc, char **argv)
{
    return command(argc, argv, 0);
}

int cmd_serve(int argc, char **argv)
{
    return command(argc, argv, 1);
}
