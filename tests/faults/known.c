/* What libraries do by themselves when an allocation of their own fails. Only faults count that meet an allocation which the
 * library asked for (its frames come before any of ours), and only these ends: a crash in the library or in libc below it, its
 * exit, or a failure whose reason it does not tell; or another output, where its own command finds that right. */
#include "tests/faults/scene.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const struct {
    const char *library, *reason;
} known[] = {
    { "libhdf5", "HDF5 1.10 uses some of its allocations unchecked, calls exit where it finds no memory for an API context, and "
                 "reports others as damage without a word of memory; where it cannot compress a chunk it stores that as it is" },
    { "libz3", "Z3 ends the process where its C++ side finds no memory, or gives up without saying why: the plan is then the best that "
               "was found, passes its check and states its gap" },
    { "libopenblas", "OpenBLAS ends the process where it finds no memory for its buffers" },
};

static const char *library_of(const struct shim_shared *s)
{
    for (int i = 0; i < s->n_frames && i < SHIM_FRAMES; i++) {
        if (strncmp(s->frames[i].module, "thermo-", 7) == 0 || strncmp(s->frames[i].module, "gguf-", 5) == 0)
            return NULL;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (strncmp(s->frames[i].module, known[k].library, strlen(known[k].library)) == 0)
                return known[k].library;
    }
    return NULL;
}

bool scene_known(const struct shim_shared *s, const struct trial *t)
{
    const char *library = library_of(s), *crash = strstr(t->what, "crashed in ");
    if (!library)
        return false;
    if (WIFEXITED(t->status))
        return WEXITSTATUS(t->status) >= 101 || WEXITSTATUS(t->status) == 3 || WEXITSTATUS(t->status) == 0;
    crash = crash ? crash + strlen("crashed in ") : "";
    return strncmp(crash, library, strlen(library)) == 0 || strncmp(crash, "libc.so", 7) == 0;
}

void scene_list_known(void)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        printf("# known of %s: %s\n", known[i].library, known[i].reason);
}
