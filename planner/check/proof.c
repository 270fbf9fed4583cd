#include "planner/check/proof.h"

#include "common/base/file.h"
#include "common/base/version.h"
#include "planner/solve/refute.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int proof_begin(struct proof *p, struct request *q, struct err *e)
{
    if (!p->path)
        return 0;
    p->f = open_memstream(&p->text, &p->len);
    p->c = p->f ? certificate_new(p->f) : NULL;
    if (!p->c)
        return err_set(e, ERR_NOMEM, "out of memory for a certificate");
    certificate_say(p->c, "thermo-plan " THERMO_VERSION ": no plan within these choices is faster than the plan, by more than its gap.\n"
                          "Every (check-sat) answers unsat: z3 FILE | sort | uniq -c. How to read it: docs/certificates.md");
    q->certificate = p->c;
    q->prove = 1;
    return 0;
}

#define CLAIMS " claims to refute"

/* The last lines: how many claims there are, what names the plan, and its gaps. */
static char *identity(const struct plan *plan, int checks)
{
    char *text = NULL, hash[HASH_TEXT];
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    const struct {
        const char *name;
        struct hash128 hash;
    } of[] = { { "model", plan->model_hash }, { "traces", plan->trace_hash }, { "hardware", plan->hardware_hash },
               { "layout", plan->layout_hash } };
    fprintf(f, "; %d" CLAIMS "\n; plan:", checks);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        hash_text(of[i].hash, hash);
        fprintf(f, " %s %s", of[i].name, hash);
    }
    fputc('\n', f);
    for (int i = 0; i < plan->n_limits; i++) {
        const struct plan_limit *l = &plan->limits[i];
        fprintf(f, "; plan: memory %" PRIu64 " context %d speed %.6g gap %.6g\n", l->memory_bytes, l->context,
                l->batches[0].predicted.tokens_per_s, l->gap);
    }
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* The whole text. */
static int finish(struct proof *p, const struct plan *plan, struct err *e)
{
    p->checks = certificate_checks(p->c);
    char *name = identity(plan, p->checks);
    if (!name)
        return err_set(e, ERR_NOMEM, "out of memory for a certificate");
    fputs(name, p->f);
    free(name);
    int r = certificate_done(p->c, e);
    p->c = NULL;
    return r;
}

int proof_write(struct proof *p, const struct plan *plan, struct err *e)
{
    int r = p->path ? finish(p, plan, e) : 0;
    return r < 0 || !p->path ? r : file_replace(p->path, p->text, p->len, e);
}

int proof_compare(struct proof *p, const struct plan *plan, struct err *e)
{
    char *text;
    size_t len, same = 0;
    int line = 1, r = p->path ? finish(p, plan, e) : 0;
    if (r < 0 || !p->path || (r = file_slurp(p->path, PROOF_MAX_BYTES, &text, &len, e)) < 0)
        return r;
    for (; same < len && same < p->len && text[same] == p->text[same]; same++)
        line += text[same] == '\n';
    free(text);
    return same == len && same == p->len ? 0 : err_set(e, ERR_MISMATCH, "%s: line %d is not what these inputs give", p->path, line);
}

void proof_done(struct proof *p)
{
    struct err ignored;
    certificate_done(p->c, &ignored);
    if (p->f)
        fclose(p->f);
    free(p->text);
    p->c = NULL;
    p->f = NULL;
    p->text = NULL;
}

/* The objective of a limit's plan, ticks: sum of w_b T_b over its batch sizes, w_b = weight x largest / b and T_b the time of b tokens.
 * Plans keep six digits of a speed. */
static double objective_of(const struct plan *p, const struct plan_limit *l)
{
    double sum = 0;
    for (int i = 0; i < l->n_batches; i++) {
        int weight = p->request.weight[i] > 0 ? p->request.weight[i] : 1;
        sum += (double)weight * l->max_batch * 1e9 * SOLVE_TICKS_PER_NS / l->batches[i].predicted.tokens_per_s;
    }
    return sum;
}

/* Do the file's claims mean the gaps that the plan states? */
static int compare_gaps(const struct plan *plan, const char *path, const char *text, struct err *e)
{
    for (int i = 0; i < plan->n_limits; i++) {
        const struct plan_limit *l = &plan->limits[i];
        int64_t claim = certificate_claimed(text, l->memory_bytes, l->context);
        double gap = 1 - (double)claim / objective_of(plan, l);
        if (claim == 0 || gap > l->gap + 1e-5)
            return err_set(e, ERR_MISMATCH, "%s: for %" PRIu64 " bytes its claim is a gap of %.3g %%, the plan's is %.3g %%", path,
                           l->memory_bytes, claim ? 100 * gap : 100.0, 100 * l->gap);
    }
    return 0;
}

/* Are the last lines this plan's? *claims: as many as they name. */
static int compare_identity(const struct plan *plan, const char *path, const char *text, size_t len, int *claims, struct err *e)
{
    const char *at = text + len;
    while (at > text && !(*at == ';' && at[-1] == '\n' && strstr(at, CLAIMS)))
        at--;
    *claims = atoi(*at ? at + 1 : at);
    char *name = identity(plan, *claims);
    if (!name)
        return err_set(e, ERR_NOMEM, "out of memory for a certificate");
    int same = !strcmp(at, name);
    free(name);
    return same ? 0 : err_set(e, ERR_MISMATCH, "%s: its last lines do not name this plan, with these speeds and gaps", path);
}

int proof_check(const struct plan *plan, const char *path, int *checks, struct err *e)
{
    char *text;
    size_t len;
    int unsat, claims, r = file_slurp(path, PROOF_MAX_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    if ((r = compare_identity(plan, path, text, len, &claims, e)) == 0)
        r = compare_gaps(plan, path, text, e);
    if (r == 0 && (r = refute_text(text, checks, &unsat, e)) == 0 && (unsat < claims || claims == 0 || *checks != claims))
        r = err_set(e, ERR_MISMATCH, "%s: Z3 refutes %d of its %d claims: the gap is not proven", path, unsat, claims);
    free(text);
    return r;
}
