#ifndef THERMO_H
#define THERMO_H

/* libthermo: a packed model and its plan, answering many requests at once within one memory limit.
 *
 *     struct thermo_options o = { .size = sizeof o, .model = "m.thermo", .plan = "p.json" };
 *     struct thermo_request q = { .size = sizeof q, .prompt = "Once", .prompt_bytes = 4 };
 *     thermo_open(&o, &t, &e);
 *     thermo_submit(t, &q, sink, NULL, &id, &e);
 *     while (thermo_step(t, 0, &e) > 0) ;                   sink is called with each token, then with the end
 *     thermo_close(t);
 *
 * Each request gives the tokens that it gives alone with its seed, whatever else is open, whatever the
 * threads and the drive do.
 *
 * Threads: one thread at a time calls thermo_step; sinks are called in it. thermo_submit,
 * thermo_cancel, thermo_interrupt, thermo_wake, thermo_unwritten, thermo_describe and the functions on text may be
 * called from any thread at any time between open and close, also from a sink. thermo_submit renders
 * templates and finds tokens in the thread that calls it, one request at a time. thermo_interrupt may
 * be called from a signal handler. One process may open several models, one after another: the set of
 * kernels and the level of the log are the process's.
 *
 * Memory: all of it is within the limit, requests that are open included, but for what the functions
 * that return text return. What thermo_open says on standard error are warnings where something
 * differs from the plan; options.more has -q and -v.
 *
 * Versions: structures begin with their size, as the caller knows it, and grow at the end; what a
 * caller does not know is zero, and zero means the default. Symbols are versioned (THERMO_0.2).
 * An example: docs/example.c. */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define THERMO_API __attribute__((visibility("default")))

struct thermo;

/* What a call returns where it fails, and error.code: as the exit statuses of the programs
 * (thermo_exit_status). */
enum thermo_code {
    THERMO_E_SYSTEM = -1,       /* a system call failed */
    THERMO_E_MEMORY = -2,       /* out of memory */
    THERMO_E_FORMAT = -3,       /* a file or a request contradicts its own format */
    THERMO_E_UNSUPPORTED = -4,  /* valid, but not known to this build */
    THERMO_E_LIMIT = -5,        /* valid, but larger than what is accepted */
    THERMO_E_INPUT = -6,        /* a file cannot be opened or read */
    THERMO_E_USAGE = -7,        /* a call, an option or a field is wrong */
    THERMO_E_INFEASIBLE = -8,   /* the memory limit is below what the model needs */
    THERMO_E_MISMATCH = -9,     /* model and plan do not belong together */
    THERMO_E_IO = -10,          /* reading failed, or what was read is damaged, while running */
    THERMO_E_INTERRUPTED = -11, /* thermo_interrupt */
    THERMO_E_FULL = -12         /* thermo_submit: all places are taken; one is free again when a
                                 * request ends */
};

/* A caller's, filled where a call fails; NULL where no message is wanted. message: one line, UTF-8,
 * what, which, and what to do. */
struct thermo_error {
    int code;
    char message[512];
};

struct thermo_options {
    size_t size;              /* sizeof(struct thermo_options) */
    const char *model, *plan; /* paths; NULL where `more` has --model and --plan */
    uint64_t memory_bytes;    /* limit of everything; 0: the plan's largest */
    int sequences;            /* requests that are made at once; 0: the plan's. As many again, times
                               * 3, may wait */
    const char *const *more;  /* further options of `thermo-run serve`, as on its command line,
                               * ended by NULL: { "--threads", "2", NULL }; or NULL. With "--chat"
                               * prompts are messages. Borrowed during thermo_open alone */
    int *cancel;              /* opening ends once *cancel is not 0, and so does everything
                               * (thermo_interrupt, which sets it, too): of another thread or a
                               * signal handler; outlives the model; NULL: one of the library's own */
    int pause_ms;             /* how long a sink may pause a request before it is cancelled; 0:
                               * 10,000 */
    uint64_t reserved_bytes;  /* memory of the caller that counts within the limit */
    int messages;             /* 1: the model's chat template is loaded, where it has one that is
                               * understood (thermo_describe: "template"): "messages" may come
                               * among the fields, and prompts stay text. --chat-template, --system
                               * and --thinking may then be among `more` */
    uint64_t reserved_per_token; /* of the reserved memory: bytes for each position of the context
                               * of each sequence */
    int requests;             /* that may be open at once, each choice counted; 0: 4 for each
                               * sequence */
    /* Where all requests are known beforehand: called by thermo_open between reading the files and
     * loading the model, while its memory is free. What is submitted here may be as long as `room`
     * bytes of memory allow, and nothing is kept of the limit for reading more: thermo_submit is
     * THERMO_E_USAGE afterwards. Of the functions only thermo_submit, thermo_tokenize and
     * thermo_piece may be called in it. Not 0: thermo_open ends with that code and *e. NULL:
     * requests come at any time */
    int (*before)(void *ctx, struct thermo *t, size_t room, struct thermo_error *e);
    void *before_ctx;
    int schemas;              /* different schemas ("schema" among the fields, "json", and tools of
                               * which "tool_choice" says that one has to be called) that
                               * requests may have at once: memory is kept for them, 1.5 MB each
                               * and more, 2 MB of a vocabulary of 150,000, and 2 MB for it. 0: none, and such a request is
                               * THERMO_E_UNSUPPORTED; --schemas among `more` may say it, too */
    int calls;                /* 1: where a request has "tools", calls that the model writes into its
                               * answer come as THERMO_CALL, in the form that its template has; 0:
                               * they are text */
    int conversation;         /* 1: requests come one at a time, each with the "messages" of the last one and more, as
                               * in thermo-run chat: --chat is implied, there is one sequence, and what is
                               * kept of the limit for reading requests is less, what a plan by 'thermo-plan
                               * solve --for chat' has room for: the caller's own copy of the messages is
                               * in it. Not with requests, before or calls */
};

/* A request: either prompt, or a prompt, tokens or messages among the fields. All pointers are
 * borrowed during the call alone. */
struct thermo_request {
    size_t size;
    const char *prompt;       /* text to continue (with --chat: a user's message), UTF-8; NULL: the
                               * fields have it */
    size_t prompt_bytes;
    const char *fields;       /* a JSON object: the fields of a request of `thermo-run serve
                               * --stdio` ("n", "temp", "seed", "stop", ...; docs/batches.md), but
                               * for "id"; NULL: none */
    size_t fields_bytes;
};

enum thermo_event_type {
    THERMO_TOKEN,             /* a token of the text */
    THERMO_END,               /* the text has ended; with the last one of its request ("choices" of the fields says how many there
                               * are) the id means nothing any more */
    THERMO_PROMPT             /* where the fields have "prompt_logprobs": true: a token of the prompt, n_tokens before it, before any
                               * other event of its text. token_logprob of the first: NAN */
};

/* What an event's text is: the text that was asked for, or what a model thinks before it answers
 * (of requests with messages), or the arguments of a call, a whole JSON object as the model wrote it. With
 * "thinking": "hide" thoughts have no text. What looks like a call and is none is text. */
enum thermo_part { THERMO_TEXT, THERMO_THOUGHT, THERMO_CALL };

struct thermo_top {
    int32_t id;
    double logprob;
};

/* Borrowed during the call of a sink. */
struct thermo_event {
    size_t size;
    int type;                 /* enum thermo_event_type */
    uint64_t id;
    const char *text;         /* what became text: whole UTF-8 characters, ended by NUL; often empty */
    size_t text_bytes;
    int part;                 /* enum thermo_part, of all of the text */
    int token, n_tokens;      /* TOKEN: its id, or -1: more text of the token before, of the other
                               * part; tokens of the text so far */
    /* TOKEN, PROMPT: natural logarithms of probabilities by the model, before temperature, penalties, bias and
     * masks: of this token; of the likeliest at its place, as many as "logprobs" asks for. token -1:
     * none */
    double token_logprob;
    const struct thermo_top *top; /* [n_top], the likeliest first */
    int n_top;
    /* END */
    const char *stop;         /* "length" "eos" "stop" "context" "interrupted" (cancelled), or
                               * "error" */
    int prompt_tokens, shared_tokens; /* also of TOKEN: of the prompt; of these, read before: by a
                                       * request that was open, or by one whose end the memory still holds */
    int n_thought_tokens;     /* of n_tokens, those of thoughts, with their marks */
    double logprob;           /* mean log-probability of the tokens drawn */
    struct thermo_error error; /* of "error" */
    /* of THERMO_CALL: which of the answer's calls, from 0; letters and digits, the same for the same
     * prompt, seed and call; a tool of the request */
    int call_index;
    const char *call_id, *call_name;
    int choice;               /* which continuation of the prompt, from 0: the one with the seed + choice */
    /* Passes that read no prompt, of all requests together, since the model was opened: ns they
     * took, and those of them in which there was nothing to compute for reads were missing; reads
     * of neurons; units looked up in the cache of neurons, and found there; active neurons */
    uint64_t decode_ns, stall_ns, reads, read_bytes, lookups, hits, active;
    const char *stop_text;    /* END, of "stop": the stop string that ended it */
};

/* Must not block. Of a token: 0, it was taken; THERMO_PAUSE, it was not, and the request makes nothing
 * more until it is: it is offered again at each thermo_step (thermo_wake has a waiting one look), for
 * pause_ms at most. Of others the value is ignored. */
enum { THERMO_PAUSE = 1 };
typedef int thermo_sink(void *ctx, const struct thermo_event *event);

/* As the programs print it; constant. */
THERMO_API const char *thermo_version(void);

/* Reads plan and model, checks that they belong together and fit the limit, loads what stays in
 * memory. *out is the caller's, for thermo_close. THERMO_E_USAGE INPUT FORMAT UNSUPPORTED MISMATCH
 * INFEASIBLE MEMORY SYSTEM IO INTERRUPTED. Takes seconds. */
THERMO_API int thermo_open(const struct thermo_options *o, struct thermo **out, struct thermo_error *e);

/* Frees everything; requests that are open end without a word. No other call may be under way. Accepts
 * NULL. */
THERMO_API void thermo_close(struct thermo *t);

/* Checks a request, makes tokens of it and queues it: 0, and *id (never 0) names it in events and for
 * thermo_cancel. The sink is called from thermo_step alone, at last with THERMO_END. THERMO_E_FULL:
 * nothing was looked at, try again when a request has ended. FORMAT LIMIT UNSUPPORTED USAGE: what is
 * wrong, by field. Any thread. */
THERMO_API int thermo_submit(struct thermo *t, const struct thermo_request *q, thermo_sink *sink, void *ctx, uint64_t *id,
                             struct thermo_error *e);

/* One pass for all that is open: each request has one token more, or reads a piece of its prompt. 1:
 * something was done; 0: there was nothing to do for wait_ms (0: not waiting; -1: as long as it
 * takes). THERMO_E_INTERRUPTED: all requests have ended. Of another failure those that it concerns
 * have been told by their ends, and the next step goes on with the others. */
THERMO_API int thermo_step(struct thermo *t, int wait_ms, struct thermo_error *e);

/* Ends a request, also one that waits, at the beginning of the next step: its sink has "interrupted",
 * for each choice that is open. A pass that is under way for it alone is given up before its next
 * layer; one that others have part in goes on. 0, or THERMO_E_USAGE: no request with this id is open. Any thread. */
THERMO_API int thermo_cancel(struct thermo *t, uint64_t id);

/* Ends everything: the step under way gives its pass up at the next layer. Not taken back. Any thread,
 * signal handlers. */
THERMO_API void thermo_interrupt(struct thermo *t);

/* A thermo_step that waits looks at once what there is to do, and waits on if it is nothing: a paused
 * sink would take its token now. Any thread. */
THERMO_API void thermo_wake(struct thermo *t);

/* 1: what --prefix-cache keeps of the texts so far is not all in its folder. A thermo_step that waits (wait_ms not 0) puts it there, also
 * where nothing is open, and so does thermo_close; 0: all is there, or none is kept. Any thread. */
THERMO_API int thermo_unwritten(struct thermo *t);

/* What runs and what came of it, as a JSON object: configuration (model, threads, memory by item,
 * limits of requests), counts of requests, tokens, passes and reads, what passes took that read
 * prompts and the others, beside what the plan says (runtime/README.md). NULL: out of memory. The
 * caller's, for thermo_free. Any thread. */
THERMO_API char *thermo_describe(struct thermo *t);

/* Another limit of memory from here on, where options.more has "--elastic" and the least that there may be. Requests that are open go on
 * and make the tokens that they make otherwise. It waits for the pass under way; where the limit is smaller, it holds when this is back
 * (make it hold then, and of a larger one before). 0. INFEASIBLE, UNSUPPORTED, MEMORY, LIMIT: refused, nothing has changed. IO, FORMAT:
 * the limit holds, but neurons could not be read; the next pass tries again. USAGE: called from a sink. Any thread but while
 * options.before is called. */
THERMO_API int thermo_resize(struct thermo *t, uint64_t memory_bytes, struct thermo_error *e);

/* Tokens of a text as a prompt has them: the caller's, for thermo_free. special: control tokens are
 * found in it. Any thread. */
THERMO_API int thermo_tokenize(struct thermo *t, const char *text, size_t bytes, int special, int32_t **ids, size_t *n,
                               struct thermo_error *e);

/* A conversation as the model's template writes it, which a request with these fields would read:
 * the caller's, for thermo_free, ended by NUL. fields: as of a request, with "messages". Any thread. */
THERMO_API int thermo_render(struct thermo *t, const char *fields, size_t bytes, char **text, size_t *n,
                             struct thermo_error *e);

/* Tokens of the same, which a request with these fields would have as its prompt. Any thread. */
THERMO_API int thermo_count(struct thermo *t, const char *fields, size_t bytes, size_t *n, struct thermo_error *e);

/* Bytes of a token as text, borrowed until thermo_close; *bytes 0 of control tokens and of ids that
 * are none. Any thread. */
THERMO_API const char *thermo_piece(struct thermo *t, int32_t id, size_t *bytes);

/* What a function above returned; accepts NULL. */
THERMO_API void thermo_free(void *p);

/* The exit status that the programs have for a code: 0 1 2 3 4 5 6 130. */
THERMO_API int thermo_exit_status(int code);

#ifdef __cplusplus
}
#endif

#endif
