/* The mark at the end: a line that people can read with `tail -n 1`, zeros before it, a checksum first. */
#include "common/model/gguf_consumed.h"

#include "common/base/bytes.h"
#include "common/base/hash.h"

#include <string.h>
#include <unistd.h>

static const char says[] = "\nconsumed by pack ";

enum { AT = 8 + 8 }; /* checksum of what follows, length of the path */

int gguf_consumed_by(const struct file *f, char pack[GGUF_CONSUMED_PATH])
{
    uint8_t b[GGUF_CONSUMED_BYTES], magic[4];
    struct err ignored = { 0 };
    if (f->size < GGUF_CONSUMED_BYTES + 4 || file_pread(f, magic, sizeof magic, 0, &ignored) < 0 ||
        memcmp(magic, GGUF_CONSUMED_MAGIC, sizeof magic) != 0 ||
        file_pread(f, b, sizeof b, f->size - sizeof b, &ignored) < 0)
        return 0;
    uint64_t n = bytes_le64(b + 8);
    if (n >= GGUF_CONSUMED_PATH || n + sizeof says + AT > sizeof b || bytes_le64(b) != hash_64(b + 8, sizeof b - 8))
        return 0;
    memcpy(pack, b + sizeof b - 1 - n, n);
    pack[n] = '\0';
    return 1;
}

static int put(int fd, const void *data, size_t len, uint64_t at, const char *name, struct err *e)
{
    if (pwrite(fd, data, len, (off_t)at) != (ssize_t)len || fsync(fd) < 0)
        return err_sys(e, ERR_SYS, "marking '%s' as consumed", name);
    return 0;
}

int gguf_consumed_mark(int fd, uint64_t size, const char *name, const char *pack, struct err *e)
{
    uint8_t b[GGUF_CONSUMED_BYTES] = { 0 };
    size_t n = strlen(pack), line = sizeof says - 1;
    if (n >= GGUF_CONSUMED_PATH)
        return err_set(e, ERR_LIMIT, "'%s': a path of %zu bytes, more than the limit of %u", pack, n, GGUF_CONSUMED_PATH - 1);
    bytes_put64(b + 8, n);
    memcpy(b + sizeof b - 1 - n - line, says, line);
    memcpy(b + sizeof b - 1 - n, pack, n);
    b[sizeof b - 1] = '\n';
    bytes_put64(b, hash_64(b + 8, sizeof b - 8));
    int r = put(fd, b, sizeof b, size, name, e);
    return r < 0 ? r : put(fd, GGUF_CONSUMED_MAGIC, 4, 0, name, e);
}
