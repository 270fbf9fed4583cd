#ifndef PROFILER_PROBE_PROBE_FILE_H
#define PROFILER_PROBE_PROBE_FILE_H

/* The file that the probes of storage and of storage beside computing read: incompressible bytes, written once, unlinked at once, so that
 * nothing stays behind however this process ends. */
#include "common/base/err.h"

#include <stdint.h>

#define PROBE_FILE_BUFFER (4u << 20)

struct probe_file {
    int fd_write, fd; /* fd: to read; -1: closed */
    int direct;       /* read past the page cache */
    uint64_t bytes;   /* whole MiB */
    char dir[4096];
    char notes[160];  /* why it is not read as models are; "": it is */
};

void probe_file_init(struct probe_file *f, const char *dir, uint64_t bytes);

/* Writes it. buf: PROBE_FILE_BUFFER, at a page. ERR_INTR; ERR_SYS where there is no room for it; ERR_IO: it does not read back. */
int probe_file_make(struct probe_file *f, char *buf, struct err *e);
void probe_file_close(struct probe_file *f);

#endif
