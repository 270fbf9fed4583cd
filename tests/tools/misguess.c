/* misguess TRACE.h5: the experts foreseen in each layer become others, so many further on, by half of what there are. No hash of the trace
 * has them in it. */
#include "common/offline/trace/trace.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

static int shift_layer(hid_t f, int layer, const struct trace_info *i)
{
    char name[64];
    snprintf(name, sizeof name, "/layers/%04d/foreseen", layer);
    size_t n = (size_t)i->n_tokens * (size_t)i->h.n_experts_used;
    uint16_t *all = malloc(n * sizeof *all + 1);
    hid_t d = H5Dopen2(f, name, H5P_DEFAULT);
    int bad = !all || d < 0 || H5Dread(d, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) < 0;
    for (size_t k = 0; k < n && !bad; k++)
        all[k] = (uint16_t)((all[k] + i->h.n_experts / 2) % i->h.n_experts);
    bad = bad || H5Dwrite(d, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) < 0;
    if (d >= 0)
        H5Dclose(d);
    free(all);
    return bad;
}

int main(int argc, char **argv)
{
    struct err e;
    struct trace *t;
    if (argc != 2) {
        fprintf(stderr, "usage: misguess TRACE.h5\n");
        return 2;
    }
    if (trace_open(argv[1], &t, &e) < 0) {
        fprintf(stderr, "misguess: %s\n", e.msg);
        return 1;
    }
    const struct trace_info info = *trace_info(t);
    trace_close(t);
    hid_t f = info.foreseen ? H5Fopen(argv[1], H5F_ACC_RDWR, H5P_DEFAULT) : -1;
    int bad = f < 0;
    for (int l = 0; l < info.h.n_layers && !bad; l++)
        bad = shift_layer(f, l, &info);
    if (f >= 0)
        bad |= H5Fclose(f) < 0;
    if (bad)
        fprintf(stderr, "misguess: '%s' has no experts foreseen that can be changed\n", argv[1]);
    return bad;
}
