#ifndef DRIVER_STORE_H
#define DRIVER_STORE_H

/* Where results lie, and records of what they were made from. A record is a JSON object of strings, written behind its result; a result
 * whose record is missing or says otherwise is made again. The cache has
 *
 *   models/NAME-HASH/   traces.h5, model.thermo, plan-LIMIT-....json, and the records in .thermocline
 *   machines/           hardware databases, MACHINE.sqlite, and a record for each device in them, MACHINE-DEVICE.json
 *
 * A model is known by a quick hash: of its header, and of the first bytes of some tensors. Where a file of the same quick hash is not the
 * one that was seen (device, inode, size, times), its whole content is hashed and compared. */
#include "driver/drive.h"

struct js;

/* --cache DIR, $XDG_CACHE_HOME/thermocline, ~/.cache/thermocline. */
int store_root(const char *asked, char out[DRIVE_PATH], struct err *e);

/* Folders of a path. */
int store_mkdir(const char *path, struct err *e);

/* Opens the model's header: name, bytes, stats, quick hash, template. */
int store_model(struct drive *d, struct err *e);

/* The model's folder and what has one name in it. */
int store_paths(struct drive *d, struct err *e);

/* The folder is there; the lock is taken, and what killed programs left is removed. */
int store_open(struct drive *d, struct err *e);

/* Whether the model is the one of the folder's record. 1, and model_id; 0. */
int store_same_model(struct drive *d, struct err *e);
int store_keep_model(struct drive *d, struct err *e);

/* Device, inode, size and times of files, malloc'd; as long as they stand so does the content. */
char *store_stats(char *const *paths, int n, struct err *e);

/* A record that the pack will have the model's weights alone; and whether the folder may go, else ERR_USAGE: those weights are there, and
 * no longer in the model's file. */
int store_consume(const struct drive *d, struct err *e);
int store_may_remove(const struct drive *d, struct err *e);

/* A hash of a file's content, read again only where its stats changed. */
int store_content(struct drive *d, const char *name, char *path, char out[HASH_TEXT], struct err *e);

/* Records. store_read: NULL where there is none that can be read. */
struct js *store_read(const struct drive *d, const char *name);
int store_write(const struct drive *d, const char *name, const struct js *record, struct err *e);
void store_forget(const struct drive *d, const char *name);
const char *store_field(const struct js *record, const char *key); /* "" where it is not there */

/* What of `key` the record has otherwise, in words; "" where it holds. */
char *store_differs(const struct js *record, const struct js *key, char *out, size_t cap);

#endif
