#ifndef RUNTIME_ENGINE_KV_FOLDER_H
#define RUNTIME_ENGINE_KV_FOLDER_H

/* The folder of kv_store.h: files by a hash, whole or not there, bounded together, the ones used longest ago first to go. It is shared by
 * processes of one user; whoever writes holds its lock. No link is followed, and no file removed but those named as records are.
 *
 * kv_folder_read and _touch by one thread, _write by one, which may be another. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <stddef.h>
#include <stdint.h>

struct kv_folder {
    char *path;
    int dir, lock;
    uint64_t most;
    uint64_t all, serial; /* bytes of records when it wrote last, and the number in the lock's file then */
    int known;           /* 1: these are */
};

/* Makes it where it is missing. After an error kv_folder_close is allowed, and for a zeroed one with dir and lock -1. */
int kv_folder_open(struct kv_folder *f, const char *path, uint64_t most, struct err *e);
void kv_folder_close(struct kv_folder *f);

/* All len bytes of a record: 1; 0: it is not there, or not to be believed. */
int kv_folder_read(const struct kv_folder *f, struct hash128 name, void *out, size_t len);

/* It is damaged. */
void kv_folder_remove(const struct kv_folder *f, struct hash128 name);

/* It was used now, and ends n tokens from its text's beginning. */
void kv_folder_touch(const struct kv_folder *f, struct hash128 name, int n);

/* A record, in two pieces, and others go where it has no room. 1: it was there already; 0; ERR_FULL: others held the lock for a second;
 * ERR_LIMIT: it would be the first to go; ERR_SYS. */
struct kv_folder_piece {
    const void *data;
    size_t len;
};
int kv_folder_write(struct kv_folder *f, struct hash128 name, int n, const struct kv_folder_piece pieces[2], struct err *e);

#endif
