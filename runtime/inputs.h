#ifndef RUNTIME_INPUTS_H
#define RUNTIME_INPUTS_H

/* Everything that comes to thermo-run from outside, with its bound. Nothing of it is in memory whole that can be read in pieces, and what
 * is in memory is bounded before it is read, by one of two rules:
 *
 * - At the start, before the engine's memory is mapped, an input may take what the limit leaves beside the process and what is held
 *   already (inputs_room): the peak of a start is no higher than the limit.
 * - While the engine runs, an input has its own bound by the context, which the account holds ("beside", or an item of the budget).
 *
 * inputs_table has a row for each; runtime/README.md shows it (tests/unit/test_inputs.c compares them), and tests/cli/ceiling.sh tries
 * every option that names an input, with a large one, in a memory cgroup of the limit. */

#include <stddef.h>
#include <stdint.h>

/* Of a text at the start: its bytes, what the tokenizer needs for as many (nodes of 16 bytes, ids, two candidates of 12) and its ids,
 * whose list grows by doubling. */
#define INPUTS_TEXT_COST 64
#define INPUTS_TEXT_MAX  (64u << 20) /* bytes of a prompt, however much memory there is */

/* What an input may always take: PROCESS has 4 MiB, of which up to 2.8 are in use. Below it no model runs, but its floor can be said. */
#define INPUTS_LEAST (1u << 20)

/* The limit that holds while files are opened: --memory, or what the machine or its control group has. */
uint64_t inputs_limit(uint64_t memory);

/* What an input may take at the start within a limit, of which `taken` bytes are held beside the process. */
size_t inputs_room(uint64_t limit, uint64_t taken);

/* Bytes of a text that fit into so much room. */
size_t inputs_text_bytes(size_t room);

struct inputs_row {
    const char *input;   /* "plan" */
    const char *options; /* with dashes, separated by commas; "" where it comes another way */
    const char *bound, *read, *account;
};

extern const struct inputs_row inputs_table[]; /* ends with a NULL input */

#endif
