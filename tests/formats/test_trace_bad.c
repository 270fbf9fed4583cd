/* Damaged and hostile traces: cut short anywhere, bits flipped anywhere, and files that are whole HDF5 but lie.
 * A reader refuses them with a message that names the file, or what it reads is what was written. */
#include "common/offline/trace/trace.h"
#include "common/offline/trace/trace_write.h"

#include "common/base/file.h"
#include "common/offline/trace/trace_h5.h"
#include "tests/test.h"
#include "tests/trace_sample.h"

#include <math.h>
#include <hdf5.h>
#include <stdio.h>
#include <unistd.h>

static char dir[256], good[300], bad[300];
static struct err e;
static struct trace_sample s;
static char *bytes;
static size_t n_bytes;
static struct hash128 content;

static int save(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    size_t k = f ? fwrite(data, 1, n, f) : 0;
    return f && !fclose(f) && k == n ? 0 : -1;
}

/* Read all there is. 0: intact and with the content that was written. */
static int read_all(const char *path)
{
    struct trace *t = NULL;
    int r = trace_open(path, &t, &e);
    if (!r && (r = trace_verify(t, &e)) == 0 && !hash_equal(trace_info(t)->content_hash, content))
        r = err_set(&e, ERR_FORMAT, "'%s': other content", path);
    float *at = NULL;
    if (!r)
        r = trace_thresholds(t, &at, &e);
    free(at);
    for (int l = 0; !r && l < trace_info(t)->h.n_layers; l++) {
        uint64_t n = trace_info(t)->n_samples;
        uint16_t *x = malloc((size_t)n * SAMPLE_D * 2), *route = malloc((size_t)trace_info(t)->n_tokens * 4);
        r = trace_samples(t, l, 0, n, x, NULL, NULL, NULL, &e);
        if (!r)
            r = trace_routing(t, l, 0, trace_info(t)->n_tokens, route, &e);
        free(x), free(route);
    }
    trace_close(t);
    return r;
}

/* Refused for the right reason, with the file's name. */
static int refused(int r)
{
    return (r == ERR_FORMAT || r == ERR_UNSUPPORTED || r == ERR_LIMIT || r == ERR_INPUT) && strstr(e.msg, bad) != NULL;
}

static void truncations(void)
{
    int fine = 1, tried = 0;
    size_t step = n_bytes / 150;
    for (size_t n = 0; n < n_bytes && fine; n += n < 300 ? 7 : step, tried++) {
        if (save(bad, bytes, n) < 0)
            fine = 0;
        int r = read_all(bad);
        if (!refused(r)) {
            printf("# cut at %zu of %zu: %d %s\n", n, n_bytes, r, e.msg);
            fine = 0;
        }
    }
    printf("# %d truncations\n", tried);
    CHECK(fine && tried > 100);
}

static void flips(void)
{
    int fine = 1, seen = 0, harmless = 0, tried = 0;
    for (size_t at = 0; at < n_bytes && fine;
         at += at < 2500 ? 3 : 1 + sample_mix(9, at, 0) % (n_bytes / 400), tried++) {
        char was = bytes[at];
        bytes[at] = (char)(was ^ (1 << sample_mix(11, at, 1) % 8));
        if (save(bad, bytes, n_bytes) < 0)
            fine = 0;
        bytes[at] = was;
        int r = read_all(bad);
        harmless += !r; /* unused space, or a value outside of the content hash */
        seen += r < 0;
        if (r && !refused(r)) {
            printf("# bit flipped at %zu: %d %s\n", at, r, e.msg);
            fine = 0;
        }
    }
    printf("# %d flips: %d noticed, %d without consequence\n", tried, seen, harmless);
    CHECK(fine && seen > tried / 2);
}

/* ---- whole files that lie ---- */

static hid_t open_again(void)
{
    if (save(bad, bytes, n_bytes) < 0)
        return -1;
    return H5Fopen(bad, H5F_ACC_RDWR, H5P_DEFAULT);
}

static void lie(const char *what, const char *want)
{
    int r = read_all(bad);
    CHECK_MSG(refused(r) && strstr(e.msg, want), "%s: %d %s", what, r, e.msg);
    printf("# %s: %s\n", what, e.msg);
}

static void put_u64(hid_t f, const char *group, const char *name, uint64_t v)
{
    hid_t sp = H5Screate(H5S_SCALAR);
    H5Adelete_by_name(f, group, name, H5P_DEFAULT);
    hid_t a = H5Acreate_by_name(f, group, name, H5T_STD_U64LE, sp, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, H5T_NATIVE_UINT64, &v);
    H5Aclose(a), H5Sclose(sp);
}

static void set_u64(const char *group, const char *name, uint64_t v)
{
    hid_t f = open_again();
    put_u64(f, group, name, v);
    H5Fclose(f);
}

static void set_text(const char *group, const char *name, const char *text)
{
    hid_t f = open_again(), type = H5Tcopy(H5T_C_S1), sp = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(text));
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    if (H5Aexists_by_name(f, group, name, H5P_DEFAULT) > 0)
        H5Adelete_by_name(f, group, name, H5P_DEFAULT);
    hid_t a = H5Acreate_by_name(f, group, name, type, sp, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, text);
    H5Aclose(a), H5Sclose(sp), H5Tclose(type), H5Fclose(f);
}

/* A dataset of the caller's making in the place of the true one. */
static void replace(const char *name, hid_t type, int n_dims, const hsize_t *dims, const hsize_t *chunk, int filter)
{
    hid_t f = open_again(), p = H5Pcreate(H5P_DATASET_CREATE), sp = H5Screate_simple(n_dims, dims, NULL);
    H5Ldelete(f, name, H5P_DEFAULT);
    if (chunk)
        H5Pset_chunk(p, n_dims, chunk);
    if (filter == 1)
        H5Pset_nbit(p);
    hid_t d = H5Dcreate2(f, name, type, sp, H5P_DEFAULT, p, H5P_DEFAULT);
    H5Dclose(d), H5Sclose(sp), H5Pclose(p), H5Fclose(f);
}

static void liars(void)
{
    const hsize_t counts[2] = { 3, SAMPLE_FF }, chunk[2] = { 1, SAMPLE_FF }, other[2] = { 3, SAMPLE_FF + 1 };
    uint64_t T = s.info.n_tokens;
    set_u64("/", "revision", 9);
    lie("revision", "revision 9");
    set_u64("/", "feature_incompat", 1ull << 63);
    lie("a feature that is not known", "needs features that this build lacks: bits 8000000000000000");
    set_text("/", "format", "thermocline-trace");
    lie("a trace of before", "made by a version before 0.2.0; make it again with 'thermo-profile trace'");
    set_text("/", "format", "thermo-plan");
    lie("another format", "is an HDF5 file, but no trace");
    set_u64("/model", "n_layers", 1u << 20);
    lie("layers beyond the limit", "n_layers");
    set_u64("/model", "n_layers", 3);
    lie("a layer that is not there", "layer 2");
    set_u64("/model", "n_ff", 1 << 20);
    lie("neurons that the tensors do not have", "ffn_gate");
    set_u64("/", "n_tokens", T + 1);
    lie("one token more", "exceeds");
    set_u64("/", "window_sequences", 5);
    lie("a window that ends within a sequence", "window");
    set_u64("/", "n_samples", 3);
    lie("samples missing", "corpus in size");
    set_u64("/tensors", "n", 7);
    lie("tensors missing", "/tensors/name");
    hid_t f = open_again();
    H5Ldelete(f, "/layers/0001/counts", H5P_DEFAULT);
    H5Fclose(f);
    lie("no counts", "/layers/0001/counts");
    f = open_again();
    H5Ldelete(f, "/layers/0000/maps", H5P_DEFAULT);
    H5Lcreate_soft("/layers/0001/maps", f, "/layers/0000/maps", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(f);
    lie("a soft link", "/layers/0000/maps");
    f = open_again();
    H5Ldelete(f, "/layers/0001", H5P_DEFAULT);
    H5Lcreate_external("/etc/passwd", "/layers", f, "/layers/0001", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(f);
    lie("an external link", "/layers/0001");
    replace("/layers/0000/counts", H5T_STD_U64LE, 2, other, chunk, 0);
    lie("another width", "/layers/0000/counts");
    replace("/layers/0000/counts", H5T_STD_U32LE, 2, counts, chunk, 0);
    lie("another type", "element type");
    replace("/layers/0000/counts", H5T_STD_U64LE, 2, counts, NULL, 0);
    lie("contiguous storage", "chunks");
    replace("/layers/0000/counts", H5T_STD_U64LE, 2, counts, chunk, 1);
    lie("another filter", "fletcher32");
    replace("/layers/0000/counts", H5T_STD_U64LE, 1, counts, chunk, 0);
    lie("another rank", "dimensions");
    /* Sizes that no file of this length holds: refused before memory is taken. */
    const hsize_t huge[1] = { 1ull << 40 }, huge_chunk[1] = { 1 << 20 };
    replace("/corpus/tokens", H5T_STD_U32LE, 1, huge, huge_chunk, 0);
    f = H5Fopen(bad, H5F_ACC_RDWR, H5P_DEFAULT);
    put_u64(f, "/", "n_tokens", 1ull << 40);
    put_u64(f, "/corpus", "n_tokens", 1ull << 40);
    H5Fclose(f);
    lie("a terabyte of tokens", "claims");
    /* A count changed with a valid checksum: only the content hash knows. */
    f = open_again();
    hid_t d = H5Dopen2(f, "/layers/0001/counts", H5P_DEFAULT);
    uint64_t all[3 * SAMPLE_FF] = { 0 };
    H5Dwrite(d, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
    H5Dclose(d), H5Fclose(f);
    lie("other counts", "/layers/0001");
    uint16_t route = 3;
    f = open_again();
    d = H5Dopen2(f, "/layers/0001/routing", H5P_DEFAULT);
    hid_t sp = H5Dget_space(d), one = H5Screate(H5S_SCALAR);
    const hsize_t at[2] = { 4, 1 }, n[2] = { 1, 1 };
    H5Sselect_hyperslab(sp, H5S_SELECT_SET, at, NULL, n, NULL);
    H5Dwrite(d, H5T_NATIVE_UINT16, one, sp, H5P_DEFAULT, &route);
    H5Sclose(sp), H5Sclose(one), H5Dclose(d), H5Fclose(f);
    struct trace *t = NULL;
    uint16_t routes[20];
    CHECK(!trace_open(bad, &t, &e) && trace_routing(t, 1, 0, 10, routes, &e) == ERR_FORMAT &&
          strstr(e.msg, "expert 3 of 3"));
    trace_close(t);
}

/* One of a layer's thresholds, with valid checksums. */
static void set_threshold(float v)
{
    hid_t f = open_again(), d = H5Dopen2(f, "/layers/0001/thresholds", H5P_DEFAULT);
    float all[SAMPLE_FF];
    H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
    all[7] = v;
    H5Dwrite(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
    H5Dclose(d), H5Fclose(f);
    struct trace *t = NULL;
    float *at = NULL;
    CHECK(!trace_open(bad, &t, &e) && trace_thresholds(t, &at, &e) == ERR_FORMAT && !at);
    CHECK_MSG(strstr(e.msg, "'/layers/0001/thresholds' has") && strstr(e.msg, "for neuron 7") && strstr(e.msg, bad), "%s", e.msg);
    trace_close(t);
}

static void thresholds(void)
{
    set_u64("/model", "thresholds", 1); /* of the trace with experts */
    lie("thresholds with experts", "thresholds with experts");
    free(bytes);
    bytes = NULL;
    sample_init(&s, 0, 0, 1);
    sample_add_thresholds(&s);
    CHECK(!sample_write(&s, good, 4, &content, &e) && !file_slurp(good, 64 << 20, &bytes, &n_bytes, &e));
    if (!bytes)
        return;
    CHECK_MSG(!read_all(good), "%s", e.msg);
    set_threshold(NAN);
    set_threshold(-1);
    set_threshold(INFINITY);
    const hsize_t longer[1] = { SAMPLE_FF + 1 }, chunk[1] = { SAMPLE_FF };
    replace("/layers/0000/thresholds", H5T_IEEE_F32LE, 1, longer, chunk, 0);
    lie("a threshold too many", "/layers/0000/thresholds");
    replace("/layers/0000/thresholds", H5T_IEEE_F64LE, 1, chunk, chunk, 0);
    lie("thresholds of another type", "element type");
    hid_t f = open_again();
    H5Ldelete(f, "/layers/0001/thresholds", H5P_DEFAULT);
    H5Fclose(f);
    lie("no thresholds", "/layers/0001/thresholds");
    set_u64("/model", "n_experts", 2);
    lie("thresholds with experts", "contradict");
    flips();
}

/* Layers of several widths, the second of which counts neurons that it lacks. */
static void widths(void)
{
    enum { LESS = SAMPLE_FF - 8 };
    uint64_t counts[SAMPLE_FF];
    struct trace *t = NULL;
    char text[64];
    free(bytes);
    bytes = NULL;
    sample_init(&s, 0, 0, 1);
    for (int l = 0; l < SAMPLE_LAYERS; l++)
        s.info.h.widths[l] = l == 1 ? LESS : SAMPLE_FF;
    for (int i = 0; i < s.info.n_tensors; i++) {
        struct trace_tensor *x = &s.tensors[i];
        if (x->layer != 1 || x->n_dims != 2)
            continue;
        x->dims[x->role != MODEL_FFN_DOWN] = LESS;
        x->bytes = x->dims[0] * x->dims[1] * 4;
    }
    CHECK(!sample_write(&s, good, 4, &content, &e) && !file_slurp(good, 64 << 20, &bytes, &n_bytes, &e));
    if (!bytes)
        return;
    CHECK_MSG(!trace_open(good, &t, &e), "%s", e.msg);
    if (t) {
        CHECK(!memcmp(trace_info(t)->h.widths, s.info.h.widths, sizeof s.info.h.widths));
        CHECK(!trace_counts(t, 0, 0, counts, NULL, &e) && trace_counts(t, 1, 0, counts, NULL, &e) == ERR_FORMAT);
        CHECK_MSG(strstr(e.msg, "'/layers/0001/counts' counts neuron"), "%s", e.msg);
    }
    trace_close(t);
    const char *const lies[] = { " ", "1", "one two", "-1 2", "32 0", "32 2000000" };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        set_text("/model", "widths", lies[i]);
        lie(lies[i], "widths");
    }
    snprintf(text, sizeof text, "%d %d", SAMPLE_FF, SAMPLE_FF);
    set_text("/model", "widths", text);
    lie("widths that do not differ", "widths, n_ff");
    snprintf(text, sizeof text, "%d %d", SAMPLE_FF, LESS - 1);
    set_text("/model", "widths", text);
    lie("widths that the tensors do not have", "ffn_gate of layer 1");
    snprintf(text, sizeof text, "%d %d", SAMPLE_FF, LESS + 1000);
    set_text("/model", "widths", text);
    lie("a width above n_ff", "widths, n_ff");
    snprintf(text, sizeof text, "%d %d ", SAMPLE_FF, LESS);
    set_text("/model", "widths", text);
    lie("more behind the last", "widths");
}

int main(void)
{
    test_path(dir, sizeof dir, "thermo-trace-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(good, sizeof good, "%s/good.h5", dir);
    snprintf(bad, sizeof bad, "%s/bad.h5", dir);
    sample_init(&s, 3, 0, 1);
    CHECK(!sample_write(&s, good, 4, &content, &e) && !file_slurp(good, 64 << 20, &bytes, &n_bytes, &e));
    if (bytes) {
        CHECK_MSG(!read_all(good), "%s", e.msg);
        truncations();
        flips();
        liars();
        thresholds();
        widths();
    }
    free(bytes);
    unlink(good), unlink(bad), rmdir(dir);
    return test_done();
}
