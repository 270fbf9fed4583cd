/* Programs: one for each element type, from one source. What was built is compared with the processor first and kept then, so what is in
 * the cache has passed. A file of the cache:
 *
 *     0  "THERMOCL"
 *     8  u32 revision, u32 zero
 *    16  u64[2] key: of platform, device, driver, version, source and options
 *    32  u64[2] hash of the bytes
 *    48  u64 bytes, which follow
 *
 * in little-endian order, under a name that has the key. It is code: only a regular file of this user (or of root), which nobody else can
 * write to, is read; hashes find damage, not forgery. */
#include "common/opencl/opencl_impl.h"

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/print.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REVISION 1
#define HEADER   56
#define MOST     (64u << 20) /* of a program */

static const char source[] =
#include "opencl_kernels.inc"
    ;

static const struct { const char *name; size_t at; } kernels_of[] = {
    { "product_1", offsetof(struct opencl_kernels, product) },
    { "product_4", offsetof(struct opencl_kernels, product) + sizeof(opencl_kernel) },
    { "product_many", offsetof(struct opencl_kernels, product) + 2 * sizeof(opencl_kernel) },
    { "turned_1", offsetof(struct opencl_kernels, turned) },
    { "turned_4", offsetof(struct opencl_kernels, turned) + sizeof(opencl_kernel) },
    { "turned_many", offsetof(struct opencl_kernels, turned) + 2 * sizeof(opencl_kernel) },
    { "sum_slices", offsetof(struct opencl_kernels, sum) },
    { "activate", offsetof(struct opencl_kernels, activate) },
    { "hidden_1", offsetof(struct opencl_kernels, hidden) },
};
enum { N_KERNELS = sizeof kernels_of / sizeof kernels_of[0] };

static opencl_kernel *kernel_at(struct opencl_kernels *k, int i)
{
    return (opencl_kernel *)(void *)((char *)k + kernels_of[i].at);
}

void opencl_program_drop(struct opencl *o, struct opencl_kernels *k)
{
    for (int i = 0; i < N_KERNELS; i++)
        if (*kernel_at(k, i))
            o->api.ReleaseKernel(*kernel_at(k, i));
    if (k->program)
        o->api.ReleaseProgram(k->program);
    *k = (struct opencl_kernels){ 0 };
}

/* ---- names ---- */

static void options_of(const struct opencl *o, uint32_t type, char *out, size_t size)
{
    snprintf(out, size, "-cl-std=CL1.2 -DTYPE=%u -DLANES=%d -DROWS=%d -DMANY_TOKENS=%d -DITEMS=%d%s", type, o->lanes, o->rows,
             opencl_queue_many(o), opencl_queue_items(o) ? opencl_queue_items(o) : 32,
             strcmp(o->info.device.kind, "cpu") ? " -DUNROLLED" : "");
}

static struct hash128 key_of(const struct opencl *o, uint32_t type)
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    char options[128];
    options_of(o, type, options, sizeof options);
    const struct accel_device *d = &o->info.device;
    const char *const parts[] = { d->platform, d->name, d->driver, d->version, source, options };
    hash_update_u32(h, REVISION);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        hash_update_str(h, parts[i]);
    return hash_final128(h);
}

static int path_of(const struct opencl *o, struct hash128 key, char *out, size_t size)
{
    char text[HASH_TEXT];
    hash_text(key, text);
    int n = snprintf(out, size, "%s/opencl-%s.bin", o->c.cache, text);
    return n > 0 && (size_t)n < size;
}

/* Said once, at the end of what else there is to say. */
__attribute__((format(printf, 2, 3))) static void note(struct opencl *o, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!o->info.note[0])
        print_into_va(o->info.note, sizeof o->info.note, fmt, args);
    va_end(args);
}

/* ---- the cache ---- */

/* NULL: may be read; else why not. */
static const char *distrusted(int fd, struct stat *st)
{
    if (fstat(fd, st) < 0)
        return "it cannot be looked at";
    if (!S_ISREG(st->st_mode))
        return "it is no regular file";
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return "it belongs to another user";
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return "others can write to it";
    return NULL;
}

/* malloc'd, or NULL: not there, or not to be used, which is noted. */
static uint8_t *cached_bytes(struct opencl *o, struct hash128 key, size_t *len)
{
    char path[PATH_MAX];
    uint8_t head[HEADER], *bytes = NULL;
    struct stat st;
    if (!path_of(o, key, path, sizeof path))
        return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        if (errno != ENOENT)
            note(o, "'%s' is not used: %s", path, strerror(errno));
        return NULL;
    }
    struct file f = { .fd = fd, .path = path };
    struct err e = { 0 };
    const char *why = distrusted(fd, &st);
    uint64_t size = why || st.st_size < HEADER ? 0 : (uint64_t)st.st_size - HEADER;
    if (!why && (!size || size > MOST || file_pread(&f, head, HEADER, 0, &e) < 0 || memcmp(head, "THERMOCL", 8) ||
                 bytes_le32(head + 8) != REVISION || bytes_le32(head + 12) || bytes_le64(head + 48) != size ||
                 bytes_le64(head + 16) != key.lo || bytes_le64(head + 24) != key.hi))
        why = "it is damaged, and will be written anew";
    if (!why && (bytes = malloc((size_t)size)) && file_pread(&f, bytes, (size_t)size, HEADER, &e) == 0) {
        struct hash128 sum = hash_128(bytes, (size_t)size);
        if (sum.lo != bytes_le64(head + 32) || sum.hi != bytes_le64(head + 40))
            why = "it is damaged, and will be written anew";
    } else if (!why) {
        why = "it cannot be read";
    }
    close(fd);
    if (why) {
        note(o, "'%s' is not used: %s", path, why);
        free(bytes);
        return NULL;
    }
    *len = (size_t)size;
    return bytes;
}

static void keep(struct opencl *o, struct hash128 key, opencl_program_id program)
{
    char path[PATH_MAX];
    size_t len = 0;
    struct err e = { 0 };
    if (!o->c.cache || !path_of(o, key, path, sizeof path) ||
        o->api.GetProgramInfo(program, OPENCL_PROGRAM_BINARY_SIZES, sizeof len, &len, NULL) != OPENCL_SUCCESS || !len || len > MOST)
        return;
    uint8_t *all = calloc(1, HEADER + len), *payload = all ? all + HEADER : NULL;
    if (all && o->api.GetProgramInfo(program, OPENCL_PROGRAM_BINARIES, sizeof payload, &payload, NULL) == OPENCL_SUCCESS) {
        struct hash128 sum = hash_128(payload, len);
        memcpy(all, "THERMOCL", 8);
        bytes_put32(all + 8, REVISION);
        bytes_put64(all + 16, key.lo);
        bytes_put64(all + 24, key.hi);
        bytes_put64(all + 32, sum.lo);
        bytes_put64(all + 40, sum.hi);
        bytes_put64(all + 48, len);
        mode_t old = umask(077);
        unlink(path); /* a file that is replaced keeps its mode, for which it may have been distrusted */
        if (file_replace(path, all, HEADER + len, &e) < 0)
            note(o, "what was built for the accelerator is not kept: %s", e.msg);
        umask(old);
    }
    free(all);
}

/* ---- building ---- */

static int build(struct opencl *o, opencl_program_id program, uint32_t type, struct opencl_kernels *k, struct err *e)
{
    char options[128], log[300] = "", all[4096] = "", buf[32];
    size_t n = 0;
    int32_t r;
    options_of(o, type, options, sizeof options);
    k->program = program;
    if ((r = o->api.BuildProgram(program, 1, &o->device, options, NULL, NULL)) != OPENCL_SUCCESS) {
        if (o->api.GetProgramBuildInfo(program, o->device, OPENCL_PROGRAM_BUILD_LOG, sizeof all - 1, all, &n) == OPENCL_SUCCESS)
            snprintf(log, sizeof log, "%.280s", all);
        for (char *c = log; *c; c++)
            *c = *c < 0x20 || *c > 0x7e ? ' ' : *c;
        return err_set(e, ERR_UNSUPPORTED, "OpenCL device '%s' cannot build the kernels of %s: %s: %s", o->info.device.name,
                       quant_traits(type)->name, opencl_api_error(r, buf, sizeof buf), log);
    }
    for (int i = 0; i < N_KERNELS; i++)
        if (!(*kernel_at(k, i) = o->api.CreateKernel(program, kernels_of[i].name, &r)))
            return err_set(e, ERR_UNSUPPORTED, "OpenCL device '%s': kernel %s: %s", o->info.device.name, kernels_of[i].name,
                           opencl_api_error(r, buf, sizeof buf));
    return 0;
}

/* 1: work groups fit; 0: a kernel takes smaller ones only, and rows or lanes are fewer now. */
static int groups_fit(struct opencl *o, struct opencl_kernels *k)
{
    for (int i = 0; i < N_KERNELS; i++) {
        size_t most = 0;
        if (o->api.GetKernelWorkGroupInfo(*kernel_at(k, i), o->device, OPENCL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL) !=
                OPENCL_SUCCESS ||
            most >= (size_t)o->lanes * (size_t)o->rows || o->lanes * o->rows == 1)
            continue;
        if (o->rows > 1)
            o->rows /= 2;
        else
            o->lanes /= 2;
        return 0;
    }
    return 1;
}

static int from_cache(struct opencl *o, uint32_t type, struct opencl_kernels *k)
{
    size_t len = 0;
    int32_t status = 0, r = 0;
    struct err e = { 0 };
    uint8_t *bytes = o->c.cache ? cached_bytes(o, key_of(o, type), &len) : NULL;
    if (!bytes)
        return 0;
    const unsigned char *binary = bytes;
    opencl_program_id p = o->api.CreateProgramWithBinary(o->context, 1, &o->device, &len, &binary, &status, &r);
    int ok = p && status == OPENCL_SUCCESS && build(o, p, type, k, &e) == 0 && groups_fit(o, k);
    if (!ok) {
        k->program = p;
        opencl_program_drop(o, k);
        note(o, "what is kept for the accelerator in '%s' does not suit its driver, and will be written anew", o->c.cache);
    }
    free(bytes);
    return ok;
}

int opencl_program_make(struct opencl *o, uint32_t type, struct err *e)
{
    struct opencl_kernels *k = &o->kernels[type];
    const char *text = source;
    const size_t len = sizeof source - 1;
    int32_t code;
    char buf[32];
    int r, lanes = o->lanes, rows = o->rows;
    if (k->program)
        return 0;
    if (from_cache(o, type, k)) {
        o->info.cached++;
        return 0;
    }
    do {
        opencl_program_drop(o, k);
        opencl_program_id p = o->api.CreateProgramWithSource(o->context, 1, &text, &len, &code);
        if (!p)
            return err_set(e, ERR_UNSUPPORTED, "OpenCL device '%s': no program: %s", o->info.device.name,
                           opencl_api_error(code, buf, sizeof buf));
        if ((r = build(o, p, type, k, e)) < 0) {
            opencl_program_drop(o, k);
            return r;
        }
    } while (!groups_fit(o, k));
    if (lanes != o->lanes || rows != o->rows) /* all programs have the same: opencl.c begins anew */
        return 1;
    if ((r = opencl_test_kernels(o, type, e)) < 0) {
        opencl_program_drop(o, k);
        return r;
    }
    o->info.built++;
    keep(o, key_of(o, type), k->program);
    return 0;
}
