/* thermo-serve: a model behind HTTP, in the forms that programs know. */
#include "server/paths.h"

#include "server/door.h"
#include "server/models.h"
#include "server/notify.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/print.h"
#include "common/base/version.h"
#include "common/cli/opt.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 50     /* how often signals are looked for */
#define PAUSE_MS 10000 /* for so long a client may not read */
#define STACKS  (256u << 10)

static const struct opt_usage usage = {
    "thermo-serve", "--model FILE --plan FILE | --models DIR [-- OPTIONS OF THE ENGINE]",
    "Serve a packed model by HTTP, in OpenAI's and Anthropic's forms: POST /v1/chat/completions, /v1/responses, /v1/messages, streamed or "
    "not. Requests are answered together, as many at once as the plan has sequences, and each has the text that it has alone. It "
    "listens on this machine alone (127.0.0.1). SIGTERM or Ctrl-C: what is open is finished, nothing new is taken; a second one ends at "
    "once. Options of the engine, after --, are those of "
    "'thermo-run serve'.",
    "  thermo-serve --model m.thermo --plan p.json --port 8080\n"
    "  thermo-serve --models models --idle-unload 600\n"
    "  thermo-serve --model m.thermo --plan p.json --memory 4GiB -- --threads 4 --thinking hide\n",
    NULL
};

struct args {
    const char *models, *model, *plan, *name, *host, *keys, *prefixes, *prefix_size;
    int fd;               /* that listens already, or -1 */
    struct door door;
    uint64_t memory, body, buffers;
    int idle, port, connections, sequences, schemas, n_more;
    char **more;
};

static void init(struct args *a)
{
    *a = (struct args){ .port = 8080, .schemas = 2, .fd = -1, .connections = 64, .body = 1 << 20, .buffers = 4 << 20 };
}

/* Others reach it with a key alone. */
static int check_doors(struct args *a, struct err *e)
{
    int r = notify_socket(&a->fd, e);
    if (r == 0)
        r = door_open(&a->door, a->keys, e);
    if (r < 0 || a->door.n_keys)
        return r;
    int local = a->fd >= 0 ? notify_local(a->fd) : !a->host || door_loopback(a->host);
    return local ? 0 : err_set(e, ERR_USAGE, "%s is reached by others: --api-key-file, or THERMO_API_KEY, has to say who may ask",
                               a->fd >= 0 ? "the socket of LISTEN_FDS" : a->host);
}

/* What the server says to the engine by itself is not said again. */
static int check_other(const struct opt *rows, const char *word, struct err *e)
{
    const size_t n = strcspn(word, "=");
    for (; rows->name; rows++)
        if ((!strncmp(word, "--", 2) && strlen(rows->name) == n - 2 && !strncmp(word + 2, rows->name, n - 2)) ||
            (rows->short_name && word[0] == '-' && word[1] == rows->short_name && !word[2]))
            return err_set(e, ERR_USAGE, "'%s' is an option of thermo-serve: it comes before --", word);
    return 0;
}

static int check_models(const struct args *a, struct err *e)
{
    if (a->models && (a->model || a->plan || a->name))
        return err_set(e, ERR_USAGE, "--models has models of its own, plans and names: %s does not go with it",
                       a->model ? "--model" : a->plan ? "--plan" : "--name");
    if (!a->models && (!a->model || !a->plan))
        return err_set(e, ERR_USAGE, "%s FILE is required, or --models DIR; see thermo-serve --help", a->model ? "--plan" : "--model");
    return 0;
}

static int parse(struct args *a, int argc, char **argv, struct err *e)
{
    const struct opt rows[] = {
        { .name = "model", .short_name = 'm', .type = OPT_STRING, .dest = &a->model, .arg = "FILE", .file = OPT_READ,
          .help = "The packed model." },
        { .name = "plan", .short_name = 'p', .type = OPT_STRING, .dest = &a->plan, .arg = "FILE", .file = OPT_READ,
          .help = "The plan." },
        { .name = "models", .type = OPT_STRING, .dest = &a->models, .arg = "DIR",
          .help = "In place of both: several models. Each subfolder with model.thermo and plan.json, as thermocline --out DIR/NAME writes "
                  "them, is one by the folder's name. One is loaded at a time, when a request names it." },
        { .name = "idle-unload", .type = OPT_INT, .dest = &a->idle, .arg = "SECONDS", .min = 1, .max = 1 << 30,
          .help = "Free the model's memory after so long without a request; the next one loads it again.", .def = "never" },
        { .name = "memory", .short_name = 'M', .type = OPT_SIZE, .dest = &a->memory, .arg = "SIZE", .min = 1, .max = 0x1p53,
          .help = "Limit of memory, for all of it.", .def = "the plan's largest" },
        { .name = "sequences", .type = OPT_INT, .dest = &a->sequences, .arg = "N", .min = 1, .max = 4096,
          .help = "How many requests are answered at once; three times as many more wait.", .def = "the plan's" },
        { .name = "port", .type = OPT_INT, .dest = &a->port, .arg = "N", .min = 0, .max = 65535,
          .help = "Port; 0: any that is free. The line on standard output names it.", .def = "8080" },
        { .name = "host", .type = OPT_STRING, .dest = &a->host, .arg = "ADDRESS",
          .help = "Address to listen at, as 0.0.0.0 or ::. One that others reach needs a key.", .def = "127.0.0.1" },
        { .name = "api-key-file", .type = OPT_STRING, .dest = &a->keys, .arg = "FILE", .file = OPT_READ,
          .help = "Keys, a line each: requests need one of them (Authorization: Bearer KEY, or x-api-key: KEY). Without it the "
                  "environment's THERMO_API_KEY is the key, if it is there." },
        { .name = "allow-host", .type = OPT_LIST, .dest = &a->door.hosts, .arg = "NAME",
          .help = "A name that requests may be for (Host), beside addresses and localhost; *: any." },
        { .name = "allow-origin", .type = OPT_LIST, .dest = &a->door.origins, .arg = "ORIGIN",
          .help = "Whose pages may ask, as https://example.org; *: anybody's." },
        { .name = "name", .type = OPT_STRING, .dest = &a->name, .arg = "NAME", .help = "Name of the model in answers.",
          .def = "that of its file" },
        { .name = "connections", .type = OPT_INT, .dest = &a->connections, .arg = "N", .min = 1, .max = 4096,
          .help = "Connections at once; further ones get status 503.", .def = "64" },
        { .name = "schemas", .type = OPT_INT, .dest = &a->schemas, .arg = "N", .min = 0, .max = 64,
          .help = "Different schemas (response_format, forced calls) that requests may have at once; each takes 1.5 MB and more.",
          .def = "2" },
        { .name = "prefix-cache", .type = OPT_STRING, .dest = &a->prefixes, .arg = "DIR",
          .help = "Keep what prompts begin with in this folder, too, as pages of the KV cache, and do not read it again after a restart. "
                  "Who can read the folder can read prompts: use one of your own." },
        { .name = "prefix-cache-size", .type = OPT_STRING, .dest = &a->prefix_size, .arg = "SIZE",
          .help = "With --prefix-cache: bytes of all files there, at most; what was used longest ago goes.", .def = "4GiB" },
        { .name = "max-body", .type = OPT_SIZE, .dest = &a->body, .arg = "SIZE", .min = 1024, .max = 1 << 30,
          .help = "Bytes of a request, and of an answer that is not streamed.", .def = "1MiB" },
        { .name = "buffers", .type = OPT_SIZE, .dest = &a->buffers, .arg = "SIZE", .min = 65536, .max = 0x1p40,
          .help = "Memory for all bodies and answers that are on their way.", .def = "4MiB" },
        { .name = NULL },
    };
    int n_pos = 0, r = opt_parse(rows, &usage, argc, argv, &n_pos, e);
    a->more = argv + 1;
    a->n_more = n_pos;
    if (r == 0 && n_pos && argv[1][0] != '-')
        r = err_set(e, ERR_USAGE, "unexpected argument '%s'; options of the engine come after --; see thermo-serve --help", argv[1]);
    for (int i = 0; r == 0 && i < n_pos; i++)
        r = check_other(rows, a->more[i], e);
    if (r == 0)
        r = check_models(a, e);
    return r < 0 || r > 0 ? r : check_doors(a, e);
}

/* The file's name without folder and ending. */
static char *name_of(const char *model)
{
    const char *from = strrchr(model, '/');
    char *name = strdup(from ? from + 1 : model), *dot = name ? strrchr(name, '.') : NULL;
    if (dot && dot > name)
        *dot = 0;
    return name;
}

/* Until a signal asks for the end and what was open is answered. */
static void serve(struct server *s, const struct cancel *asked)
{
    while (!cancel_asked(asked))
        poll(NULL, 0, LOOK_MS);
    log_info("ending: what is open is finished; a second signal ends at once");
    notify_say("STOPPING=1");
    http_drain(s->http);
    models_drain(s->models);
    while (!http_idle(s->http))
        poll(NULL, 0, LOOK_MS);
}

static int door(void *ctx, struct call *c, const char **message)
{
    const struct server *s = ctx;
    return door_look(s->door, c, message);
}

static void wake(void *ctx)
{
    struct server *s = ctx;
    if (!models_peek(s->models))
        return;
    thermo_wake(s->t);
    models_leave(s->models, 0);
}

static struct http_config config_of(struct server *s, const struct args *a)
{
    return (struct http_config){
        .host = a->host, .port = a->port, .fd = a->fd, .connections = a->connections, .body_max = (size_t)a->body, .pool = &s->pool,
        .idle_s = 60, .patience_ms = 10000, .unread_ms = PAUSE_MS,
        .ctx = s, .door = door, .handle = paths_handle, .wake = wake, .error = server_http_error,
    };
}

/* Memory beside the model's: connections, bodies and answers, JSON of one body and what is written of it for the library, one answer
 * that is put together, and its copy on its way. */
static uint64_t reserve_of(struct server *s, const struct args *a)
{
    const struct http_config c = config_of(s, a);
    return http_bytes(&c) + s->pool.most + s->json_max + 5 * s->body_max + STACKS + models_bytes(s->models);
}

static int open_http(struct server *s, const struct args *a, struct err *e)
{
    const struct http_config c = config_of(s, a);
    int r = http_open(&c, &s->http, e);
    if (r < 0)
        return r;
    const char *host = a->host ? a->host : "127.0.0.1", *six = strchr(host, ':');
    if (a->fd < 0)
        print("listening on http://%s%s%s:%d\n", six ? "[" : "", host, six ? "]" : "", http_port(s->http));
    notify_say("READY=1");
    return file_stdout(e);
}

static int run(struct server *s, const struct args *a, const struct cancel *asked, struct err *e)
{
    const char *more[68] = { NULL };
    if (a->n_more > 60)
        return err_set(e, ERR_USAGE, "%d options of the engine; there are fewer", a->n_more);
    const char *const own[] = { a->prefixes ? "--prefix-cache" : NULL, a->prefixes, a->prefix_size ? "--prefix-cache-size" : NULL,
                                a->prefix_size };
    int n = 0;
    for (int i = 0; i < 4; i++)
        if (own[i])
            more[n++] = own[i];
    for (int i = 0; i < a->n_more; i++)
        more[n++] = a->more[i];
    const struct models_config c = {
        .dir = a->models, .model = a->model, .plan = a->plan, .name = a->name, .idle_s = a->idle,
        .o = { .size = sizeof c.o, .memory_bytes = a->memory, .sequences = a->sequences, .more = more, .pause_ms = PAUSE_MS, .messages = 1,
               .calls = 1, .schemas = a->schemas } };
    int r = models_find(s, &c, &s->models, e);
    if (r == 0 && (r = models_start(s->models, reserve_of(s, a), asked, e)) == 0 && (r = open_http(s, a, e)) == 0)
        serve(s, asked);
    if (s->models)
        models_stop(s->models);
    http_close(s->http);
    models_free(s->models);
    return r;
}

static int serve_main(int argc, char **argv)
{
    struct args a;
    struct err e = { 0 };
    struct server s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    init(&a);
    int r = parse(&a, argc, argv, &e);
    if (r) {
        door_close(&a.door);
        return r < 0 ? opt_fail(&e) : 0;
    }
    struct cancel *asked = file_catch_interrupt();
    char *name = a.name || a.models ? NULL : name_of(a.model);
    a.name = a.name ? a.name : name ? name : "model";
    s.door = &a.door;
    s.pool.most = (size_t)a.buffers;
    s.body_max = (size_t)a.body;
    s.json_max = 4 * s.body_max + (64u << 10);
    signal(SIGPIPE, SIG_IGN);
    r = run(&s, &a, asked, &e);
    buffer_drop(&s.line);
    free(name);
    door_close(&a.door);
    if (r == ERR_INTR && cancel_asked(asked)) /* while it loaded: there was nothing to finish */
        return 0;
    return r < 0 ? opt_fail(&e) : 0;
}

int main(int argc, char **argv)
{
    int version = argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"));
    opt_begin("thermo-serve");
    if (version)
        print("thermo-serve %s\n", THERMO_VERSION);
    return opt_end(version ? 0 : serve_main(argc, argv));
}
