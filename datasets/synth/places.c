/* The text that a head goes round, for a replayed route or by itself: one token for every place, and the promise that the head
 * tells places apart. The first place has BOS, which nothing gives; from the last the text goes on with the second. A draft's head
 * leaves the text after some places, for a place half of the text away, so that a set share of its guesses is right. */
#include "datasets/synth/synth.h"

#include <inttypes.h>
#include <stdlib.h>

enum { BLOCKS = SYNTH_PLACE / SYNTH_BLOCK };

uint32_t synth_place_code(const struct synth_design *d, int block, uint32_t token)
{
    return (uint32_t)synth_mix(synth_mix(synth_mix(d->ask.seed, 0x706c616365u), (uint64_t)block), token);
}

/* Places from 1 on in random order: the first of them agree. */
static int agrees(const struct synth_design *d, double agree, int place)
{
    uint32_t round = (uint32_t)d->n_places - 1, rank = synth_permute(synth_mix(d->ask.seed, 0x6167726565u), (uint32_t)place - 1, round);
    return d->ask.route || rank + 0.5 < agree * round;
}

/* Places 1 to n - 1 are a circle; place 0 is followed as the last is. */
int synth_places_before(const struct synth_design *d, double agree, int place, int before[SYNTH_BEFORE])
{
    int round = d->n_places - 1, n = 0, right, wrong;
    if (place < 1)
        return 0;
    right = place == 1 ? round : place - 1;
    wrong = (place - 1 - round / 2 + round) % round;
    wrong = wrong == 0 ? round : wrong;
    for (int k = 0; k < 2; k++) {
        int p = k ? wrong : right;
        if (agrees(d, agree, p) == k)
            continue;
        before[n++] = p;
        if (p == round)
            before[n++] = 0;
    }
    return n;
}

static int agreement(const uint32_t *a, const uint32_t *b)
{
    int differ = 0;
    for (int k = 0; k < BLOCKS; k++)
        differ += __builtin_popcount(a[k] ^ b[k]);
    return SYNTH_PLACE - 2 * differ;
}

/* At every place the right token's logit is above all others' by a third of what a code gives by itself. */
static int check_codes(const struct synth_design *d, double agree, struct err *e)
{
    int n = d->n_places, least = SYNTH_PLACE, before[SYNTH_BEFORE];
    uint32_t (*code)[BLOCKS] = malloc((size_t)n * sizeof *code);
    int *most = calloc((size_t)n, sizeof *most), *own = calloc((size_t)n, sizeof *own);
    int r = code && most && own ? 0 : err_set(e, ERR_NOMEM, "%d places", n);
    for (int i = 0; r == 0 && i < n; i++)
        for (int b = 0; b < BLOCKS; b++)
            code[i][b] = synth_place_code(d, b, (uint32_t)d->token[i]);
    for (int q = 1; r == 0 && q < n; q++) {
        int k = synth_places_before(d, agree, q, before);
        for (int i = 0; i < n && k > 0; i++) {
            int sum = 0, right = 0;
            for (int j = 0; j < k; j++) {
                sum += agreement(code[i], code[before[j]]);
                right |= before[j] == i;
            }
            if (right)
                own[i] = sum;
            else
                most[i] = sum > most[i] ? sum : most[i];
        }
    }
    for (int i = 0; r == 0 && i < n; i++)
        least = own[i] - most[i] < least ? own[i] - most[i] : least;
    free(code);
    free(most);
    free(own);
    if (r == 0 && least < SYNTH_PLACE / 3)
        r = err_set(e, ERR_USAGE, "--seed %" PRIu64 ": the codes of %d places leave a margin of %d of %d channels; take another",
                    d->ask.seed, n, least, SYNTH_PLACE);
    return r;
}

/* Words of one token each, in the order of their numbers. */
static int tokens(struct synth_design *d, struct err *e)
{
    int n = 0;
    for (int i = 0; i < d->ask.shape.n_vocab; i++)
        d->place[i] = -1;
    for (int i = SYNTH_BOS; n < d->n_places && i < d->ask.shape.n_vocab; i++)
        if (i == SYNTH_BOS || synth_is_word(i)) {
            d->place[i] = n;
            d->token[n++] = i;
        }
    if (n < d->n_places)
        return err_set(e, ERR_USAGE, "--vocab %d has %d words, and the text needs %d", d->ask.shape.n_vocab, n - 1, d->n_places - 1);
    return 0;
}

int synth_places(struct synth_design *d, struct err *e)
{
    const struct synth_request *q = &d->ask;
    int n = q->cycle > 0 ? q->cycle : q->splice > 0 ? q->splice : q->route->n_steps, r;
    d->n_places = n;
    d->token = malloc((size_t)n * sizeof *d->token);
    d->place = malloc((size_t)q->shape.n_vocab * sizeof *d->place);
    if (!d->token || !d->place)
        return err_set(e, ERR_NOMEM, "a text of %d tokens", n);
    if ((r = tokens(d, e)) < 0 || (r = check_codes(d, q->agree, e)) < 0 || (q->nextn && (r = check_codes(d, q->nextn_agree, e)) < 0) ||
        !q->route)
        return r;
    return synth_route_steps(d, e);
}
