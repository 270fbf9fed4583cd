/* The wrapper of libhdf5. Files are written with the 1.10 format (superblock 3), whose object
 * headers and chunk indexes carry checksums, and every dataset is chunked with fletcher32: so damage
 * anywhere is noticed by the library before it acts on it, and older structures without checksums
 * are refused at the door. Nothing variable-length (its heaps have no checksums), nothing
 * external, no plugins, no times of creation: the same content gives the same bytes. */
#include "common/offline/trace/trace_h5.h"

#include "common/base/ckmath.h"
#include "common/base/file.h"
#include "common/base/print.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(hid_t) == sizeof(int64_t), "hid_t");

enum { CHUNK_TARGET = 256 << 10, CHUNK_MAX = 64 << 20, MAX_INFLATION = 1100 };

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define HAVE_LSAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAVE_LSAN
#endif
#ifdef HAVE_LSAN
/* The library loses a few hundred bytes where it gives up on a damaged object header. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}
#endif

/* What the library said last when a call failed: its handles are closed before the failure is reported, and each call
 * forgets what the one before said. Lack of memory is remembered until it is reported, whatever failed because of it. */
static struct {
    char why[160];
    int sys, nomem;
} noted;

static herr_t note(unsigned n, const H5E_error2_t *err, void *ctx)
{
    const char *desc = err->desc ? err->desc : "", *sys = strstr(desc, "errno = ");
    (void)ctx;
    if (n == 0) /* the deepest */
        snprintf(noted.why, sizeof noted.why, "%s", desc);
    if (sys && !noted.sys)
        noted.sys = atoi(sys + strlen("errno = "));
    if ((err->maj_num == H5E_RESOURCE && err->min_num == H5E_NOSPACE) || noted.sys == ENOMEM)
        noted.nomem = 1;
    return 0;
}

/* Called by the library whenever a call fails. */
static herr_t on_failure(hid_t stack, void *ctx)
{
    noted.why[0] = '\0';
    noted.sys = 0;
    noted.nomem |= errno == ENOMEM; /* an allocation whose failure went unsaid, as in zlib; see fresh() */
    H5Ewalk2(stack, H5E_WALK_UPWARD, note, ctx);
    if (!noted.why[0]) { /* what would have said it needs memory too */
        void *some = malloc(64 << 10);
        noted.nomem |= !some;
        free(some);
    }
    return 0;
}

static int broken; /* it did not start, which only lack of memory explains */

static void quiet(void)
{
    H5dont_atexit();
    broken = H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, on_failure, NULL) < 0;
    H5PLset_loading_state(0);
}

static void init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, quiet);
}

/* Before a file is opened: what was noted, and errno, tell of this file from here on. */
static void fresh(void)
{
    init();
    noted.why[0] = '\0';
    noted.sys = 0;
    noted.nomem = broken;
    errno = 0;
}

static int out_of_memory(const char *path, struct err *e)
{
    noted.nomem = 0;
    errno = 0;
    H5Eclear2(H5E_DEFAULT);
    return err_set(e, ERR_NOMEM, "'%s': out of memory", path);
}

/* An error of the library: the system's reason, or what it said deepest down, in parentheses. */
static int fail(const struct trace_h5_file *f, int code, struct err *e, const char *what, const char *name)
{
    char sys[80] = "";
    if (noted.nomem)
        return out_of_memory(f->path, e);
    if (noted.sys)
        snprintf(sys, sizeof sys, "%s", strerror(noted.sys));
    const char *why = *sys ? sys : noted.why;
    err_set(e, code, "'%s': %s%s%s%s%s%s", f->path, what, name ? " '" : "", name ? name : "", name ? "'" : "",
            *why ? ": " : "", why);
    if (e)
        e->sys = noted.sys;
    noted.why[0] = '\0';
    noted.sys = 0;
    H5Eclear2(H5E_DEFAULT);
    return code;
}

/* The file is not as it must be; or there was no memory to look. */
__attribute__((format(printf, 3, 4))) static int damage(const struct trace_h5_file *f, struct err *e, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    if (noted.nomem)
        return out_of_memory(f->path, e);
    va_start(ap, fmt);
    print_into_va(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_FORMAT, "'%s': %s", f->path, text);
}

static hid_t access_plist(void)
{
    hid_t p = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(p, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_fclose_degree(p, H5F_CLOSE_STRONG);
    H5Pset_file_locking(p, 0, 1);
    return p;
}

int trace_h5_open(struct trace_h5_file *f, const char *path, struct err *e)
{
    fresh();
    *f = (struct trace_h5_file){ .id = -1 };
    struct file raw;
    int r = file_open(&raw, path, e);
    if (r < 0)
        return r;
    unsigned char head[9] = { 0 };
    f->size = raw.size;
    r = raw.size < 64
            ? err_set(e, ERR_FORMAT, "'%s' is no trace: it has %llu bytes", path, (unsigned long long)raw.size)
            : file_pread(&raw, head, sizeof head, 0, e);
    file_close(&raw);
    if (r < 0)
        return r;
    if (memcmp(head, "\211HDF\r\n\032\n", 8))
        return err_set(e, ERR_FORMAT, "'%s' is no trace: it does not begin like an HDF5 file", path);
    if (head[8] != 3)
        return err_set(e, ERR_UNSUPPORTED, "'%s': HDF5 superblock version %u; traces have version 3", path, head[8]);
    f->path = strdup(path);
    if (!f->path)
        return err_set(e, ERR_NOMEM, "opening '%s'", path);
    hid_t p = access_plist();
    f->id = H5Fopen(path, H5F_ACC_RDONLY, p);
    H5Pclose(p);
    if (f->id < 0) {
        r = fail(f, ERR_FORMAT, e, "damaged or cut short", NULL);
        trace_h5_close(f, NULL);
    }
    return r;
}

int trace_h5_create(struct trace_h5_file *f, const char *path, const char *name, struct err *e)
{
    fresh();
    *f = (struct trace_h5_file){ .id = -1, .path = strdup(name) };
    if (!f->path)
        return err_set(e, ERR_NOMEM, "creating '%s'", name);
    hid_t a = access_plist(), c = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(c, 0);
    f->id = H5Fcreate(path, H5F_ACC_TRUNC, c, a);
    H5Pclose(c);
    H5Pclose(a);
    if (f->id >= 0)
        return 0;
    int r = fail(f, ERR_SYS, e, "cannot create", NULL);
    trace_h5_close(f, NULL);
    return r;
}

int trace_h5_close(struct trace_h5_file *f, struct err *e)
{
    int r = 0;
    if (f->path && f->id >= 0 && (H5Fclose(f->id) < 0 || f->lost)) {
        if (f->lost)
            noted.sys = f->lost_sys;
        r = fail(f, ERR_IO, e, "cannot be written", NULL);
    }
    if (f->path) /* else nothing was asked of the library, which allocates even for this */
        H5Eclear2(H5E_DEFAULT);
    free(f->path);
    *f = (struct trace_h5_file){ .id = -1 };
    return r;
}

int trace_h5_append(struct trace_h5_file *f, const char *path, const char *name, struct err *e)
{
    fresh();
    *f = (struct trace_h5_file){ .id = -1, .path = strdup(name) };
    if (!f->path)
        return err_set(e, ERR_NOMEM, "opening '%s'", name);
    hid_t a = access_plist();
    f->id = H5Fopen(path, H5F_ACC_RDWR, a);
    H5Pclose(a);
    hsize_t size = 0;
    if (f->id >= 0 && H5Fget_filesize(f->id, &size) >= 0) {
        f->size = size;
        return 0;
    }
    int r = fail(f, ERR_FORMAT, e, "damaged or cut short", NULL);
    trace_h5_close(f, NULL);
    return r;
}

int trace_h5_remove(struct trace_h5_file *f, const char *group, struct err *e)
{
    int r = trace_h5_exists(f, group, e);
    if (r <= 0)
        return r;
    return H5Ldelete(f->id, group, H5P_DEFAULT) < 0 ? fail(f, ERR_FORMAT, e, "cannot remove", group) : 0;
}

int trace_h5_group_create(struct trace_h5_file *f, const char *path, struct err *e)
{
    hid_t p = H5Pcreate(H5P_GROUP_CREATE);
    H5Pset_obj_track_times(p, 0);
    hid_t g = H5Gcreate2(f->id, path, H5P_DEFAULT, p, H5P_DEFAULT);
    H5Pclose(p);
    if (g < 0)
        return fail(f, ERR_IO, e, "cannot create group", path);
    H5Gclose(g);
    return 0;
}

int trace_h5_exists(struct trace_h5_file *f, const char *path, struct err *e)
{
    char part[96];
    size_t len = strlen(path);
    if (len >= sizeof part)
        return 0;
    for (size_t i = 1; i <= len; i++) {
        if (path[i] && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        htri_t there = i > 1 ? H5Lexists(f->id, part, H5P_DEFAULT) : 1;
        if (there < 0)
            return fail(f, ERR_FORMAT, e, "damaged near", part);
        if (!there)
            return 0;
        if (i == 1)
            continue;
        H5L_info_t info;
        if (H5Lget_info(f->id, part, &info, H5P_DEFAULT) < 0)
            return fail(f, ERR_FORMAT, e, "damaged near", part);
        if (info.type != H5L_TYPE_HARD)
            return damage(f, e, "'%s' is a soft or external link; traces hold their own data", part);
    }
    return 1;
}

/* ---- attributes ---- */

static int put(struct trace_h5_file *f, const char *group, const char *name, hid_t file_type, hid_t mem_type,
               const void *v, struct err *e)
{
    hid_t obj = H5Oopen(f->id, group, H5P_DEFAULT), sp = H5Screate(H5S_SCALAR), a = -1;
    int ok = obj >= 0 && (a = H5Acreate2(obj, name, file_type, sp, H5P_DEFAULT, H5P_DEFAULT)) >= 0 &&
             H5Awrite(a, mem_type, v) >= 0;
    if (a >= 0)
        H5Aclose(a);
    H5Sclose(sp);
    if (obj >= 0)
        H5Oclose(obj);
    return ok ? 0 : fail(f, ERR_IO, e, "cannot write attribute", name);
}

int trace_h5_put_u64(struct trace_h5_file *f, const char *group, const char *name, uint64_t v, struct err *e)
{
    return put(f, group, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &v, e);
}

int trace_h5_put_f64(struct trace_h5_file *f, const char *group, const char *name, double v, struct err *e)
{
    return put(f, group, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &v, e);
}

static hid_t text_type(size_t n)
{
    hid_t t = H5Tcopy(H5T_C_S1);
    H5Tset_size(t, n ? n : 1);
    H5Tset_strpad(t, H5T_STR_NULLPAD);
    H5Tset_cset(t, H5T_CSET_UTF8);
    return t;
}

int trace_h5_put_text(struct trace_h5_file *f, const char *group, const char *name, const char *v, struct err *e)
{
    hid_t t = text_type(strlen(v));
    int r = put(f, group, name, t, t, v, e);
    H5Tclose(t);
    return r;
}

int trace_h5_has_attr(struct trace_h5_file *f, const char *group, const char *name, struct err *e)
{
    int r = strcmp(group, "/") ? trace_h5_exists(f, group, e) : 1;
    if (r <= 0)
        return r;
    htri_t there = H5Aexists_by_name(f->id, group, name, H5P_DEFAULT);
    if (there < 0)
        return fail(f, ERR_FORMAT, e, "damaged near attribute", name);
    return there > 0;
}

/* Open an attribute that is one scalar; type_out is its file type. */
static int attr_open(struct trace_h5_file *f, const char *group, const char *name, hid_t *a, hid_t *type, struct err *e)
{
    *a = *type = -1;
    int r = strcmp(group, "/") ? trace_h5_exists(f, group, e) : 1;
    if (r < 0)
        return r;
    if (!r)
        return damage(f, e, "group '%s' is missing", group);
    htri_t there = H5Aexists_by_name(f->id, group, name, H5P_DEFAULT);
    if (there <= 0) {
        H5Eclear2(H5E_DEFAULT);
        return damage(f, e, "attribute '%s' of '%s' is %s", name, group,
                       there < 0 ? "damaged" : "missing");
    }
    *a = H5Aopen_by_name(f->id, group, name, H5P_DEFAULT, H5P_DEFAULT);
    if (*a < 0)
        return fail(f, ERR_FORMAT, e, "damaged attribute", name);
    hid_t sp = H5Aget_space(*a);
    int scalar = sp >= 0 && H5Sget_simple_extent_type(sp) == H5S_SCALAR;
    if (sp >= 0)
        H5Sclose(sp);
    *type = H5Aget_type(*a);
    if (!scalar || *type < 0) {
        H5Aclose(*a);
        if (*type >= 0)
            H5Tclose(*type);
        return damage(f, e, "attribute '%s' of '%s' is no scalar", name, group);
    }
    return 0;
}

static int get(struct trace_h5_file *f, const char *group, const char *name, hid_t want, hid_t mem, void *out,
               const char *what, struct err *e)
{
    hid_t a, t;
    int r = attr_open(f, group, name, &a, &t, e);
    if (r < 0)
        return r;
    if (H5Tequal(t, want) <= 0)
        r = damage(f, e, "attribute '%s' of '%s' is no %s", name, group, what);
    else if (H5Aread(a, mem, out) < 0)
        r = fail(f, ERR_FORMAT, e, "cannot read attribute", name);
    H5Tclose(t);
    H5Aclose(a);
    return r;
}

int trace_h5_get_u64(struct trace_h5_file *f, const char *group, const char *name, uint64_t min, uint64_t max,
                     uint64_t *out, struct err *e)
{
    uint64_t v = 0;
    int r = get(f, group, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &v, "u64", e);
    if (r < 0)
        return r;
    if (v < min || v > max)
        return damage(f, e, "attribute '%s' of '%s' is %llu; %llu to %llu is possible", name,
                       group, (unsigned long long)v, (unsigned long long)min, (unsigned long long)max);
    *out = v;
    return 0;
}

int trace_h5_get_f64(struct trace_h5_file *f, const char *group, const char *name, double *out, struct err *e)
{
    return get(f, group, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, out, "f64", e);
}

int trace_h5_get_text(struct trace_h5_file *f, const char *group, const char *name, char *out, size_t len,
                      struct err *e)
{
    hid_t a, t;
    int r = attr_open(f, group, name, &a, &t, e);
    if (r < 0)
        return r;
    size_t n = H5Tget_size(t);
    char buf[4096];
    if (H5Tget_class(t) != H5T_STRING || H5Tis_variable_str(t) != 0 || n > sizeof buf)
        r = damage(f, e, "attribute '%s' of '%s' is no fixed-length text of at most %zu bytes",
                    name, group, sizeof buf);
    else if (H5Aread(a, t, buf) < 0)
        r = fail(f, ERR_FORMAT, e, "cannot read attribute", name);
    H5Tclose(t);
    H5Aclose(a);
    if (r < 0)
        return r;
    while (n && !buf[n - 1])
        n--;
    if (n >= len || memchr(buf, 0, n))
        return damage(f, e, "attribute '%s' of '%s' has %zu bytes, more than the limit of %zu, or holds a NUL", name, group, n, len - 1);
    memcpy(out, buf, n);
    out[n] = '\0';
    return 0;
}

/* ---- datasets ---- */

/* A type of our own for each call. Memory holds the same little-endian elements as the file. */
static hid_t make_type(enum trace_type type, size_t text_bytes)
{
    hid_t t;
    switch (type) {
    case TRACE_U8:  return H5Tcopy(H5T_STD_U8LE);
    case TRACE_U16: return H5Tcopy(H5T_STD_U16LE);
    case TRACE_U32: return H5Tcopy(H5T_STD_U32LE);
    case TRACE_U64: return H5Tcopy(H5T_STD_U64LE);
    case TRACE_F32: return H5Tcopy(H5T_IEEE_F32LE);
    case TRACE_F16: /* IEEE 754 binary16, which h5py and numpy know as float16 */
        t = H5Tcopy(H5T_IEEE_F32LE);
        H5Tset_fields(t, 15, 10, 5, 0, 10);
        H5Tset_precision(t, 16);
        H5Tset_size(t, 2);
        H5Tset_ebias(t, 15);
        return t;
    default:
        return text_type(text_bytes);
    }
}

/* Whole rows up to the target; a row larger than the target is divided. */
static void chunk_shape(int n_dims, const uint64_t *dims, size_t elem, hsize_t *chunk)
{
    uint64_t left = CHUNK_TARGET / elem ? CHUNK_TARGET / elem : 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        chunk[i] = dims[i] < left ? dims[i] : left;
        left /= chunk[i];
        if (!left)
            left = 1;
    }
}

static hid_t set_access(void)
{
    hid_t p = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(p, 521, 2 << 20, 1.0);
    return p;
}

int trace_h5_set_create(struct trace_h5_file *f, struct trace_h5_set *s, const char *name, enum trace_type type,
                        size_t text_bytes, int n_dims, const uint64_t *dims, int gzip, struct err *e)
{
    *s = (struct trace_h5_set){ .id = -1, .type = make_type(type, text_bytes), .file = f, .n_dims = n_dims };
    snprintf(s->name, sizeof s->name, "%s", name);
    hsize_t d[3], chunk[3];
    size_t elem = H5Tget_size(s->type);
    chunk_shape(n_dims, dims, elem, chunk);
    for (int i = 0; i < n_dims; i++)
        d[i] = s->dims[i] = dims[i];
    hid_t sp = H5Screate_simple(n_dims, d, NULL), p = H5Pcreate(H5P_DATASET_CREATE), a = set_access();
    H5Pset_obj_track_times(p, 0);
    H5Pset_chunk(p, n_dims, chunk);
    if (gzip > 1 || (gzip && type != TRACE_F16)) { /* halves of vectors shrink by a sixth at most, and take longer than all the rest */
        if (elem > 1 && type != TRACE_TEXT)
            H5Pset_shuffle(p);
        H5Pset_deflate(p, (unsigned)gzip);
    }
    H5Pset_fletcher32(p);
    s->id = H5Dcreate2(f->id, name, s->type, sp, H5P_DEFAULT, p, a);
    H5Pclose(a);
    H5Pclose(p);
    H5Sclose(sp);
    if (s->id >= 0)
        return 0;
    trace_h5_set_close(s);
    return fail(f, ERR_IO, e, "cannot create dataset", name);
}

/* Storage: chunked, of bounded chunks, with built-in filters only. */
static int check_storage(const struct trace_h5_set *s, struct err *e)
{
    hid_t p = H5Dget_create_plist(s->id);
    hsize_t chunk[3];
    uint64_t bytes = H5Tget_size(s->type);
    int ok = p >= 0 && H5Pget_layout(p) == H5D_CHUNKED && H5Pget_chunk(p, 3, chunk) == s->n_dims;
    for (int i = 0; ok && i < s->n_dims; i++)
        ok = ck_mul_u64(bytes, chunk[i], &bytes);
    ok = ok && bytes <= CHUNK_MAX;
    int n = ok ? H5Pget_nfilters(p) : -1;
    for (int i = 0; ok && i < n; i++) {
        unsigned flags, config;
        size_t n_values = 0;
        H5Z_filter_t id = H5Pget_filter2(p, (unsigned)i, &flags, &n_values, NULL, 0, NULL, &config);
        ok = id == H5Z_FILTER_SHUFFLE || id == H5Z_FILTER_DEFLATE || id == H5Z_FILTER_FLETCHER32;
    }
    if (p >= 0)
        H5Pclose(p);
    H5Eclear2(H5E_DEFAULT);
    return ok && n >= 0 ? 0
                        : damage(s->file, e, "dataset '%s' is not stored in chunks of at most %d bytes with shuffle, "
                                  "deflate and fletcher32 alone", s->name, CHUNK_MAX);
}

/* What the shape says must be plausible for the file's size, or a few bytes could claim any memory. */
static int check_shape(const struct trace_h5_set *s, struct err *e)
{
    hid_t sp = H5Dget_space(s->id);
    hsize_t d[3] = { 0 };
    int n = sp >= 0 ? H5Sget_simple_extent_ndims(sp) : -1;
    int ok = n == s->n_dims && H5Sget_simple_extent_dims(sp, d, NULL) == n;
    if (sp >= 0)
        H5Sclose(sp);
    H5Eclear2(H5E_DEFAULT);
    if (!ok)
        return damage(s->file, e, "dataset '%s' has %d dimensions; %d are needed", s->name, n,
                       s->n_dims);
    uint64_t bytes = H5Tget_size(s->type);
    for (int i = 0; i < n; i++) {
        if (d[i] != s->dims[i])
            return damage(s->file, e, "dataset '%s' has %llu in dimension %d; the attributes say %llu", s->name,
                          (unsigned long long)d[i], i, (unsigned long long)s->dims[i]);
        if (!ck_mul_u64(bytes, d[i], &bytes))
            bytes = UINT64_MAX;
    }
    if (bytes / MAX_INFLATION > s->file->size)
        return damage(s->file, e, "dataset '%s' claims %llu bytes in a file of %llu", s->name,
                       (unsigned long long)bytes, (unsigned long long)s->file->size);
    return 0;
}

int trace_h5_set_open(struct trace_h5_file *f, struct trace_h5_set *s, const char *name, enum trace_type type,
                      size_t *text_bytes, int n_dims, const uint64_t *dims, struct err *e)
{
    *s = (struct trace_h5_set){ .id = -1, .type = -1, .file = f, .n_dims = n_dims };
    snprintf(s->name, sizeof s->name, "%s", name);
    for (int i = 0; i < n_dims; i++)
        s->dims[i] = dims[i];
    int r = trace_h5_exists(f, name, e);
    if (r <= 0)
        return r < 0 ? r : damage(f, e, "dataset '%s' is missing", name);
    H5O_info_t info;
    if (H5Oget_info_by_name2(f->id, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
        return fail(f, ERR_FORMAT, e, "damaged dataset", name);
    if (info.type != H5O_TYPE_DATASET)
        return damage(f, e, "'%s' is no dataset", name);
    hid_t a = set_access();
    s->id = H5Dopen2(f->id, name, a);
    H5Pclose(a);
    if (s->id < 0)
        return fail(f, ERR_FORMAT, e, "damaged dataset", name);
    hid_t have = H5Dget_type(s->id);
    size_t text = 0;
    int same = 0;
    if (have >= 0 && type == TRACE_TEXT) {
        text = H5Tget_size(have);
        same = H5Tget_class(have) == H5T_STRING && H5Tis_variable_str(have) == 0 && text <= 4096;
    }
    s->type = make_type(type, text);
    if (have >= 0 && type != TRACE_TEXT)
        same = H5Tequal(have, s->type) > 0;
    if (have >= 0)
        H5Tclose(have);
    if (!same)
        r = damage(f, e, "dataset '%s' has another element type than traces have there", name);
    else if ((r = check_shape(s, e)) == 0)
        r = check_storage(s, e);
    if (r < 0)
        trace_h5_set_close(s);
    else if (text_bytes)
        *text_bytes = text;
    return r;
}

void trace_h5_set_close(struct trace_h5_set *s)
{
    if (s->id >= 0 && s->file && H5Dclose(s->id) < 0) { /* chunks are written when the dataset is closed */
        s->file->lost = 1;
        s->file->lost_sys = noted.sys;
    }
    if (s->type >= 0 && s->file)
        H5Tclose(s->type);
    s->id = s->type = -1;
}

static int transfer(struct trace_h5_set *s, const uint64_t *first, const uint64_t *count, void *in, const void *out,
                    struct err *e)
{
    hsize_t f[3], c[3];
    for (int i = 0; i < s->n_dims; i++) {
        if (!ck_range(first[i], count[i], s->dims[i]))
            return err_set(e, ERR_LIMIT, "'%s': dataset '%s' holds %llu in dimension %d; %llu from %llu were asked for",
                           s->file->path, s->name, (unsigned long long)s->dims[i], i, (unsigned long long)count[i],
                           (unsigned long long)first[i]);
        if (!count[i])
            return 0;
        f[i] = first[i], c[i] = count[i];
    }
    int r = in ? file_go_on(e) : 0;
    if (r < 0)
        return r;
    hid_t file = H5Dget_space(s->id), mem = H5Screate_simple(s->n_dims, c, NULL);
    int ok = file >= 0 && mem >= 0 && H5Sselect_hyperslab(file, H5S_SELECT_SET, f, NULL, c, NULL) >= 0 &&
             (in ? H5Dread(s->id, s->type, mem, file, H5P_DEFAULT, in)
                 : H5Dwrite(s->id, s->type, mem, file, H5P_DEFAULT, out)) >= 0;
    if (file >= 0)
        H5Sclose(file);
    if (mem >= 0)
        H5Sclose(mem);
    if (ok)
        return 0;
    return in ? fail(s->file, ERR_FORMAT, e, "cannot read dataset", s->name)
              : fail(s->file, ERR_IO, e, "cannot write dataset", s->name);
}

int trace_h5_set_read(struct trace_h5_set *s, const uint64_t *first, const uint64_t *count, void *buf, struct err *e)
{
    return transfer(s, first, count, buf, NULL, e);
}

int trace_h5_set_write(struct trace_h5_set *s, const uint64_t *first, const uint64_t *count, const void *buf,
                       struct err *e)
{
    return transfer(s, first, count, NULL, buf, e);
}
