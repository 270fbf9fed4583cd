#ifndef COMMON_CLI_DISTINCT_H
#define COMMON_CLI_DISTINCT_H

/* Whether the files that a command writes are distinct from those that it reads, and from each other. Asked before
 * anything is opened: names are compared by what they lead to (stat), so that links and other spellings of a path do not
 * hide a file. A file that is not there yet is known by its folder and its name in it. Only regular files count: a
 * device, a pipe or a terminal may be named as often as one likes. What is found distinct here is looked at again when it is written:
 * files that are read are kept from then on (file_keep in common/base/file.h).
 *
 * Names of one group are not compared with each other. Every command gets this from its option table (common/cli/opt.h). */
#include "common/base/err.h"

enum distinct_use { DISTINCT_READ, DISTINCT_WRITTEN };

struct distinct_name {
    const char *label;  /* "--out": how messages call it; copied */
    const char *path;
    int group;
    const char *in_place; /* "--traces": where this option is left out, the file of that one is written in place; or NULL; copied */
};

struct distinct_file;
struct distinct {
    struct distinct_file *files;
    int n;
};

/* A file; of a GGUF shard (NAME-00001-of-00003.gguf) all shards of its set. 0, ERR_NOMEM, or
 * ERR_USAGE where a file that is written has an empty name. */
int distinct_add(struct distinct *d, const struct distinct_name *n, enum distinct_use use, struct err *e);

/* The file called PATH with suffix appended, which the program writes or reads beside PATH. */
int distinct_add_beside(struct distinct *d, const struct distinct_name *n, const char *suffix, enum distinct_use use,
                        struct err *e);

/* An SQLite database, with its -journal, -wal and -shm. */
int distinct_add_database(struct distinct *d, const struct distinct_name *n, enum distinct_use use, struct err *e);

/* Standard output, where it is a regular file. A path that names a descriptor to write to (file_descriptor_of) is meant, and not compared
 * with it or with another such path: they have one place in the file. */
int distinct_add_stdout(struct distinct *d, int group, struct err *e);

/* 0; ERR_USAGE, which names two of which at least one is written and that are one file. */
int distinct_check(const struct distinct *d, struct err *e);

/* No file that is read is written from here on, by whatever name. */
int distinct_keep(const struct distinct *d, struct err *e);

void distinct_done(struct distinct *d);

#endif
