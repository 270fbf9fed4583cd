#ifndef PACKER_BUILD_IMPL_H
#define PACKER_BUILD_IMPL_H

/* What build.c and build_resume.c share. */
#include "common/base/progress.h"
#include "packer/build.h"
#include "packer/corrected.h"
#include "packer/write.h"

struct work {
    const struct build *b;
    struct writer *w;
    struct build_report *report;
    struct progress progress;
    uint8_t *piece;                     /* [PIECE] */
    uint8_t *matrix[LAYOUT_ROLES];      /* one FFN's source matrices */
    uint64_t *checks;                   /* [layer][block][part][cluster] */
    uint32_t *unit_checks;              /* [layer][block][part][unit] */
    uint8_t *made;                      /* one FFN's gates, error-corrected; NULL: no layer's are */
    struct corrected *corrected;
    uint64_t identity;
    struct neurons *neurons;
    uint64_t ffns, saved_ffns;          /* where the source is consumed: written, and in the journal */
    uint32_t saved_entries;
    int loaded;                         /* an interrupted run is gone on with */
};

/* Cluster checks before the n-th FFN. */
uint64_t build_checks_before(const struct work *k, uint64_t n);

/* Of a build that consumes its source: what is written is on disk, and a record says so; then the source's share is freed. */
int build_save(struct work *k, struct err *e);

/* Opens the writer, where an interrupted run stopped or anew. */
int build_load(struct work *k, const struct write_facts *f, uint32_t max_entries, struct err *e);

#endif
