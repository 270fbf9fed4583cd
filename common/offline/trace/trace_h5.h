#ifndef COMMON_OFFLINE_TRACE_TRACE_H5_H
#define COMMON_OFFLINE_TRACE_TRACE_H5_H

/* The little of HDF5 that traces use, hardened for files from elsewhere: plain hard links, chunked
 * fixed-shape datasets of known types, built-in filters, fixed-length text attributes. Everything
 * is checked against what is expected before memory is taken. Errors name file and object;
 * HDF5's own error printing is off. Internal to trace*.c. */
#include "common/base/err.h"
#include "common/offline/trace/trace_spec.h"

#include <stddef.h>
#include <stdint.h>

struct trace_h5_file {
    int64_t id;          /* -1: closed */
    char *path;          /* for messages */
    uint64_t size;       /* bytes, when read */
    int lost, lost_sys;  /* what was written to a dataset did not reach the file when it was closed; errno of that, or 0 */
};

struct trace_h5_set {
    int64_t id, type;    /* -1: closed */
    struct trace_h5_file *file;
    char name[64];       /* "/layers/0003/counts" */
    int n_dims;
    uint64_t dims[3];
};

int trace_h5_open(struct trace_h5_file *f, const char *path, struct err *e);
/* name is what messages call it; the file is written at path, which is truncated. */
int trace_h5_create(struct trace_h5_file *f, const char *path, const char *name, struct err *e);
/* Open the whole file at path for adding to it; name is what messages call it. */
int trace_h5_append(struct trace_h5_file *f, const char *path, const char *name, struct err *e);
/* Delete a group, if it is there, with all that is in it; its space is used again before the file is closed. */
int trace_h5_remove(struct trace_h5_file *f, const char *group, struct err *e);
/* Flushes; the result matters for files written. */
int trace_h5_close(struct trace_h5_file *f, struct err *e);

int trace_h5_group_create(struct trace_h5_file *f, const char *path, struct err *e);
/* 1 a hard link to an object is there, 0 nothing is; other kinds of link are ERR_FORMAT. path has at
 * most three components. */
int trace_h5_exists(struct trace_h5_file *f, const char *path, struct err *e);

int trace_h5_put_u64(struct trace_h5_file *f, const char *group, const char *name, uint64_t v, struct err *e);
int trace_h5_put_f64(struct trace_h5_file *f, const char *group, const char *name, double v, struct err *e);
int trace_h5_put_text(struct trace_h5_file *f, const char *group, const char *name, const char *v, struct err *e);

/* 1 the object has such an attribute, 0 it has not. */
int trace_h5_has_attr(struct trace_h5_file *f, const char *group, const char *name, struct err *e);

/* The value must lie in [min, max]. */
int trace_h5_get_u64(struct trace_h5_file *f, const char *group, const char *name, uint64_t min, uint64_t max,
                     uint64_t *out, struct err *e);
int trace_h5_get_f64(struct trace_h5_file *f, const char *group, const char *name, double *out, struct err *e);
/* ERR_FORMAT when it does not fit len with its NUL, or holds one. */
int trace_h5_get_text(struct trace_h5_file *f, const char *group, const char *name, char *out, size_t len,
                      struct err *e);

/* text_bytes: element size of TRACE_TEXT. gzip 0..9; 0 leaves deflate out, 1 leaves it out for TRACE_F16. */
int trace_h5_set_create(struct trace_h5_file *f, struct trace_h5_set *s, const char *name, enum trace_type type,
                        size_t text_bytes, int n_dims, const uint64_t *dims, int gzip, struct err *e);
/* Opens and checks type, shape, storage and filters. For TRACE_TEXT *text_bytes gets the element size. */
int trace_h5_set_open(struct trace_h5_file *f, struct trace_h5_set *s, const char *name, enum trace_type type,
                      size_t *text_bytes, int n_dims, const uint64_t *dims, struct err *e);
/* Accepts a closed one. What could not be written then is an error of trace_h5_close. */
void trace_h5_set_close(struct trace_h5_set *s);

/* A box of elements, row-major in buf; first and count have n_dims entries. */
int trace_h5_set_read(struct trace_h5_set *s, const uint64_t *first, const uint64_t *count, void *buf, struct err *e);
int trace_h5_set_write(struct trace_h5_set *s, const uint64_t *first, const uint64_t *count, const void *buf,
                       struct err *e);

#endif
