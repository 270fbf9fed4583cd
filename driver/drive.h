#ifndef DRIVER_DRIVE_H
#define DRIVER_DRIVE_H

/* One model from its file to what runs it: what was asked for, where things are, what was found. */
#include "common/base/err.h"
#include "common/base/hash.h"
#include "driver/child.h"

#include <stdarg.h>
#include <stdint.h>

#define DRIVE_PATH 4096
#define DRIVE_NAME 160

struct drive {
    /* asked for */
    const char *model, *memory, *prompt, *prompts, *device, *hardware, *out, *cache, *trace_flags, *plan_flags, *run_flags;
    uint64_t max_tokens, context;
    int tokens, full, fresh, raw, serve, port, consume;
    struct words after;            /* what was behind -- */
    struct words typed;            /* the whole command line */

    /* where things are */
    char programs[DRIVE_PATH], prompts_file[DRIVE_PATH];
    char root[DRIVE_PATH];         /* the cache */
    char dir[DRIVE_PATH];          /* this model's folder, in the cache or --out */
    char state[DRIVE_PATH];        /* its records */
    char traces[DRIVE_PATH], plan[DRIVE_PATH], pack[DRIVE_PATH], database[DRIVE_PATH], hardware_record[DRIVE_PATH];
    char plan_record[DRIVE_PATH];
    char device_name[DRIVE_NAME];
    int lock;                      /* descriptor, or -1 */

    /* what the model is */
    char name[DRIVE_NAME];
    struct hash128 quick;          /* store_quick */
    struct words shards;           /* all files of it */
    char *stats;                   /* of all shards: store_stats */
    uint64_t model_bytes;
    char consumed[DRIVE_PATH];     /* the pack that has the model's weights, which are no longer in it; "": it is whole */
    int has_template, zeros, experts;
    char model_id[HASH_TEXT];      /* hash of its content; "": not known */
    char prompts_id[HASH_TEXT], trace_id[HASH_TEXT], hardware_id[2 * HASH_TEXT];
    char memory_text[256], plan_version[256], pack_version[256];

    struct bar bar;
};

/* snprintf, and ERR_USAGE where it does not fit. */
int drive_path(char out[DRIVE_PATH], struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* "== ..." on stderr, unless --quiet. */
void drive_say(struct drive *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What thermo-plan plans for: "chat", "serve", or "". */
const char *drive_purpose(const struct drive *d);

/* PROGRAM's command line begins with its path. */
void drive_program(const struct drive *d, struct words *w, const char *program);

/* Where the programs are, into d->programs: BIN, our own folder, PATH. */
int drive_find_programs(struct drive *d, struct err *e);
int drive_folder_of_self(char out[DRIVE_PATH], struct err *e);

/* 1: the first folder of PATH that has the file, to be executed or read as access() has it, is in dir. */
int drive_in_path(const char *file, int how, char dir[DRIVE_PATH]);

/* What PROGRAM COMMAND --json says of a file, and a hash of it but for the program's version. Either output may be
 * NULL. ERR_INPUT where it fails. */
struct js;
int drive_asks(const struct drive *d, const char *program, const char *command, const char *file, struct js **out, char id[HASH_TEXT],
               struct err *e);

#endif
